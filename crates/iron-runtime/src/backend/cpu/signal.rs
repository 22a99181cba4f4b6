//! A word that threads wait on: first spinning, then yielding, then parked.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Polls before the clock is first read, which covers the usual wait at the end of a dispatch.
const POLLS_BEFORE_CLOCK: u32 = 128;

/// Polls between readings of the clock.
const POLLS_PER_CLOCK: u32 = 32;

/// Times a thread offers its processor to others before it parks.
const YIELDS: u32 = 4;

/// A published word. Values must differ from one publication to the next.
pub(super) struct Signal {
    word: AtomicU32,
    parked: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
    spin: Duration,
}

impl Signal {
    /// A signal whose waiters spin for about `spin` before they leave the processor.
    pub(super) fn new(value: u32, spin: Duration) -> Self {
        Self {
            word: AtomicU32::new(value),
            parked: AtomicU32::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
            spin,
        }
    }

    /// The current value. Sequentially consistent, so it can be paired with a flag of the reader's own.
    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    /// Sets the value and wakes whoever is parked.
    #[inline]
    pub(super) fn publish(&self, value: u32) {
        self.word.store(value, Ordering::SeqCst);
        // Either this load sees the waiter's increment, or the waiter's next load of the word sees the store.
        if self.parked.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // A waiter holds the lock from its last look at the word until it sleeps.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until the value differs from `seen`, and returns it.
    #[inline]
    pub(super) fn wait(&self, seen: u32) -> u32 {
        for _ in 0..POLLS_BEFORE_CLOCK {
            let value = self.word.load(Ordering::Acquire);
            if value != seen {
                return value;
            }
            spin_loop();
        }
        self.wait_longer(seen)
    }

    #[cold]
    fn wait_longer(&self, seen: u32) -> u32 {
        let start = Instant::now();
        while start.elapsed() < self.spin {
            for _ in 0..POLLS_PER_CLOCK {
                let value = self.word.load(Ordering::Acquire);
                if value != seen {
                    return value;
                }
                spin_loop();
            }
        }
        for _ in 0..YIELDS {
            thread::yield_now();
            let value = self.word.load(Ordering::Acquire);
            if value != seen {
                return value;
            }
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.parked.fetch_add(1, Ordering::SeqCst);
        let value = loop {
            let value = self.word.load(Ordering::SeqCst);
            if value != seen {
                break value;
            }
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.parked.fetch_sub(1, Ordering::SeqCst);
        value
    }
}
