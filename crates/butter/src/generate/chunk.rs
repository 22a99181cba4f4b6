//! Pieces of an answer.

use std::time::Duration;

/// A piece of an answer: what one more token made certain.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// More text, possibly none: a character or a stop string may be unfinished.
    pub text: String,
    /// The tokens of this step, without the one that ended the answer.
    pub tokens: Vec<u32>,
    /// Why the answer ends; in the last chunk only.
    pub finish_reason: Option<FinishReason>,
    /// What the answer has cost so far.
    pub stats: Stats,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// The model ended it.
    EndOfTurn,
    /// A stop string was found.
    StopString,
    /// It has as many tokens as asked for.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// It was cancelled.
    Cancelled,
}

/// What an answer has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens that were in the cache already.
    pub cached_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// From the start to the first token.
    pub prefill_time: Duration,
    /// From the first token on.
    pub decode_time: Duration,
}

impl Stats {
    /// Prompt tokens that were computed, per second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens - self.cached_tokens, self.prefill_time)
    }

    /// Tokens after the first, per second.
    pub fn decode_rate(&self) -> f64 {
        rate(self.generated_tokens.saturating_sub(1), self.decode_time)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}
