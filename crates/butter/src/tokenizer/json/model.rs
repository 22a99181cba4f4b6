//! The `model` of a `tokenizer.json`: a vocabulary and its merges.
//!
//! Gemma's has 33 MB, so texts are borrowed from the file while it is read.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::tokenizer::TokenizerError;
use crate::tokenizer::bpe::Bpe;
use crate::tokenizer::merges::{Merges, PairTable};
use crate::tokenizer::vocabulary::Vocabulary;

#[derive(serde::Deserialize)]
pub(super) struct ModelFile<'a> {
    /// Absent in old files, which are all BPE when they have merges.
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow, default)]
    vocab: VocabularyFile<'a>,
    #[serde(borrow, default)]
    merges: Vec<MergeFile<'a>>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// Borrowed where JSON has no escapes in it, which is nearly everywhere.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A vocabulary as an object of texts and ids; empty for models of other types, whose vocabularies are lists.
#[derive(Default)]
struct VocabularyFile<'a>(Vec<(Cow<'a, str>, u32)>);

impl<'de: 'a, 'a> Deserialize<'de> for VocabularyFile<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;

        impl<'de> Visitor<'de> for Tokens {
            type Value = VocabularyFile<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts and ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut tokens = Vec::new();
                while let Some((Text(text), id)) = map.next_entry()? {
                    tokens.push((text, id));
                }
                Ok(VocabularyFile(tokens))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(VocabularyFile::default())
            }
        }

        deserializer.deserialize_any(Tokens)
    }
}

/// A merge, as a list of two texts or as one text with a space between.
struct MergeFile<'a>(Cow<'a, str>, Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MergeFile<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;

        impl<'de> Visitor<'de> for Parts {
            type Value = MergeFile<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge of two tokens")
            }

            fn visit_borrowed_str<E: serde::de::Error>(
                self,
                text: &'de str,
            ) -> Result<Self::Value, E> {
                let (left, right) = text.split_once(' ').ok_or_else(|| one_token(text))?;
                Ok(MergeFile(left.into(), right.into()))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                let (left, right) = text.split_once(' ').ok_or_else(|| one_token(text))?;
                Ok(MergeFile(left.to_owned().into(), right.to_owned().into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut part = || list.next_element::<Text<'de>>();
                let (Some(Text(left)), Some(Text(right))) = (part()?, part()?) else {
                    return Err(serde::de::Error::invalid_length(1, &self));
                };
                match part()? {
                    None => Ok(MergeFile(left, right)),
                    Some(_) => Err(serde::de::Error::invalid_length(3, &self)),
                }
            }
        }

        deserializer.deserialize_any(Parts)
    }
}

fn one_token<E: serde::de::Error>(text: &str) -> E {
    E::invalid_value(serde::de::Unexpected::Str(text), &"two tokens with a space between")
}

impl ModelFile<'_> {
    pub(super) fn into_bpe(self, path: &Path) -> Result<Bpe, TokenizerError> {
        let malformed =
            |expected: &str, found: String| TokenizerError::malformed(path, expected, found);
        if let Some(kind) = self.kind.as_deref().filter(|&kind| kind != "BPE") {
            return Err(TokenizerError::unsupported(path, "the model's type", kind, "BPE"));
        }
        let is_some = |affix: &Option<String>| affix.as_ref().is_some_and(|text| !text.is_empty());
        if is_some(&self.continuing_subword_prefix) || is_some(&self.end_of_word_suffix) {
            return Err(TokenizerError::unsupported(
                path,
                "the model's subword affixes",
                "some",
                "none",
            ));
        }
        let bytes = self.vocab.0.iter().map(|(text, _)| text.len()).sum();
        let mut vocabulary = Vocabulary::with_capacity(self.vocab.0.len(), bytes);
        for (text, id) in self.vocab.0 {
            if !vocabulary.insert(&text, id) {
                return Err(malformed("each token once", text.into_owned()));
            }
        }
        let parts = |at: usize| {
            let MergeFile(left, right) = &self.merges[at];
            (&**left, &**right)
        };
        let merges = PairTable::new(&vocabulary, self.merges.len(), parts)
            .map_err(|wrong| wrong.in_file(path))?;
        let unknown = match self.unk_token {
            None => None,
            Some(text) => Some(
                vocabulary
                    .id(&text)
                    .ok_or_else(|| malformed("the unknown token in the vocabulary", text))?,
            ),
        };
        let byte_tokens = if self.byte_fallback { Bpe::byte_tokens(&vocabulary) } else { None };
        Ok(Bpe {
            vocabulary,
            merges: Merges::Listed(merges),
            byte_tokens,
            unknown,
            fuse_unknown: self.fuse_unk,
            ignore_merges: self.ignore_merges,
        })
    }
}
