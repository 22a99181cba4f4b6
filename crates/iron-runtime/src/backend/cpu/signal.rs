//! A counter that threads wait on: first spinning, then yielding, then parked.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Polls before the clock is first read.
const POLLS_BEFORE_CLOCK: u32 = 64;

/// Polls between readings of the clock.
const POLLS_PER_CLOCK: u32 = 32;

/// Times a thread offers its processor to others before it parks.
const YIELDS: u32 = 4;

/// A counter that threads wait on.
pub(super) struct Signal {
    word: AtomicU64,
    parked: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
    spin: Duration,
}

impl Signal {
    /// A signal whose waiters spin for about `spin` before they leave the processor.
    pub(super) fn new(value: u64, spin: Duration) -> Self {
        Self {
            word: AtomicU64::new(value),
            parked: AtomicU32::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
            spin,
        }
    }

    /// The current value. Sequentially consistent, so it can be paired with a flag of the reader's own; and who sees a
    /// value also sees what was written before it was set or subtracted to.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.word.load(Ordering::SeqCst)
    }

    /// Sets the value and wakes whoever is parked.
    #[inline]
    pub(super) fn publish(&self, value: u64) {
        self.word.store(value, Ordering::SeqCst);
        self.wake();
    }

    /// Subtracts, and returns the new value; wakes nobody.
    #[inline]
    pub(super) fn subtract(&self, amount: u64) -> u64 {
        self.word.fetch_sub(amount, Ordering::SeqCst) - amount
    }

    /// Wakes whoever is parked, after the value became one that they wait for.
    #[inline]
    pub(super) fn wake(&self) {
        // Either this load sees the waiter's increment, or the waiter's next load of the word sees the new value.
        if self.parked.load(Ordering::SeqCst) > 0 {
            self.wake_parked();
        }
    }

    #[cold]
    fn wake_parked(&self) {
        // A waiter holds the lock from its last look at the word until it sleeps.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Polls `polls` times for a value that is `ready`, and returns it.
    #[inline]
    pub(super) fn wait_briefly(&self, polls: u32, ready: impl Fn(u64) -> bool) -> Option<u64> {
        for _ in 0..polls {
            let value = self.get();
            if ready(value) {
                return Some(value);
            }
            spin_loop();
        }
        None
    }

    /// Waits until the value is `ready`, and returns it.
    #[inline]
    pub(super) fn wait(&self, ready: impl Fn(u64) -> bool) -> u64 {
        match self.wait_briefly(POLLS_BEFORE_CLOCK, &ready) {
            Some(value) => value,
            None => self.wait_longer(ready),
        }
    }

    #[cold]
    fn wait_longer(&self, ready: impl Fn(u64) -> bool) -> u64 {
        let start = Instant::now();
        while start.elapsed() < self.spin {
            for _ in 0..POLLS_PER_CLOCK {
                let value = self.get();
                if ready(value) {
                    return value;
                }
                spin_loop();
            }
        }
        for _ in 0..YIELDS {
            thread::yield_now();
            let value = self.get();
            if ready(value) {
                return value;
            }
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.parked.fetch_add(1, Ordering::SeqCst);
        let value = loop {
            let value = self.get();
            if ready(value) {
                break value;
            }
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.parked.fetch_sub(1, Ordering::SeqCst);
        value
    }
}
