//! The tokenizer in GGUF metadata: the same objects that `tokenizer.json` would make.

use ahash::AHashMap;
use tokenizers::AddedToken;
use tokenizers::models::bpe::BPE;

use super::bytes::ByteEncoding;
use super::{Parts, TokenizerError, json, pre_tokenizers};
use crate::weights::gguf::{Array, Gguf};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";

/// llama.cpp's `llama_token_type`.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

pub(super) fn read(gguf: &Gguf) -> Result<Parts, TokenizerError> {
    let metadata = gguf.metadata();
    let unsupported = |what, found: &str, supported: String| {
        let found = found.chars().take(60).flat_map(char::escape_debug).collect();
        TokenizerError::Unsupported { path: gguf.path().to_owned(), what, found, supported }
    };
    let model = metadata.string(MODEL)?.unwrap_or("(none)");
    if model != "gpt2" {
        return Err(unsupported(MODEL, model, "gpt2 (byte-level byte-pair encoding)".to_owned()));
    }
    let pre = metadata.string(PRE)?.unwrap_or("(none)");
    let pre = pre_tokenizers::find(pre)
        .ok_or_else(|| unsupported(PRE, pre, pre_tokenizers::known_names()))?;

    let tokens = texts(gguf, TOKENS)?;
    let mut vocabulary = AHashMap::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        // A repeated token keeps its first id, as in llama.cpp; the later ones can be decoded only.
        vocabulary.entry((*token).to_owned()).or_insert(id as u32);
    }
    let mut merges = Vec::new();
    for merge in texts(gguf, MERGES)? {
        let pair =
            merge.split_once(' ').ok_or_else(|| malformed(gguf, "merges of two tokens", merge))?;
        merges.push((pair.0.to_owned(), pair.1.to_owned()));
    }
    json::check_merges(gguf.path(), &vocabulary, &merges)?;
    let model = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(|error| malformed(gguf, "a usable vocabulary", &error.to_string()))?;

    let id = |key| {
        metadata
            .unsigned(key)
            .map(|id| id.and_then(|id| u32::try_from(id).ok()).filter(|&id| id != u32::MAX))
    };
    let (bos, eos) = (id("tokenizer.ggml.bos_token_id")?, id("tokenizer.ggml.eos_token_id")?);
    let mut other_turn_ends = Vec::new();
    for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        other_turn_ends.extend(id(key)?);
    }
    let add_bos = metadata.boolean("tokenizer.ggml.add_bos_token")?.unwrap_or(pre.add_bos);
    let add_eos = metadata.boolean("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
    Ok(Parts {
        normalizer: if pre.nfc { Some(json::nfc()) } else { None },
        pre_tokenizer: Some(json::pre_tokenizer(gguf.path(), pre.to_json())?),
        model,
        added: added_tokens(gguf, &tokens)?,
        encoding: ByteEncoding::ByteLevel,
        bos,
        eos,
        other_turn_ends,
        prefix: bos.filter(|_| add_bos).into_iter().collect(),
        suffix: eos.filter(|_| add_eos).into_iter().collect(),
    })
}

/// Control tokens are special; user-defined ones are found in text, but are text.
fn added_tokens(gguf: &Gguf, tokens: &[&str]) -> Result<Vec<(u32, AddedToken)>, TokenizerError> {
    let Some(types) = gguf.metadata().array(TOKEN_TYPE)? else { return Ok(Vec::new()) };
    let count = types.len();
    let types = types.integers().filter(|_| count == tokens.len());
    let types = types.ok_or_else(|| {
        malformed(
            gguf,
            &format!("{} integers in {TOKEN_TYPE}", tokens.len()),
            &format!("{count} values"),
        )
    })?;
    let mut added = Vec::new();
    let mut seen = ahash::AHashSet::new();
    for (id, (token, kind)) in tokens.iter().zip(types).enumerate() {
        let special = matches!(kind, UNKNOWN | CONTROL);
        if (special || kind == USER_DEFINED) && !token.is_empty() && seen.insert(*token) {
            added.push((id as u32, AddedToken::from(*token, special).normalized(false)));
        }
    }
    Ok(added)
}

fn texts<'a>(gguf: &'a Gguf, key: &'static str) -> Result<Vec<&'a str>, TokenizerError> {
    let array = gguf.metadata().array(key)?.and_then(Array::strings);
    let array =
        array.ok_or_else(|| malformed(gguf, &format!("a list of texts in {key}"), "none"))?;
    array
        .map(|text| {
            std::str::from_utf8(text)
                .map_err(|_| malformed(gguf, &format!("UTF-8 in {key}"), "other bytes"))
        })
        .collect()
}

fn malformed(gguf: &Gguf, expected: &str, found: &str) -> TokenizerError {
    TokenizerError::malformed(gguf.path(), expected, found)
}
