//! The bytes that each token stands for.

use std::collections::HashMap;
use std::path::Path;

use tokenizers::AddedToken;
use tokenizers::models::bpe::BPE;

use super::TokenizerError;

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
    special: Vec<bool>,
    encoding: ByteEncoding,
}

impl TokenBytes {
    pub(super) fn new(
        model: &BPE,
        added: &[(u32, AddedToken)],
        encoding: ByteEncoding,
        path: &Path,
    ) -> Result<Self, TokenizerError> {
        let vocabulary = model.get_vocab();
        let highest = vocabulary.values().chain(added.iter().map(|(id, _)| id)).max().copied();
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
        for (text, &id) in &vocabulary {
            texts[id as usize] = Some((text, false));
        }
        let mut special = vec![false; texts.len()];
        for (id, token) in added {
            texts[*id as usize] = Some((&token.content, true));
            special[*id as usize] = token.special;
        }
        let characters = byte_level_characters();
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(texts.len());
        for text in texts {
            match text {
                // An added token is spelled out, unless spaces are replaced before it is looked for.
                Some((text, true)) if encoding == ByteEncoding::ByteLevel => {
                    bytes.extend(text.as_bytes());
                }
                Some((text, _)) => encoding.append(text, &characters, &mut bytes),
                None => {}
            }
            let end = u32::try_from(bytes.len());
            ends.push(end.map_err(|_| {
                TokenizerError::malformed(path, "tokens of less than 4 GiB", "more")
            })?);
        }
        Ok(Self { bytes, ends, special, encoding })
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

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    pub(super) fn strips_leading_space(&self) -> bool {
        self.encoding == ByteEncoding::SentencePiece { strips_leading_space: true }
    }
}

impl ByteEncoding {
    fn append(self, text: &str, characters: &HashMap<char, u8>, bytes: &mut Vec<u8>) {
        match self {
            Self::ByteLevel => {
                let start = bytes.len();
                for character in text.chars() {
                    if let Some(&byte) = characters.get(&character) {
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
                None => bytes.extend(text.replace('▁', " ").as_bytes()),
            },
        }
    }
}

/// The byte of a token such as `<0x0A>`.
fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// GPT-2's alphabet: printable Latin-1 characters are themselves, the other bytes count up from U+0100.
/// Reference: `bytes_to_unicode` in <https://github.com/openai/gpt-2/blob/master/src/encoder.py>.
fn byte_level_characters() -> HashMap<char, u8> {
    let mut next = 0x100;
    (0..=u8::MAX)
        .map(|byte| {
            let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
            let code = if printable {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            (char::from_u32(code).unwrap_or_default(), byte)
        })
        .collect()
}
