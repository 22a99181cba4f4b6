//! The bytes that each token stands for.

use std::collections::HashMap;
use std::path::Path;

use tokenizers::{AddedToken, NormalizedString, Normalizer};

use super::{Parts, TokenizerError};

/// Ids are dense in every real vocabulary; this bounds what one stray id can make us allocate.
const HIGHEST_ID: u32 = 1 << 24;

/// How a vocabulary writes bytes that are not printable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteEncoding {
    /// GPT-2's: each byte is one printable character.
    ByteLevel,
    /// Sentencepiece's: `▁` is a space and `<0x0A>` a byte.
    SentencePiece {
        /// Whether decoding drops the space that encoding put before a text.
        strips_leading_space: bool,
    },
}

/// All tokens' bytes in one buffer.
pub(super) struct TokenBytes {
    bytes: Vec<u8>,
    /// Where each id's bytes end.
    ends: Vec<u32>,
    encoding: ByteEncoding,
}

impl TokenBytes {
    pub(super) fn new(parts: &Parts, path: &Path) -> Result<Self, TokenizerError> {
        let encoding = parts.encoding;
        let vocabulary = parts.model.vocabulary.iter().map(|(text, id)| (id, text, false));
        let repeated = parts.repeated.iter().map(|(id, text)| (*id, text.as_str(), false));
        let added = parts.added.iter().map(|(id, token)| (*id, token.content.as_str(), true));
        let tokens = vocabulary.chain(repeated).chain(added);
        let highest = tokens.clone().map(|(id, _, _)| id).max();
        let highest = highest
            .ok_or_else(|| TokenizerError::malformed(path, "a vocabulary", "an empty one"))?;
        if highest > HIGHEST_ID {
            return Err(TokenizerError::malformed(
                path,
                format!("ids up to {HIGHEST_ID}"),
                highest.to_string(),
            ));
        }
        let mut texts: Vec<Option<(&str, bool)>> = vec![None; highest as usize + 1];
        for (id, text, is_added) in tokens {
            let earlier = texts[id as usize].replace((text, is_added));
            if let Some((other, _)) = earlier.filter(|(other, _)| *other != text) {
                let found = format!("{id} for {other:?} and {text:?}");
                return Err(TokenizerError::malformed(path, "an id for each token", found));
            }
        }
        let alphabet = byte_level_alphabet();
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(texts.len());
        let normalized = normalized_texts(parts, path)?;
        for (id, text) in (0..).zip(texts) {
            let text = text.map(|(text, is_added)| match normalized.get(&id) {
                Some(text) => (text.as_str(), is_added),
                None => (text, is_added),
            });
            match text {
                // An added token is spelled out, unless spaces are replaced before it is looked for.
                Some((text, true)) if encoding == ByteEncoding::ByteLevel => {
                    bytes.extend(text.as_bytes());
                }
                Some((text, _)) => encoding.append(text, &alphabet, &mut bytes),
                None => {}
            }
            let end = u32::try_from(bytes.len());
            ends.push(end.map_err(|_| {
                TokenizerError::malformed(path, "tokens of less than 4 GiB", "more")
            })?);
        }
        Ok(Self { bytes, ends, encoding })
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        Some(&self.bytes[start..end])
    }

    pub(super) fn strips_leading_space(&self) -> bool {
        self.encoding == ByteEncoding::SentencePiece { strips_leading_space: true }
    }
}

/// The texts of added tokens that are looked for in normalized text: what they are there, as in the reference.
fn normalized_texts(parts: &Parts, path: &Path) -> Result<HashMap<u32, String>, TokenizerError> {
    let Some(normalizer) = &parts.normalizer else { return Ok(HashMap::new()) };
    let tokens = parts.added.iter().filter(|(_, token)| token.normalized);
    let normalize = |(id, token): &(u32, AddedToken)| {
        let mut text = NormalizedString::from(token.content.as_str());
        normalizer.normalize(&mut text)?;
        Ok((*id, text.get().to_owned()))
    };
    tokens.map(normalize).collect::<tokenizers::Result<_>>().map_err(|error| {
        TokenizerError::malformed(path, "added tokens that can be normalized", error.to_string())
    })
}

impl ByteEncoding {
    fn append(self, text: &str, alphabet: &Alphabet, bytes: &mut Vec<u8>) {
        match self {
            Self::ByteLevel => {
                let start = bytes.len();
                for character in text.chars() {
                    if let Some(&Some(byte)) = alphabet.get(character as usize) {
                        bytes.push(byte);
                    } else {
                        // A token outside the byte alphabet stands for itself, as in the reference decoder.
                        bytes.truncate(start);
                        bytes.extend(text.as_bytes());
                        return;
                    }
                }
            }
            Self::SentencePiece { .. } => match byte_token(text) {
                Some(byte) => bytes.push(byte),
                None => {
                    for (at, part) in text.split('▁').enumerate() {
                        bytes.extend((at > 0).then_some(b' '));
                        bytes.extend(part.as_bytes());
                    }
                }
            },
        }
    }
}

/// The byte of a token such as `<0x0A>`.
fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The byte of each character of GPT-2's alphabet, by code point.
type Alphabet = [Option<u8>; 0x100 + 68];

/// GPT-2's alphabet: printable Latin-1 characters are themselves, the 68 other bytes count up from U+0100.
/// Reference: `bytes_to_unicode` in <https://github.com/openai/gpt-2/blob/master/src/encoder.py>.
fn byte_level_alphabet() -> Alphabet {
    let mut alphabet = [None; 0x100 + 68];
    let mut next = 0x100;
    for byte in 0..=u8::MAX {
        let is_printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if is_printable {
            usize::from(byte)
        } else {
            next += 1;
            next - 1
        };
        alphabet[code] = Some(byte);
    }
    alphabet
}
