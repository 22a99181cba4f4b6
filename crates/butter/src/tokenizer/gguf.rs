//! The tokenizer in GGUF metadata: the same parts that `tokenizer.json` would make.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value as Json, json};
use tokenizers::AddedToken;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;

use super::bpe::Bpe;
use super::bytes::ByteEncoding;
use super::merges::{Merges, PairTable, Scores};
use super::vocabulary::{MOST_BYTES, Vocabulary};
use super::{Parts, TokenizerError, json, pre_tokenizers};
use crate::weights::gguf::{Array, Gguf};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";

/// llama.cpp's `llama_token_type`.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

pub(super) fn read(gguf: &Gguf) -> Result<Parts, TokenizerError> {
    let reader = Reader::new(gguf)?;
    match gguf.metadata().string(MODEL)?.unwrap_or("(none)") {
        "gpt2" => reader.byte_level(),
        "llama" => reader.sentencepiece(),
        other => {
            let supported =
                "gpt2 (byte-level byte-pair encoding), llama (sentencepiece's, with scores)";
            Err(TokenizerError::unsupported(gguf.path(), MODEL, other, supported))
        }
    }
}

/// What both kinds of tokenizer have.
struct Reader<'a> {
    gguf: &'a Gguf,
    tokens: Vec<Cow<'a, str>>,
    /// As many as tokens, or none.
    types: Vec<i64>,
}

/// How a kind of tokenizer cuts text before it is encoded.
struct Cutting {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    encoding: ByteEncoding,
    /// Whether a text starts with the BOS token when the file does not say.
    add_bos: bool,
}

impl<'a> Reader<'a> {
    fn new(gguf: &'a Gguf) -> Result<Self, TokenizerError> {
        let tokens = texts(gguf, TOKENS)?;
        if tokens.iter().map(|token| token.len()).sum::<usize>() > MOST_BYTES {
            let expected = format!("tokens of at most {MOST_BYTES} bytes together");
            return Err(malformed(gguf, &expected, "more"));
        }
        let mut types = Vec::new();
        if let Some(array) = gguf.metadata().array(TOKEN_TYPE)? {
            let found = array.len();
            let integers = array.integers().filter(|_| found == tokens.len());
            types.extend(integers.ok_or_else(|| {
                let expected = format!("{} integers in {TOKEN_TYPE}", tokens.len());
                malformed(gguf, &expected, &format!("{found} values"))
            })?);
        }
        Ok(Self { gguf, tokens: tokens.into_iter().map(Cow::Borrowed).collect(), types })
    }

    /// GPT-2's kind: a list of merges, and a rule that cuts text into pieces.
    fn byte_level(self) -> Result<Parts, TokenizerError> {
        let gguf = self.gguf;
        let pre = gguf.metadata().string(PRE)?.unwrap_or("(none)");
        let pre = pre_tokenizers::find(pre).ok_or_else(|| {
            TokenizerError::unsupported(gguf.path(), PRE, pre, pre_tokenizers::known_names())
        })?;
        let (vocabulary, repeated) = self.vocabulary();
        let parts = |merge: &'a str| {
            merge.split_once(' ').ok_or_else(|| malformed(gguf, "merges of two tokens", merge))
        };
        let merges: Vec<_> =
            texts(gguf, MERGES)?.into_iter().map(parts).collect::<Result<_, _>>()?;
        let merges = PairTable::new(&vocabulary, merges.len(), |at| merges[at])
            .map_err(|wrong| wrong.in_file(gguf.path()))?;
        let model = Bpe {
            vocabulary,
            merges: Merges::Listed(merges),
            byte_tokens: None,
            unknown: None,
            fuse_unknown: false,
            ignore_merges: pre.ignore_merges,
        };
        let cutting = Cutting {
            normalizer: pre.nfc.then(json::nfc),
            pre_tokenizer: Some(json::pre_tokenizer(gguf.path(), pre.to_json())?),
            encoding: ByteEncoding::ByteLevel,
            add_bos: pre.add_bos,
        };
        self.parts(model, repeated, cutting)
    }

    /// Llama's and Gemma's kind: scores, and bytes where characters are no tokens.
    fn sentencepiece(mut self) -> Result<Parts, TokenizerError> {
        let gguf = self.gguf;
        self.respell_spaces();
        let scores = self.scores()?;
        let (vocabulary, repeated) = self.vocabulary();
        let unknown = match id(gguf, "tokenizer.ggml.unknown_token_id")? {
            None => self.types.iter().position(|kind| *kind == UNKNOWN).map(|id| id as u32),
            given => given,
        };
        let model = Bpe {
            byte_tokens: Bpe::byte_tokens(&vocabulary),
            vocabulary,
            merges: Merges::Scored(scores),
            unknown,
            fuse_unknown: true,
            ignore_merges: false,
        };
        let key = "tokenizer.ggml.add_space_prefix";
        let has_prefix = gguf.metadata().boolean(key)?.unwrap_or(true);
        let prepend = has_prefix.then(|| json!({"type": "Prepend", "prepend": "▁"}));
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let steps: Vec<Json> = prepend.into_iter().chain([replace]).collect();
        let normalizer = json!({"type": "Sequence", "normalizers": steps});
        let cutting = Cutting {
            normalizer: Some(json::normalizer(gguf.path(), normalizer)?),
            pre_tokenizer: None,
            encoding: ByteEncoding::SentencePiece { strips_leading_space: has_prefix },
            add_bos: true,
        };
        self.parts(model, repeated, cutting)
    }

    /// Converters write Gemma's runs of spaces as spaces; its own `tokenizer.json` has them as the encoder sees them.
    fn respell_spaces(&mut self) {
        for (token, kind) in self.tokens.iter_mut().zip(&self.types) {
            if *kind == USER_DEFINED && token.bytes().all(|byte| byte == b' ') {
                *token = Cow::Owned("▁".repeat(token.len()));
            }
        }
    }

    fn scores(&self) -> Result<Scores, TokenizerError> {
        let scores = self.gguf.metadata().array(SCORES)?.and_then(Array::floats);
        let scores: Vec<f32> = scores
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(id, score)| match self.types.get(id) {
                // As in sentencepiece's own file, before all others. Converters write what they like.
                Some(&USER_DEFINED) => 0.0,
                _ => score as f32,
            })
            .collect();
        let found = scores.len();
        let scores = Scores::new(scores.into_iter()).filter(|_| found == self.tokens.len());
        scores.ok_or_else(|| {
            let expected = format!("{} numbers in {SCORES}", self.tokens.len());
            malformed(self.gguf, &expected, &format!("{found} values"))
        })
    }

    /// The tokens. A repeated one keeps its first id, as in llama.cpp; the later ones can be decoded only.
    fn vocabulary(&self) -> (Vocabulary, Vec<(u32, String)>) {
        let bytes = self.tokens.iter().map(|token| token.len()).sum();
        let mut vocabulary = Vocabulary::with_capacity(self.tokens.len(), bytes);
        let mut repeated = Vec::new();
        for (id, token) in (0..).zip(&self.tokens) {
            if !vocabulary.insert(token, id) {
                repeated.push((id, token.to_string()));
            }
        }
        (vocabulary, repeated)
    }

    /// Control tokens are special; user-defined ones are found in text, but are text.
    fn added_tokens(&self) -> Vec<(u32, AddedToken)> {
        let mut added = Vec::new();
        let mut seen = HashSet::new();
        for (id, (token, kind)) in (0..).zip(self.tokens.iter().zip(&self.types)) {
            let is_special = matches!(*kind, UNKNOWN | CONTROL);
            let is_added = is_special || *kind == USER_DEFINED;
            if is_added && !token.is_empty() && seen.insert(token) {
                added.push((id, AddedToken::from(&**token, is_special).normalized(false)));
            }
        }
        added
    }

    fn parts(
        self,
        model: Bpe,
        repeated: Vec<(u32, String)>,
        cutting: Cutting,
    ) -> Result<Parts, TokenizerError> {
        let (gguf, metadata) = (self.gguf, self.gguf.metadata());
        let bos = id(gguf, "tokenizer.ggml.bos_token_id")?;
        let eos = id(gguf, "tokenizer.ggml.eos_token_id")?;
        let mut other_turn_ends = Vec::new();
        for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
            other_turn_ends.extend(id(gguf, key)?);
        }
        let Cutting { normalizer, pre_tokenizer, encoding, add_bos } = cutting;
        let add_bos = metadata.boolean("tokenizer.ggml.add_bos_token")?.unwrap_or(add_bos);
        let add_eos = metadata.boolean("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
        Ok(Parts {
            normalizer,
            pre_tokenizer,
            model,
            repeated,
            added: self.added_tokens(),
            encoding,
            bos,
            eos,
            other_turn_ends,
            prefix: bos.filter(|_| add_bos).into_iter().collect(),
            suffix: eos.filter(|_| add_eos).into_iter().collect(),
        })
    }
}

fn id(gguf: &Gguf, key: &str) -> Result<Option<u32>, TokenizerError> {
    let id = gguf.metadata().unsigned(key)?;
    // -1 in the type of the time: "there is none".
    Ok(id.and_then(|id| u32::try_from(id).ok()).filter(|&id| id != u32::MAX))
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
