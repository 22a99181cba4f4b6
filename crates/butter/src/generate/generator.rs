//! One answer, token by token.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::chunk::{Chunk, FinishReason, Stats};
use super::options::{ContextPolicy, Draw, GenerateOptions};
use super::sequence::HeldSequence;
use super::stop::StopMatcher;
use super::stream::GeneratorStream;
use crate::Error;
use crate::batch::{Run, WantedLogits};
use crate::cache::CacheError;
use crate::model::Inner;
use crate::tokenizer::DecodeStream;

/// Tokens of a prompt that are computed at once. A cancelled prompt ends after such a chunk.
pub(crate) const PREFILL_CHUNK: usize = 512;

/// An answer that is generated as it is read. Dropping it ends the generation.
///
/// After an error, or the chunk with a finish reason, there is nothing more.
#[derive(Debug)]
pub struct Generator {
    model: Arc<Inner>,
    options: GenerateOptions,
    /// `None` once it has gone back to its session.
    sequence: Option<HeldSequence>,
    /// Where the sequence goes at the end.
    home: Option<SequenceHome>,
    /// Tokens that are not in the cache yet.
    pending: Vec<u32>,
    decoder: Option<DecodeStream>,
    stops: StopMatcher,
    seed: u64,
    stats: Stats,
    clock: Instant,
    is_done: bool,
}

/// The place of a session's sequence while no answer is being generated.
pub(super) type SequenceHome = Arc<Mutex<Option<HeldSequence>>>;

/// What one step of work brought.
pub(super) enum Step {
    /// A part of the prompt was computed.
    Prefilled,
    /// A piece of the answer.
    Chunk(Chunk),
    /// The answer had already ended.
    Done,
}

impl Generator {
    pub(crate) fn new(
        model: Arc<Inner>,
        prompt: &[u32],
        options: GenerateOptions,
        mut sequence: HeldSequence,
        home: Option<SequenceHome>,
    ) -> Result<Self, Error> {
        // The clock starts before the sequence is cut: that is part of the answer's cost.
        let clock = Instant::now();
        let prepared = model.check_prompt(prompt).and_then(|()| Ok(options.validate()?));
        let prepared = prepared.and_then(|()| {
            let context = model.context_length;
            if prompt.len() > context {
                return Err(
                    CacheError::ContextFull { context, held: 0, asked: prompt.len() }.into()
                );
            }
            sequence.keep_prefix(prompt)
        });
        let cached_tokens = match prepared {
            Ok(cached_tokens) => cached_tokens,
            Err(error) => {
                put_back(home.as_ref(), sequence);
                return Err(error);
            }
        };
        Ok(Self {
            decoder: model.tokenizer.as_ref().map(|tokenizer| tokenizer.decode_stream(true)),
            stops: StopMatcher::new(options.stop.clone()),
            seed: options.sampling.seed.unwrap_or_else(random_seed),
            pending: prompt[cached_tokens..].to_vec(),
            stats: Stats { prompt_tokens: prompt.len(), cached_tokens, ..Stats::default() },
            model,
            options,
            sequence: Some(sequence),
            home,
            clock,
            is_done: false,
        })
    }

    /// What the answer has cost so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The seed of the random numbers: the one given, or the one that was drawn.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The whole answer's text.
    pub fn text(self) -> Result<String, Error> {
        self.map(|chunk| chunk.map(|chunk| chunk.text)).collect()
    }

    /// The answer as a [`futures_core::Stream`].
    pub fn into_stream(self) -> GeneratorStream {
        GeneratorStream::new(self)
    }

    /// Does a bounded amount of work: a chunk of the prompt, or a token.
    pub(super) fn step(&mut self) -> Result<Step, Error> {
        if self.is_done {
            return Ok(Step::Done);
        }
        if self.options.cancel.is_cancelled() {
            return Ok(Step::Chunk(self.end(FinishReason::Cancelled, String::new(), Vec::new())));
        }
        let result = if self.pending.len() > PREFILL_CHUNK {
            self.prefill_chunk().map(|()| Step::Prefilled)
        } else {
            self.next_token().map(|token| Step::Chunk(self.take(token)))
        };
        let result = match result {
            Err(Error::Cache(CacheError::ContextFull { .. }))
                if self.options.context_policy == ContextPolicy::Stop =>
            {
                Ok(Step::Chunk(self.end(FinishReason::ContextFull, String::new(), Vec::new())))
            }
            result => result,
        };
        if result.is_err() {
            self.finish_up();
        }
        result
    }

    fn prefill_chunk(&mut self) -> Result<(), Error> {
        let Some(sequence) = &mut self.sequence else { return Ok(()) };
        let chunk: Vec<u32> = self.pending.drain(..PREFILL_CHUNK).collect();
        let id = sequence.id;
        sequence.extend(&chunk, |executor, start| {
            let mut batch = executor.batch();
            batch.push(&Run::tokens(id, start, &chunk))?;
            executor.prefill(&batch)
        })
    }

    /// Computes what is pending and draws the next token, which is pending then.
    fn next_token(&mut self) -> Result<u32, Error> {
        let Some(sequence) = &mut self.sequence else { return Err(Error::SessionBusy) };
        let number = self.stats.generated_tokens as u32;
        let draw = Draw { sampling: self.options.sampling, seed: self.seed, number };
        let (id, pending) = (sequence.id, &self.pending);
        let drawn = sequence.extend(pending, |executor, start| {
            let mut batch = executor.batch();
            batch.push(&Run::tokens(id, start, pending).with_logits(WantedLogits::Last))?;
            executor.sample(&batch, &[draw])
        })?;
        let token = drawn[0];
        self.pending = vec![token];
        Ok(token)
    }

    /// Turns a drawn token into a chunk.
    fn take(&mut self, token: u32) -> Chunk {
        let now = self.clock.elapsed();
        if self.stats.generated_tokens == 0 {
            self.stats.prefill_time = now;
        } else {
            self.stats.decode_time = now.saturating_sub(self.stats.prefill_time);
        }
        self.stats.generated_tokens += 1;
        if !self.options.ignore_eos && self.model.ends_turn(token) {
            return self.end(FinishReason::EndOfTurn, String::new(), Vec::new());
        }
        let piece = self.decoder.as_mut().map(|decoder| decoder.push(token)).unwrap_or_default();
        let (text, is_stopped) = self.stops.push(&piece);
        if is_stopped {
            let mut chunk = self.end(FinishReason::StopString, String::new(), vec![token]);
            chunk.text = text;
            return chunk;
        }
        if self.options.max_tokens.is_some_and(|most| self.stats.generated_tokens >= most) {
            return self.end(FinishReason::MaxTokens, text, vec![token]);
        }
        Chunk { text, tokens: vec![token], finish_reason: None, stats: self.stats }
    }

    /// The last chunk, with all text that was held back.
    fn end(&mut self, reason: FinishReason, mut text: String, tokens: Vec<u32>) -> Chunk {
        let rest = self.decoder.take().map(DecodeStream::finish).unwrap_or_default();
        let (more, is_stopped) = self.stops.push(&rest);
        text.push_str(&more);
        if !is_stopped {
            text.push_str(&self.stops.finish());
        }
        self.finish_up();
        Chunk { text, tokens, finish_reason: Some(reason), stats: self.stats }
    }

    fn finish_up(&mut self) {
        self.is_done = true;
        if let Some(sequence) = self.sequence.take() {
            put_back(self.home.as_ref(), sequence);
        }
    }
}

impl Iterator for Generator {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Ok(Step::Prefilled) => {}
                Ok(Step::Chunk(chunk)) => return Some(Ok(chunk)),
                Ok(Step::Done) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.finish_up();
    }
}

fn put_back(home: Option<&SequenceHome>, sequence: HeldSequence) {
    if let Some(home) = home {
        *home.lock().unwrap_or_else(PoisonError::into_inner) = Some(sequence);
    }
}

/// A seed that differs from run to run.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
