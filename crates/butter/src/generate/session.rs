//! Conversations that keep their cache.

use std::sync::{Arc, Mutex, PoisonError};

use super::generator::{Generator, SequenceHome};
use super::sequence::HeldSequence;
use super::{GenerateOptions, Prompt};
use crate::Error;
use crate::model::Inner;

/// A chat: each prompt may start with what the last one, and its answer, already brought into the cache.
///
/// Prompts are whole conversations; what they have in common with the cache is not computed again.
#[derive(Debug)]
pub struct Session {
    model: Arc<Inner>,
    home: SequenceHome,
}

impl Session {
    pub(crate) fn new(model: Arc<Inner>, sequence: HeldSequence) -> Self {
        Self { model, home: Arc::new(Mutex::new(Some(sequence))) }
    }

    /// Continues `prompt`.
    ///
    /// # Errors
    ///
    /// [`Error::SessionBusy`] while the generator of an earlier prompt lives and has not ended.
    pub fn generate(
        &self,
        prompt: impl Into<Prompt>,
        options: GenerateOptions,
    ) -> Result<Generator, Error> {
        let prompt = self.model.encode(prompt.into())?;
        let sequence = self.take()?;
        let home = Some(Arc::clone(&self.home));
        Generator::new(Arc::clone(&self.model), &prompt, options, sequence, home)
    }

    /// A session with the same history, which shares its pages.
    pub fn fork(&self) -> Result<Self, Error> {
        let sequence = self.take()?;
        let fork = sequence.fork();
        *self.lock() = Some(sequence);
        Ok(Self::new(Arc::clone(&self.model), fork?))
    }

    /// The tokens in the cache; none while an answer is generated.
    pub fn cached_tokens(&self) -> usize {
        self.lock().as_ref().map_or(0, |sequence| sequence.tokens().len())
    }

    fn take(&self) -> Result<HeldSequence, Error> {
        self.lock().take().ok_or(Error::SessionBusy)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<HeldSequence>> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
