//! Forward passes over given tokens, for commands that look at logits.

use butter::Model;
use butter::batch::{Run, WantedLogits};
use butter::cache::SequenceId;

use crate::output::Failure;

/// Rows of logits that are held at once: a large vocabulary's take a megabyte each.
const ROWS: usize = 64;

/// Computes `tokens` as one sequence, and calls `each` with the logits after each of them from position `first` on.
pub(crate) fn each_logits(
    model: &Model,
    tokens: &[u32],
    first: usize,
    mut each: impl FnMut(&[f32]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    check(model, tokens)?;
    let vocab_size = model.config().vocab_size;
    with_sequence(model, |id| {
        let (unseen, seen) = tokens.split_at(first.min(tokens.len()));
        prefill(model, id, unseen)?;
        for chunk in seen.chunks(ROWS) {
            let mut executor = model.executor();
            let start = executor.cache_mut().append(id, chunk.len())?;
            let mut batch = executor.batch();
            batch.push(&Run::tokens(id, start, chunk).with_logits(WantedLogits::All))?;
            executor.logits(&batch)?.chunks_exact(vocab_size).try_for_each(&mut each)?;
        }
        Ok(())
    })
}

/// Brings tokens into the cache.
pub(crate) fn prefill(model: &Model, id: SequenceId, tokens: &[u32]) -> Result<(), Failure> {
    let mut executor = model.executor();
    for chunk in tokens.chunks(executor.max_batch()) {
        let start = executor.cache_mut().append(id, chunk.len())?;
        let mut batch = executor.batch();
        batch.push(&Run::tokens(id, start, chunk))?;
        executor.prefill(&batch)?;
    }
    Ok(())
}

/// Lends an empty sequence.
pub(crate) fn with_sequence<R>(
    model: &Model,
    compute: impl FnOnce(SequenceId) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let id = model.executor().cache_mut().create()?;
    let result = compute(id);
    model.executor().cache_mut().release(id)?;
    result
}

/// Batches take any token, so strangers' tokens are checked here.
fn check(model: &Model, tokens: &[u32]) -> Result<(), Failure> {
    let vocab_size = model.config().vocab_size;
    if tokens.is_empty() {
        return Err(Failure::error("there are no tokens"));
    }
    match tokens.iter().find(|&&token| token as usize >= vocab_size) {
        Some(&token) => Err(butter::Error::TokenOutOfRange { token, vocab_size }.into()),
        None => Ok(()),
    }
}
