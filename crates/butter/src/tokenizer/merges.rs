//! Which tokens are joined, and which first.

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::Path;
use std::thread;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::TokenizerError;
use super::vocabulary::Vocabulary;

/// The rules of byte-pair encoding.
pub(super) enum Merges {
    /// Those of a list, in its order.
    Listed(PairTable),
    /// Sentencepiece's: any two tokens whose joined text is a token, the best score first.
    Scored(Scores),
}

/// The place of a merge in the order of merges: the least is done first.
///
/// Of equal scores, the one with the longer left part goes first, then the one with the longer right part, then the one
/// of the lower id. That is the order in which Hugging Face lists merges of a sentencepiece vocabulary (`generate_merges`
/// in transformers), so the ids are those of a model's own `tokenizer.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Priority {
    rank: u32,
    left: Reverse<u32>,
    right: Reverse<u32>,
    id: u32,
}

/// Merges by the ids of their parts.
pub(super) struct PairTable {
    pairs: HashTable<Pair>,
    hasher: DefaultHashBuilder,
}

/// A merge of a list.
#[derive(Clone, Copy)]
struct Pair {
    left: u32,
    right: u32,
    /// The token that they become.
    joined: u32,
    /// Place in the list.
    rank: u32,
}

/// The scores of a sentencepiece vocabulary, as ranks by id.
pub(super) struct Scores(Vec<u32>);

/// A merge with a part, or a result, that is no token.
#[derive(Debug)]
pub(super) struct UnknownPart {
    left: String,
    right: String,
}

impl UnknownPart {
    pub(super) fn in_file(self, path: &Path) -> TokenizerError {
        let expected = "merges whose parts and result are in the vocabulary";
        let found = format!("`{}` + `{}`", self.left, self.right);
        TokenizerError::malformed(path, expected, found)
    }
}

impl PairTable {
    /// The table of a list of `count` merges, of which `parts` gives the texts.
    ///
    /// A few threads look them up: half a million merges are three times as many look-ups, most of this crate's time to
    /// load Gemma's tokenizer.
    pub(super) fn new<'a>(
        vocabulary: &Vocabulary,
        count: usize,
        parts: impl Fn(usize) -> (&'a str, &'a str) + Sync,
    ) -> Result<Self, UnknownPart> {
        const LEAST: usize = 1 << 15;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
        let length = count.div_ceil(threads).max(LEAST);
        let parts = &parts;
        let found: Vec<_> = thread::scope(|scope| {
            let chunks = (0..count).step_by(length).map(|first| first..count.min(first + length));
            let workers: Vec<_> = chunks
                .map(|chunk| scope.spawn(move || look_up(vocabulary, chunk, parts)))
                .collect();
            workers.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let mut table =
            Self { pairs: HashTable::with_capacity(count), hasher: DefaultHashBuilder::default() };
        for pairs in found {
            let pairs = pairs.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            pairs?.into_iter().for_each(|pair| table.insert(pair));
        }
        Ok(table)
    }

    /// Adds a merge; of two with the same parts the later counts.
    fn insert(&mut self, pair: Pair) {
        let Self { pairs, hasher } = self;
        let key = (pair.left, pair.right);
        let entry = pairs.entry(
            hasher.hash_one(key),
            |other| (other.left, other.right) == key,
            |other| hasher.hash_one((other.left, other.right)),
        );
        match entry {
            Entry::Occupied(mut known) => *known.get_mut() = pair,
            Entry::Vacant(free) => drop(free.insert(pair)),
        }
    }

    /// The token that two become, with its place.
    pub(super) fn find(&self, left: u32, right: u32) -> Option<(Priority, u32)> {
        let hash = self.hasher.hash_one((left, right));
        let pair = self.pairs.find(hash, |pair| pair.left == left && pair.right == right)?;
        let Pair { joined, rank, .. } = *pair;
        Some((Priority { rank, left: Reverse(0), right: Reverse(0), id: 0 }, joined))
    }
}

/// The ids of some merges of a list.
fn look_up<'a>(
    vocabulary: &Vocabulary,
    ranks: Range<usize>,
    parts: impl Fn(usize) -> (&'a str, &'a str),
) -> Result<Vec<Pair>, UnknownPart> {
    let mut text = String::new();
    ranks
        .map(|rank| {
            let (left, right) = parts(rank);
            text.clear();
            text.push_str(left);
            text.push_str(right);
            let unknown = || UnknownPart { left: left.to_owned(), right: right.to_owned() };
            let id = |text: &str| vocabulary.id(text).ok_or_else(unknown);
            Ok(Pair { left: id(left)?, right: id(right)?, joined: id(&text)?, rank: rank as u32 })
        })
        .collect()
}

impl Scores {
    /// Scores by id; `None` when one is not a number.
    pub(super) fn new(scores: impl Iterator<Item = f32>) -> Option<Self> {
        let rank = |score: f32| {
            // Adding zero makes one of the two zeros. The bits then order positive numbers, and negative ones the other way.
            let bits = (score + 0.0).to_bits();
            let ascending = if score < 0.0 { !bits } else { bits | 1 << 31 };
            (!score.is_nan()).then_some(!ascending)
        };
        scores.map(rank).collect::<Option<_>>().map(Self)
    }

    /// The token that `text` is, with its place when it is joined from two parts, the left one of `middle` bytes.
    pub(super) fn find(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        middle: usize,
    ) -> Option<(Priority, u32)> {
        let id = vocabulary.id(text)?;
        let characters = |text: &str| Reverse(text.chars().count() as u32);
        let (left, right) = (characters(&text[..middle]), characters(&text[middle..]));
        let rank = self.0.get(id as usize).copied()?;
        Some((Priority { rank, left, right, id }, id))
    }
}
