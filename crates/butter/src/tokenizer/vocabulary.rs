//! The texts of tokens.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Texts and their ids: one buffer, and one table into it. A vocabulary of 262,144 tokens is read at every start, and a
/// string of its own for each would take longer than all the rest.
#[derive(Default)]
pub(super) struct Vocabulary {
    texts: String,
    tokens: HashTable<Token>,
    hasher: DefaultHashBuilder,
}

#[derive(Clone, Copy)]
struct Token {
    start: u32,
    end: u32,
    id: u32,
}

/// The most bytes that the texts of a vocabulary may have; real ones have three million.
pub(super) const MOST_BYTES: usize = 256 << 20;

impl Vocabulary {
    /// An empty vocabulary with room for `tokens` tokens of `bytes` bytes together.
    pub(super) fn with_capacity(tokens: usize, bytes: usize) -> Self {
        Self {
            texts: String::with_capacity(bytes),
            tokens: HashTable::with_capacity(tokens),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Adds a token; `false`, and nothing changes, when its text is there already or the vocabulary is full
    /// ([`MOST_BYTES`]).
    pub(super) fn insert(&mut self, text: &str, id: u32) -> bool {
        let (start, end) = (self.texts.len(), self.texts.len() + text.len());
        if end > MOST_BYTES || self.id(text).is_some() {
            return false;
        }
        self.texts.push_str(text);
        let Self { texts, tokens, hasher } = self;
        let token = Token { start: start as u32, end: end as u32, id };
        let rehash = |token: &Token| hasher.hash_one(token.text(texts));
        tokens.insert_unique(hasher.hash_one(text), token, rehash);
        true
    }

    /// The id of a text.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        self.tokens.find(hash, |token| token.text(&self.texts) == text).map(|token| token.id)
    }

    /// All texts with their ids, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u32)> + Clone {
        self.tokens.iter().map(|token| (token.text(&self.texts), token.id))
    }
}

impl Token {
    fn text(self, texts: &str) -> &str {
        &texts[self.start as usize..self.end as usize]
    }
}
