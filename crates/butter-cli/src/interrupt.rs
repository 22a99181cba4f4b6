//! Ctrl-C: the first one ends what can be ended cleanly, the second one, or one at any other time, ends the program.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::output::{Failure, INTERRUPTED};

type Action = Box<dyn FnOnce() + Send>;

/// Who is told about Ctrl-C. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<Mutex<Option<Action>>>);

impl Interrupt {
    /// Takes over Ctrl-C from the system.
    pub(crate) fn install(&self) -> Result<(), Failure> {
        let this = self.clone();
        let handler = move || match this.take() {
            Some(action) => action(),
            None => std::process::exit(i32::from(INTERRUPTED)),
        };
        ctrlc::set_handler(handler)
            .map_err(|error| Failure::error(format!("cannot listen for Ctrl-C: {error}")))
    }

    /// Until the guard is dropped, the first Ctrl-C does `action` instead of ending the program.
    pub(crate) fn instead(&self, action: impl FnOnce() + Send + 'static) -> Watch<'_> {
        *self.lock() = Some(Box::new(action));
        Watch(self)
    }

    fn take(&self) -> Option<Action> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Action>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

/// See [`Interrupt::instead`].
#[must_use]
pub(crate) struct Watch<'a>(&'a Interrupt);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.take();
    }
}
