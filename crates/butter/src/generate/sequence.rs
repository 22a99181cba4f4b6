//! A sequence of the cache, and the tokens that are in it.

use std::sync::Arc;

use crate::Error;
use crate::cache::SequenceId;
use crate::executor::Executor;
use crate::model::Inner;

/// A sequence that is released when dropped.
#[derive(Debug)]
pub(crate) struct HeldSequence {
    model: Arc<Inner>,
    pub(crate) id: SequenceId,
    /// The tokens whose keys and values are in the cache.
    tokens: Vec<u32>,
}

impl HeldSequence {
    /// An empty sequence.
    pub(crate) fn new(model: &Arc<Inner>) -> Result<Self, Error> {
        let id = model.executor().cache_mut().create()?;
        Ok(Self { model: Arc::clone(model), id, tokens: Vec::new() })
    }

    /// A sequence with the same tokens, sharing their pages.
    pub(crate) fn fork(&self) -> Result<Self, Error> {
        let id = self.model.executor().cache_mut().fork(self.id)?;
        Ok(Self { model: Arc::clone(&self.model), id, tokens: self.tokens.clone() })
    }

    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Cuts the sequence to what it has in common with `prompt`, but leaves at least one token of that to compute;
    /// returns how many are left.
    pub(crate) fn keep_prefix(&mut self, prompt: &[u32]) -> Result<usize, Error> {
        let common = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let kept = common.min(prompt.len().saturating_sub(1));
        self.model.executor().cache_mut().truncate(self.id, kept)?;
        self.tokens.truncate(kept);
        Ok(kept)
    }

    /// Makes room for `tokens`, lets `compute` run them from the given position on, and takes the room back on an error.
    pub(crate) fn extend<R>(
        &mut self,
        tokens: &[u32],
        compute: impl FnOnce(&mut Executor, usize) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut executor = self.model.executor();
        let start = executor.cache_mut().append(self.id, tokens.len())?;
        let result = compute(&mut executor, start);
        match result {
            Ok(_) => self.tokens.extend(tokens),
            Err(_) => executor.cache_mut().truncate(self.id, start)?,
        }
        result
    }
}

impl Drop for HeldSequence {
    fn drop(&mut self) {
        // It is live: nobody else has the id.
        let _ = self.model.executor().cache_mut().release(self.id);
    }
}
