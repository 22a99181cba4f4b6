//! What can go wrong with a cache.

use super::SequenceId;

/// Why a sequence could not be grown, forked or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The sequence would be longer than the context.
    #[error(
        "the context of {context} tokens is full: {held} are held and {asked} more were asked for; shorten the prompt, \
         start a new session, or load the model with a longer context"
    )]
    ContextFull {
        /// Positions of the context.
        context: usize,
        /// Positions held.
        held: usize,
        /// Positions asked for beyond these.
        asked: usize,
    },
    /// All pages are in use by sequences.
    #[error(
        "the cache has {available} free pages of {capacity}, but {asked} are needed; end other sequences, or load the \
         model with a larger cache"
    )]
    PoolExhausted {
        /// Pages needed.
        asked: usize,
        /// Pages free.
        available: usize,
        /// Pages of the pool.
        capacity: usize,
    },
    /// There are as many sequences as the cache was made for.
    #[error(
        "all {limit} sequences of the cache are in use; end one, or load the model for more sequences at once"
    )]
    TooManySequences {
        /// The number that the cache was made for.
        limit: usize,
    },
    /// The sequence was released, or belongs to another cache.
    #[error("{0:?} is no live sequence of this cache; it was released")]
    UnknownSequence(SequenceId),
    /// More was to be cut off than there is.
    #[error("a sequence of {held} tokens cannot be truncated to {asked}")]
    TruncateBeyondEnd {
        /// Positions held.
        held: usize,
        /// The length asked for.
        asked: usize,
    },
}
