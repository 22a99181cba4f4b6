//! Text to tokens and back.
//!
//! Set up from `tokenizer.json` or from GGUF metadata. Hugging Face's `tokenizers` crate finds added tokens, normalizes
//! and cuts text into pieces. What it does not give, or not fast enough, we do here: byte-pair encoding, the bytes of
//! every token, text that arrives token by token, and user text in which special tokens are mere characters.

mod added;
mod bpe;
mod bytes;
mod error;
mod gguf;
mod json;
mod merges;
mod pre_tokenizers;
mod stream;
mod vocabulary;

use std::path::Path;
use std::sync::Arc;

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, OffsetReferential, OffsetType, PreTokenizer};

use self::added::AddedTokens;
use self::bpe::{Bpe, Workspace};
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
    model: Bpe,
    added: AddedTokens,
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
    model: Bpe,
    /// Tokens with the text of an earlier one: they are decoded only.
    repeated: Vec<(u32, String)>,
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
        let added = AddedTokens::new(&parts.added, parts.normalizer.as_ref())
            .map_err(|error| malformed("usable added tokens".to_owned(), error.to_string()))?;
        for (id, token) in &parts.added {
            let known = parts.model.vocabulary.id(&token.content);
            if let Some(known) = known.filter(|known| known != id) {
                let expected = format!("added token {:?} to be number {id}", token.content);
                return Err(malformed(expected, known.to_string()));
            }
        }
        let bytes = TokenBytes::new(&parts, path)?;
        let mut turn_ends: Vec<u32> = parts.eos.into_iter().chain(parts.other_turn_ends).collect();
        turn_ends.extend(
            TURN_ENDS.iter().filter_map(|text| added.id(text)).filter(|&id| added.is_special(id)),
        );
        let mut seen = std::collections::HashSet::new();
        turn_ends.retain(|id| seen.insert(*id));
        let beyond = |id: &&u32| **id as usize >= bytes.len();
        let used = turn_ends.iter().chain(&parts.bos).chain(&parts.prefix).chain(&parts.suffix);
        let used = used.chain(&parts.model.unknown);
        if let Some(id) = used.clone().find(beyond) {
            return Err(malformed(format!("special tokens below {}", bytes.len()), id.to_string()));
        }
        Ok(Self(Arc::new(Inner {
            normalizer: parts.normalizer,
            pre_tokenizer: parts.pre_tokenizer,
            model: parts.model,
            added,
            bytes,
            ids: SpecialIds { bos: parts.bos, eos: parts.eos, turn_ends },
            prefix: parts.prefix,
            suffix: parts.suffix,
        })))
    }

    /// Encodes text in which special tokens may be spelled out, as chat templates do. `add_special` adds what the model
    /// wants around a text, usually the token that starts it.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let ids = self.encode_pieces(text, false)?;
        if !add_special {
            return Ok(ids);
        }
        Ok([self.0.prefix.as_slice(), &ids, &self.0.suffix].concat())
    }

    /// Encodes text from a stranger: `<|im_end|>` in it is ten characters, not the end of a turn.
    pub fn encode_literal(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_pieces(text, true)
    }

    fn encode_pieces(&self, text: &str, is_literal: bool) -> Result<Vec<u32>, TokenizerError> {
        const LONGEST: usize = 1 << 30;
        if text.len() > LONGEST {
            let reason = format!("it has {} bytes, more than {LONGEST}", text.len());
            return Err(TokenizerError::Encode(reason));
        }
        let Inner { normalizer, pre_tokenizer, model, added, .. } = &*self.0;
        let mut pieces = added.cut(text, normalizer.as_ref(), is_literal);
        if let Some(pre_tokenizer) = pre_tokenizer {
            let failed = |error: tokenizers::Error| TokenizerError::Encode(error.to_string());
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(failed)?;
        }
        let (mut ids, mut workspace) = (Vec::new(), Workspace::default());
        for (piece, _, found) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::None)
        {
            match found {
                Some(tokens) => ids.extend(tokens.iter().map(|token| added.found(token))),
                None => model.encode(piece, &mut workspace, &mut ids),
            }
        }
        Ok(ids)
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
        self.0.added.id(token).or_else(|| self.0.model.vocabulary.id(token))
    }

    /// The bytes that a token stands for; those of a special token are its name.
    pub fn id_to_bytes(&self, id: u32) -> Option<&[u8]> {
        self.0.bytes.get(id)
    }

    /// Whether a token is special, and so no part of an answer's text.
    pub fn is_special(&self, id: u32) -> bool {
        self.0.added.is_special(id)
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
