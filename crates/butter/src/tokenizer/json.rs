//! `tokenizer.json` and `tokenizer_config.json`.
//!
//! The crate's own loader is not used: it panics on some damaged files, and it hides the parts that decide which bytes
//! a token stands for.

mod model;

use std::path::Path;

use serde::Deserialize;
use serde_json::Value as Json;
use tokenizers::AddedToken;
use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;

use self::model::ModelFile;
use super::bytes::ByteEncoding;
use super::{Parts, TokenizerError};
use crate::weights::read_small_file;

const LONGEST: u64 = 256 << 20;
/// The kinds that models with byte-pair encoding use, and that are safe with parameters from a stranger.
const NORMALIZERS: &[&str] = &[
    "Sequence",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Replace",
    "Prepend",
    "Strip",
    "StripAccents",
];
const PRE_TOKENIZERS: &[&str] = &[
    "Sequence",
    "Split",
    "ByteLevel",
    "Digits",
    "Metaspace",
    "Punctuation",
    "Whitespace",
    "WhitespaceSplit",
];

#[derive(Deserialize)]
struct File<'a> {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Option<Json>,
    pre_tokenizer: Option<Json>,
    post_processor: Option<Json>,
    decoder: Option<Json>,
    #[serde(borrow)]
    model: ModelFile<'a>,
}

#[expect(clippy::struct_excessive_bools, reason = "the file's own fields")]
#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

pub(super) fn read(folder: &Path) -> Result<Parts, TokenizerError> {
    let path = folder.join("tokenizer.json");
    let malformed =
        |expected: &str, found: String| TokenizerError::malformed(&path, expected, found);
    let text = read_small_file(&path, LONGEST)?;
    let file: File = serde_json::from_slice(&text).map_err(|error| {
        malformed("the JSON of a tokenizer with byte-pair encoding", error.to_string())
    })?;
    let config = read_config(folder)?;
    let encoding = byte_encoding(&path, file.decoder.as_ref())?;
    let added: Vec<(u32, AddedToken)> =
        file.added_tokens.into_iter().map(Added::into_token).collect();
    let model = file.model.into_bpe(&path)?;
    let id_of = |name: &str| -> Option<u32> {
        let in_added = added.iter().find(|(_, token)| token.content == name).map(|(id, _)| *id);
        in_added.or_else(|| model.vocabulary.id(name))
    };
    let special = |key: &str| config.get(key).and_then(token_text).and_then(id_of);
    let (prefix, suffix) = match &file.post_processor {
        Some(post_processor) => affixes(&path, post_processor, &id_of)?,
        None => (Vec::new(), Vec::new()),
    };
    Ok(Parts {
        bos: special("bos_token"),
        eos: special("eos_token"),
        other_turn_ends: Vec::new(),
        prefix,
        suffix,
        normalizer: file.normalizer.map(|json| normalizer(&path, json)).transpose()?,
        pre_tokenizer: file.pre_tokenizer.map(|json| pre_tokenizer(&path, json)).transpose()?,
        added,
        encoding,
        repeated: Vec::new(),
        model,
    })
}

impl Added {
    fn into_token(self) -> (u32, AddedToken) {
        let token = AddedToken::from(self.content, self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized);
        (self.id, token)
    }
}

fn read_config(folder: &Path) -> Result<Json, TokenizerError> {
    let path = folder.join("tokenizer_config.json");
    if !path.is_file() {
        return Ok(Json::Null);
    }
    let text = read_small_file(&path, LONGEST)?;
    serde_json::from_slice(&text)
        .map_err(|error| TokenizerError::malformed(&path, "a JSON object", error.to_string()))
}

/// A special token in `tokenizer_config.json` is a text, or an object with its `content`.
pub(crate) fn token_text(value: &Json) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

pub(super) fn nfc() -> NormalizerWrapper {
    NormalizerWrapper::NFC(NFC)
}

pub(super) fn normalizer(path: &Path, json: Json) -> Result<NormalizerWrapper, TokenizerError> {
    check_kinds(path, "the normalizer", &json, NORMALIZERS)?;
    serde_json::from_value(json)
        .map_err(|error| TokenizerError::malformed(path, "a usable normalizer", error.to_string()))
}

pub(super) fn pre_tokenizer(
    path: &Path,
    json: Json,
) -> Result<PreTokenizerWrapper, TokenizerError> {
    check_kinds(path, "the pre-tokenizer", &json, PRE_TOKENIZERS)?;
    serde_json::from_value(json).map_err(|error| {
        TokenizerError::malformed(path, "a usable pre-tokenizer", error.to_string())
    })
}

/// Checks the `type` of a component and of those in its sequences.
fn check_kinds(
    path: &Path,
    what: &'static str,
    json: &Json,
    known: &[&str],
) -> Result<(), TokenizerError> {
    let kind = json.get("type").and_then(Json::as_str).unwrap_or("(none)");
    if !known.contains(&kind) {
        return Err(TokenizerError::unsupported(path, what, kind, known.join(", ")));
    }
    for list in ["normalizers", "pretokenizers"] {
        for part in json.get(list).and_then(Json::as_array).into_iter().flatten() {
            check_kinds(path, what, part, known)?;
        }
    }
    Ok(())
}

/// What the decoder says about how bytes are written in the vocabulary.
fn byte_encoding(path: &Path, decoder: Option<&Json>) -> Result<ByteEncoding, TokenizerError> {
    let kind = |json: &Json| json.get("type").and_then(Json::as_str).unwrap_or("(none)").to_owned();
    let name = decoder.map_or_else(|| "(none)".to_owned(), kind);
    let steps: Vec<String> = decoder
        .and_then(|json| json.get("decoders")?.as_array())
        .into_iter()
        .flatten()
        .map(kind)
        .collect();
    let has = |step: &str| steps.iter().any(|known| known == step);
    match name.as_str() {
        "ByteLevel" => Ok(ByteEncoding::ByteLevel),
        "Sequence" if has("ByteLevel") => Ok(ByteEncoding::ByteLevel),
        "Sequence" if has("ByteFallback") => Ok(ByteEncoding::SentencePiece {
            strips_leading_space: has("Strip") || has("Metaspace"),
        }),
        other => Err(TokenizerError::unsupported(
            path,
            "the decoder",
            other,
            "ByteLevel, or a Sequence with ByteFallback",
        )),
    }
}

type Affixes = (Vec<u32>, Vec<u32>);

/// The tokens that the post-processor puts before and after a single text.
fn affixes(
    path: &Path,
    json: &Json,
    id_of: &impl Fn(&str) -> Option<u32>,
) -> Result<Affixes, TokenizerError> {
    let malformed =
        |expected: &str| TokenizerError::malformed(path, expected, "another post-processor");
    match json.get("type").and_then(Json::as_str) {
        Some("ByteLevel") => Ok((Vec::new(), Vec::new())),
        Some("Sequence") => {
            let parts = json.get("processors").and_then(Json::as_array);
            let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
            for part in parts.ok_or_else(|| malformed("a list of processors"))? {
                let (before, after) = affixes(path, part, id_of)?;
                prefix = [before, prefix].concat();
                suffix.extend(after);
            }
            Ok((prefix, suffix))
        }
        Some("TemplateProcessing") => {
            let pieces = json
                .get("single")
                .and_then(Json::as_array)
                .ok_or_else(|| malformed("a `single` template"))?;
            let (mut prefix, mut suffix, mut after_text) = (Vec::new(), Vec::new(), false);
            for piece in pieces {
                if piece.get("Sequence").is_some() {
                    after_text = true;
                    continue;
                }
                let name = piece
                    .get("SpecialToken")
                    .and_then(|token| token.get("id"))
                    .and_then(Json::as_str);
                let id = name
                    .and_then(id_of)
                    .ok_or_else(|| malformed("special tokens of the vocabulary"))?;
                if after_text { suffix.push(id) } else { prefix.push(id) }
            }
            Ok((prefix, suffix))
        }
        other => {
            let supported = "ByteLevel, TemplateProcessing, Sequence";
            Err(TokenizerError::unsupported(
                path,
                "the post-processor",
                other.unwrap_or("(none)"),
                supported,
            ))
        }
    }
}
