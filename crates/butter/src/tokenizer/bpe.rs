//! Byte-pair encoding ([Sennrich et al. 2016](https://arxiv.org/abs/1508.07909)).
//!
//! Reference: `models/bpe` of Hugging Face's `tokenizers`, which everything else around here is from. Its model is not used
//! because of its load time: it takes Gemma's 262,144 tokens and 514,906 merges as strings and turns them into maps of
//! strings, for 0.62 s after they have been parsed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::merges::{Merges, Priority};
use super::vocabulary::Vocabulary;

/// A vocabulary with its rules.
pub(super) struct Bpe {
    pub(super) vocabulary: Vocabulary,
    pub(super) merges: Merges,
    /// The tokens of single bytes, for characters that are no tokens: sentencepiece's byte fallback.
    pub(super) byte_tokens: Option<Box<[Option<u32>; 256]>>,
    /// What stands for a character that is no token; without it the character is left out.
    pub(super) unknown: Option<u32>,
    /// Whether unknown characters behind one another are one token.
    pub(super) fuse_unknown: bool,
    /// Whether a piece that is a token is taken without merging.
    pub(super) ignore_merges: bool,
}

/// What encoding needs while it runs, kept from piece to piece.
#[derive(Default)]
pub(super) struct Workspace {
    symbols: Vec<Symbol>,
    candidates: Vec<Reverse<Candidate>>,
}

/// A part of the piece that is one token so far. Parts are a list: each knows its neighbours.
#[derive(Clone, Copy)]
struct Symbol {
    token: u32,
    /// Bytes of the piece; none when it was joined to the part before.
    start: u32,
    end: u32,
    previous: u32,
    next: u32,
    /// Whether it is the token of its text, and not of a byte or an unknown character.
    is_text: bool,
}

const NONE: u32 = u32::MAX;

/// Two neighbours that can be joined; the first is done first, of equal ones the left one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    priority: Priority,
    left: u32,
    joined: u32,
    /// Where the left part ended, and the right one, when this was found.
    middle: u32,
    end: u32,
}

impl Bpe {
    /// The tokens of single bytes in a vocabulary, which writes them `<0x00>` to `<0xFF>`.
    pub(super) fn byte_tokens(vocabulary: &Vocabulary) -> Option<Box<[Option<u32>; 256]>> {
        let ids = (0..=u8::MAX).map(|byte| vocabulary.id(&format!("<0x{byte:02X}>")));
        ids.collect::<Box<[_]>>().try_into().ok()
    }

    /// Appends the tokens of a piece of text, of less than 4 GiB.
    pub(super) fn encode(&self, piece: &str, workspace: &mut Workspace, ids: &mut Vec<u32>) {
        if self.ignore_merges
            && let Some(id) = self.vocabulary.id(piece)
        {
            ids.push(id);
            return;
        }
        let Workspace { symbols, candidates } = workspace;
        symbols.clear();
        candidates.clear();
        self.split(piece, symbols);
        for left in 1..symbols.len() {
            candidates.extend(self.candidate(piece, symbols, left as u32 - 1));
        }
        let mut queue = BinaryHeap::from(std::mem::take(candidates));
        while let Some(Reverse(candidate)) = queue.pop() {
            if join(symbols, candidate) {
                let previous = symbols[candidate.left as usize].previous;
                queue.extend(self.candidate(piece, symbols, candidate.left));
                queue.extend(self.candidate(piece, symbols, previous));
            }
        }
        *candidates = queue.into_vec();
        ids.extend(symbols.iter().filter(|symbol| symbol.end > symbol.start).map(|s| s.token));
    }

    /// The characters as tokens.
    fn split(&self, piece: &str, symbols: &mut Vec<Symbol>) {
        let mut last_is_unknown = false;
        for (start, character) in piece.char_indices() {
            let end = start + character.len_utf8();
            if let Some(id) = self.vocabulary.id(&piece[start..end]) {
                push(symbols, id, start, end, true);
                last_is_unknown = false;
            } else if let Some(bytes) = self.bytes(&piece[start..end]) {
                for (at, id) in (start..end).zip(bytes) {
                    push(symbols, id, at, at + 1, false);
                }
                last_is_unknown = false;
            } else if let Some(unknown) = self.unknown {
                match symbols.last_mut().filter(|_| self.fuse_unknown && last_is_unknown) {
                    Some(last) => last.end = end as u32,
                    None => push(symbols, unknown, start, end, false),
                }
                last_is_unknown = true;
            }
        }
    }

    /// The tokens of a character's bytes, if all are tokens.
    fn bytes(&self, character: &str) -> Option<impl Iterator<Item = u32>> {
        let tokens = self.byte_tokens.as_ref()?;
        let ids = character.bytes().map(|byte| tokens[usize::from(byte)]);
        ids.clone().all(|id| id.is_some()).then(|| ids.flatten())
    }

    /// How the part `left` and its neighbour would be joined.
    fn candidate(&self, piece: &str, symbols: &[Symbol], left: u32) -> Option<Reverse<Candidate>> {
        let first = symbols.get(left as usize)?;
        let second = symbols.get(first.next as usize)?;
        let (priority, joined) = match &self.merges {
            Merges::Listed(pairs) => pairs.find(first.token, second.token)?,
            Merges::Scored(scores)
                if first.is_text && second.is_text && first.end == second.start =>
            {
                let text = &piece[first.start as usize..second.end as usize];
                scores.find(&self.vocabulary, text, (first.end - first.start) as usize)?
            }
            Merges::Scored(_) => return None,
        };
        Some(Reverse(Candidate { priority, left, joined, middle: first.end, end: second.end }))
    }
}

fn push(symbols: &mut Vec<Symbol>, token: u32, start: usize, end: usize, is_text: bool) {
    let at = symbols.len() as u32;
    let previous = at.checked_sub(1).unwrap_or(NONE);
    if let Some(last) = symbols.last_mut() {
        last.next = at;
    }
    let (start, end) = (start as u32, end as u32);
    symbols.push(Symbol { token, start, end, previous, next: NONE, is_text });
}

/// Joins two parts; `false` when one of them has changed since they were found.
fn join(symbols: &mut [Symbol], candidate: Candidate) -> bool {
    let first = symbols[candidate.left as usize];
    let is_gone = first.end == first.start;
    let Some(second) = symbols.get(first.next as usize).copied() else { return false };
    if is_gone || (first.end, second.end) != (candidate.middle, candidate.end) {
        return false;
    }
    let removed = &mut symbols[first.next as usize];
    removed.end = removed.start;
    if let Some(third) = symbols.get_mut(second.next as usize) {
        third.previous = candidate.left;
    }
    let joined = &mut symbols[candidate.left as usize];
    *joined = Symbol { token: candidate.joined, end: second.end, next: second.next, ..first };
    true
}
