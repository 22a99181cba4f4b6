//! Added tokens: those that are found in a text before it is cut into pieces.

use std::collections::HashSet;

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{AddedToken, AddedVocabulary, PreTokenizedString, Token};

use super::vocabulary::Vocabulary;

/// The added tokens of a tokenizer.
///
/// `tokenizers` finds them. It numbers tokens that its model does not know in their order; given a model that knows none,
/// its numbers are places in our list of ids.
pub(super) struct AddedTokens {
    ids: Vec<u32>,
    by_text: Vocabulary,
    special: HashSet<u32>,
    all: AddedVocabulary,
    /// Finds only those that are not special.
    literal: AddedVocabulary,
}

impl AddedTokens {
    pub(super) fn new(
        tokens: &[(u32, AddedToken)],
        normalizer: Option<&NormalizerWrapper>,
    ) -> tokenizers::Result<Self> {
        let mut by_text = Vocabulary::default();
        let is_first = |(id, token): &&(u32, AddedToken)| {
            !token.content.is_empty() && by_text.insert(&token.content, *id)
        };
        let ids = tokens.iter().filter(is_first).map(|(id, _)| *id).collect();
        let special = tokens.iter().filter(|(_, token)| token.special).map(|(id, _)| *id);
        let mut all = AddedVocabulary::new();
        let texts = tokens.iter().map(|(_, token)| token.clone());
        all.add_tokens(texts, &BPE::default(), normalizer)?;
        let mut literal = all.clone();
        literal.set_encode_special_tokens(true);
        Ok(Self { ids, special: special.collect(), by_text, all, literal })
    }

    /// The id of an added token.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.by_text.id(text)
    }

    /// Whether a token is special: no part of an answer's text.
    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// Cuts a text at its added tokens, or only at those that are not special, and normalizes what is between.
    pub(super) fn cut(
        &self,
        text: &str,
        normalizer: Option<&NormalizerWrapper>,
        is_literal: bool,
    ) -> PreTokenizedString {
        let finder = if is_literal { &self.literal } else { &self.all };
        finder.extract_and_normalize(normalizer, text)
    }

    /// The id of a token that [`AddedTokens::cut`] found.
    pub(super) fn found(&self, token: &Token) -> u32 {
        self.ids[token.id as usize]
    }
}
