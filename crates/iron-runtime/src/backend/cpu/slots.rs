//! Which units of a phase are still unclaimed.
//!
//! Each worker has one slot per dispatch of a phase: the units that nobody took yet of those that the worker starts
//! with. The owner takes from the front, thieves from the back, both by compare-and-swap. A slot carries the number of the phase that
//! it was last written in; an older number means that nothing was taken in this phase, so no slot is ever reset
//! between phases.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Phase numbers are below this.
pub(super) const PHASE_LIMIT: u32 = 1 << 24;

/// Slots per cache line pair; adjacent lines are fetched together, so workers are two lines apart.
const ROW_ALIGN: usize = 16;

#[repr(align(128))]
#[derive(Default)]
struct LinePair([AtomicU64; ROW_ALIGN]);

/// The slots of all workers.
pub(super) struct Slots {
    lines: Vec<LinePair>,
    lines_per_worker: usize,
}

/// What a slot holds in the current phase.
pub(super) enum Claim {
    /// Some units, now taken by the caller.
    Units(Range<u32>),
    /// Nothing.
    Empty,
    /// The phase is over.
    Over,
}

impl Slots {
    pub(super) fn new(workers: usize, per_worker: usize) -> Self {
        let lines_per_worker = per_worker.div_ceil(ROW_ALIGN).max(1);
        let lines = (0..workers * lines_per_worker).map(|_| LinePair::default()).collect();
        Self { lines, lines_per_worker }
    }

    /// Slots of one worker.
    pub(super) fn per_worker(&self) -> usize {
        self.lines_per_worker * ROW_ALIGN
    }

    #[inline]
    fn slot(&self, worker: usize, index: usize) -> &AtomicU64 {
        &self.lines[worker * self.lines_per_worker + index / ROW_ALIGN].0[index % ROW_ALIGN]
    }

    /// Whether nobody took any of a slot's units in this phase.
    pub(super) fn is_untouched(&self, worker: usize, index: usize, phase: u32) -> bool {
        self.slot(worker, index).load(Ordering::Relaxed) >> 40 < u64::from(phase)
    }

    /// Takes half of what is left from the front, but no fewer than `least`.
    #[inline]
    pub(super) fn claim(
        &self,
        worker: usize,
        index: usize,
        phase: u32,
        initial: &Range<u32>,
        least: u32,
    ) -> Claim {
        self.update(worker, index, phase, initial, |Range { start, end }| {
            let split = start + ((end - start) / 2).max(least).min(end - start);
            (start..split, split..end)
        })
    }

    /// Takes one part in `parts` of what is left from the back, but no fewer than `least`.
    pub(super) fn steal(
        &self,
        worker: usize,
        index: usize,
        phase: u32,
        initial: &Range<u32>,
        (parts, least): (u32, u32),
    ) -> Claim {
        self.update(worker, index, phase, initial, |Range { start, end }| {
            let split = end - ((end - start) / parts).max(least).min(end - start);
            (split..end, start..split)
        })
    }

    /// Replaces what is left by the second part of `divide`, and returns the first.
    ///
    /// Relaxed order is enough: the slot only decides who runs a unit. A swap by a thread that still thinks of an
    /// earlier phase fails, because that phase ended only after this slot was written in it.
    #[inline]
    fn update(
        &self,
        worker: usize,
        index: usize,
        phase: u32,
        initial: &Range<u32>,
        divide: impl Fn(Range<u32>) -> (Range<u32>, Range<u32>),
    ) -> Claim {
        let slot = self.slot(worker, index);
        let mut value = slot.load(Ordering::Relaxed);
        loop {
            let Some(units) = current(value, phase, initial) else { return Claim::Over };
            if units.is_empty() {
                return Claim::Empty;
            }
            let (taken, left) = divide(units);
            match slot.compare_exchange_weak(
                value,
                pack(phase, &left),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Claim::Units(taken),
                Err(found) => value = found,
            }
        }
    }
}

/// Phase in the upper 24 bits, then 20 bits each for the first unit left and the one past the last.
fn pack(phase: u32, left: &Range<u32>) -> u64 {
    u64::from(phase) << 40 | u64::from(left.start) << 20 | u64::from(left.end)
}

/// The units left in `phase`; `None` when the slot was already written in a later phase.
#[inline]
fn current(value: u64, phase: u32, initial: &Range<u32>) -> Option<Range<u32>> {
    let written = (value >> 40) as u32;
    match written.cmp(&phase) {
        std::cmp::Ordering::Less => Some(initial.clone()),
        std::cmp::Ordering::Equal => Some((value >> 20) as u32 & 0xf_ffff..value as u32 & 0xf_ffff),
        std::cmp::Ordering::Greater => None,
    }
}
