//! Generation for asynchronous programs.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::Chunk;
use super::generator::{Generator, Step};
use crate::Error;

/// A generator as a stream.
///
/// Each poll does one step of work (a chunk of the prompt, or a token) on the polling thread, and lets other tasks run
/// between steps; poll it where a few milliseconds of computation are welcome.
#[derive(Debug)]
pub struct GeneratorStream(Generator);

impl GeneratorStream {
    pub(super) fn new(generator: Generator) -> Self {
        Self(generator)
    }

    /// The generator.
    pub fn get_ref(&self) -> &Generator {
        &self.0
    }
}

impl Stream for GeneratorStream {
    type Item = Result<Chunk, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.step() {
            Ok(Step::Prefilled) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Step::Chunk(chunk)) => Poll::Ready(Some(Ok(chunk))),
            Ok(Step::Done) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}
