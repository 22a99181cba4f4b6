//! Text to tokens and back.
//!
//! Byte-pair encoding by Hugging Face's `tokenizers` crate, set up from `tokenizer.json` or from GGUF metadata. What the
//! crate does not give, we do here: the bytes of every token, text that arrives token by token, and user text in which
//! special tokens are mere characters.

mod bytes;
mod error;
mod gguf;
mod json;
mod pre_tokenizers;
mod stream;

use std::path::Path;
use std::sync::Arc;

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, AddedVocabulary, Model, OffsetType, PreTokenizer};

use self::bytes::TokenBytes;
use crate::weights::Weights;
use crate::weights::gguf::Gguf;

pub use self::error::TokenizerError;
pub(crate) use self::json::token_text;
pub use self::stream::DecodeStream;

/// Texts of tokens that end a turn, whatever the file says: many conversions mark only one of them.
const TURN_ENDS: [&str; 9] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// A tokenizer. Clones share everything.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    model: BPE,
    /// Finds special tokens in text.
    added: AddedVocabulary,
    /// Finds only the added tokens that are not special.
    added_literal: AddedVocabulary,
    bytes: TokenBytes,
    ids: SpecialIds,
    /// Put around a text when special tokens are asked for.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

/// The tokens with a role.
#[derive(Clone, Debug, Default)]
struct SpecialIds {
    bos: Option<u32>,
    eos: Option<u32>,
    /// All that end a turn, `eos` included.
    turn_ends: Vec<u32>,
}

/// What both file formats are read into.
struct Parts {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    model: BPE,
    /// With the id that the file gives each.
    added: Vec<(u32, AddedToken)>,
    encoding: bytes::ByteEncoding,
    bos: Option<u32>,
    eos: Option<u32>,
    other_turn_ends: Vec<u32>,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, and `tokenizer_config.json` when there is one, in `folder`.
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        let path = folder.join("tokenizer.json");
        Self::assemble(json::read(folder)?, &path)
    }

    /// Reads the tokenizer in a GGUF file's metadata.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::assemble(gguf::read(gguf)?, gguf.path())
    }

    /// The tokenizer that belongs to `weights`: inside the GGUF file, or beside the safetensors.
    pub fn from_weights(weights: &Weights) -> Result<Self, TokenizerError> {
        match weights.gguf() {
            Some(gguf) => Self::from_gguf(gguf),
            None if weights.path().is_dir() => Self::from_folder(weights.path()),
            None => Self::from_folder(weights.path().parent().unwrap_or(Path::new("."))),
        }
    }

    fn assemble(parts: Parts, path: &Path) -> Result<Self, TokenizerError> {
        let malformed =
            |expected: String, found: String| TokenizerError::malformed(path, expected, found);
        let mut added = AddedVocabulary::new();
        let tokens = parts.added.iter().map(|(_, token)| token.clone());
        added
            .add_tokens(tokens, &parts.model, parts.normalizer.as_ref())
            .map_err(|error| malformed("usable added tokens".to_owned(), error.to_string()))?;
        for (id, token) in &parts.added {
            let given = added.token_to_id(&token.content, &parts.model);
            if given != Some(*id) && !token.content.is_empty() {
                let expected = format!("added token {:?} to be number {id}", token.content);
                return Err(malformed(expected, format!("{given:?}")));
            }
        }
        let bytes = TokenBytes::new(&parts.model, &parts.added, parts.encoding, path)?;
        let mut turn_ends: Vec<u32> = parts.eos.into_iter().chain(parts.other_turn_ends).collect();
        for text in TURN_ENDS {
            if let Some(id) =
                added.token_to_id(text, &parts.model).filter(|_| added.is_special_token(text))
            {
                turn_ends.push(id);
            }
        }
        let mut seen = std::collections::HashSet::new();
        turn_ends.retain(|id| seen.insert(*id));
        let beyond = |id: &&u32| **id as usize >= bytes.len();
        let used = turn_ends.iter().chain(&parts.bos).chain(&parts.prefix).chain(&parts.suffix);
        if let Some(id) = used.clone().find(beyond) {
            return Err(malformed(format!("special tokens below {}", bytes.len()), id.to_string()));
        }
        let mut added_literal = added.clone();
        added_literal.set_encode_special_tokens(true);
        Ok(Self(Arc::new(Inner {
            normalizer: parts.normalizer,
            pre_tokenizer: parts.pre_tokenizer,
            model: parts.model,
            added,
            added_literal,
            bytes,
            ids: SpecialIds { bos: parts.bos, eos: parts.eos, turn_ends },
            prefix: parts.prefix,
            suffix: parts.suffix,
        })))
    }

    /// Encodes text in which special tokens may be spelled out, as chat templates do. `add_special` adds what the model
    /// wants around a text, usually the token that starts it.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let ids = self.encode_with(&self.0.added, text)?;
        if !add_special {
            return Ok(ids);
        }
        Ok([self.0.prefix.as_slice(), &ids, &self.0.suffix].concat())
    }

    /// Encodes text from a stranger: `<|im_end|>` in it is ten characters, not the end of a turn.
    pub fn encode_literal(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_with(&self.0.added_literal, text)
    }

    fn encode_with(&self, added: &AddedVocabulary, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let failed = |error: tokenizers::Error| TokenizerError::Encode(error.to_string());
        let mut pieces = added.extract_and_normalize(self.0.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = &self.0.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(failed)?;
        }
        pieces.tokenize(|piece| self.0.model.tokenize(piece.get())).map_err(failed)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(failed)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `ids`. Bytes that are no UTF-8 become U+FFFD; unknown ids are left out.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = self.decode_stream(skip_special);
        let mut text = String::new();
        for &id in ids {
            text.push_str(&stream.push(id));
        }
        text.push_str(&stream.finish());
        text
    }

    /// Decodes token by token.
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream {
        DecodeStream::new(self.clone(), skip_special)
    }

    /// The id of a token by its text in the vocabulary, where byte-level vocabularies write a space as `Ġ`.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.added.token_to_id(token, &self.0.model)
    }

    /// The bytes that a token stands for; those of a special token are its name.
    pub fn id_to_bytes(&self, id: u32) -> Option<&[u8]> {
        self.0.bytes.get(id)
    }

    /// Whether a token is special, and so no part of an answer's text.
    pub fn is_special(&self, id: u32) -> bool {
        self.0.bytes.is_special(id)
    }

    /// One more than the highest id. The model's logits may be more (padding).
    pub fn vocab_size(&self) -> usize {
        self.0.bytes.len()
    }

    /// The token that starts a text.
    pub fn bos_id(&self) -> Option<u32> {
        self.0.ids.bos
    }

    /// The token that ends a text.
    pub fn eos_id(&self) -> Option<u32> {
        self.0.ids.eos
    }

    /// All tokens that end an answer, [`Tokenizer::eos_id`] first.
    pub fn turn_end_ids(&self) -> &[u32] {
        &self.0.ids.turn_ends
    }

    /// Whether the space that starts a text is the encoder's and not the text's.
    fn strips_leading_space(&self) -> bool {
        self.0.bytes.strips_leading_space()
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("ids", &self.0.ids)
            .finish()
    }
}

#[cfg(test)]
mod tests;
