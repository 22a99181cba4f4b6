//! Bound dispatches, ready to run.

use std::ops::Range;

use crate::pipeline::Pipeline;
use crate::{Buffer, KernelDescriptor, ScheduleDescriptor};

/// The most units a dispatch is divided into; larger grids hand out several programs at once.
pub(crate) const MAX_UNITS: u32 = (1 << 20) - 1;

/// The most dispatches of one phase, so that its units fit 32 bits; a longer group gets a barrier.
const MAX_GROUP: u32 = 1 << 12;

/// A list of dispatches with their argument words and the buffers that these point into.
#[derive(Default)]
pub(crate) struct Commands {
    pub(crate) words: Vec<u64>,
    pub(crate) dispatches: Vec<Dispatch>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) buffers: Vec<Buffer>,
}

/// One kernel over one grid.
#[derive(Clone)]
pub(crate) struct Dispatch {
    pub(crate) kernel: &'static KernelDescriptor,
    pub(crate) schedule: &'static ScheduleDescriptor,
    pub(crate) pipeline: Pipeline,
    /// Where its argument words start and end.
    pub(crate) words: (u32, u32),
    pub(crate) grid: [u32; 3],
    pub(crate) split: Split,
}

/// How the programs of a dispatch are divided among the workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    /// Programs of the grid.
    pub(crate) programs: u32,
    /// Programs that are handed out together.
    pub(crate) unit: u32,
    /// Units of the whole dispatch.
    pub(crate) units: u32,
    /// Units that each worker starts with.
    per_worker: u32,
    /// Workers that start with one more.
    extra: u32,
    /// The worker that starts with the first units.
    first: u32,
}

impl Split {
    /// Divides `programs` among `workers`, of which `first` gets the first ones.
    pub(crate) fn new(programs: u32, workers: u32, first: u32) -> Self {
        let unit = programs.div_ceil(MAX_UNITS).max(1);
        let units = programs.div_ceil(unit);
        Self { programs, unit, units, per_worker: units / workers, extra: units % workers, first }
    }

    /// The units that `worker` starts with: contiguous, and in the order of the workers counted from the first.
    #[inline]
    pub(crate) fn units_of(&self, worker: u32, workers: u32) -> Range<u32> {
        let position =
            if worker >= self.first { worker - self.first } else { worker + workers - self.first };
        let start = position * self.per_worker + position.min(self.extra);
        start..start + self.per_worker + u32::from(position < self.extra)
    }

    /// The programs of some units.
    #[inline]
    pub(crate) fn programs_of(&self, units: Range<u32>) -> Range<u32> {
        // The product fits: `units * unit` exceeds `programs` by less than one unit.
        units.start * self.unit..self.programs.min(units.end.saturating_mul(self.unit))
    }

    /// The fewest units worth handing out alone: an eighth of a worker's share.
    #[inline]
    pub(crate) fn least_claim(&self) -> u32 {
        (self.per_worker / 8).max(1)
    }
}

/// Where a dispatch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// After everything before it.
    Barrier,
    /// After everything before it, as the first of a parallel group.
    Open,
    /// Beside the last dispatch.
    Join,
}

/// Dispatches with no barrier between them.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// First dispatch.
    pub(crate) first: u32,
    /// Number of dispatches.
    pub(crate) count: u32,
    /// Whether the dispatches have one program each and run one after another on one thread: a chain of small steps
    /// needs no barrier inside.
    pub(crate) serial: bool,
    /// Units of this phase and all before it; a serial phase has one.
    pub(crate) end: u64,
}

impl Phase {
    /// Number of dispatches whose units are claimed separately.
    #[inline]
    pub(crate) fn claims(&self) -> usize {
        if self.serial { 1 } else { self.count as usize }
    }

    /// A phase for one dispatch, after phases with `before` units.
    pub(crate) fn single(index: usize, units: u32, before: u64) -> Self {
        Self { first: index as u32, count: 1, serial: units == 1, end: before + u64::from(units) }
    }
}

impl Commands {
    /// Appends a dispatch.
    pub(crate) fn push(&mut self, dispatch: Dispatch, placement: Placement) {
        let units = dispatch.split.units;
        let index = self.dispatches.len();
        self.dispatches.push(dispatch);
        let before = self.phases.last().map_or(0, |phase| phase.end);
        match (placement, self.phases.last_mut()) {
            (Placement::Join, Some(phase)) if phase.count < MAX_GROUP => {
                phase.count += 1;
                phase.end += u64::from(units);
            }
            (Placement::Barrier, Some(phase)) if phase.serial && units == 1 => phase.count += 1,
            (Placement::Barrier, _) => self.phases.push(Phase::single(index, units, before)),
            (Placement::Open | Placement::Join, _) => {
                self.phases.push(Phase { serial: false, ..Phase::single(index, units, before) });
            }
        }
    }

    /// Forgets everything but the allocations.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.dispatches.clear();
        self.phases.clear();
        self.buffers.clear();
    }

    /// The argument words of a dispatch.
    #[inline]
    pub(crate) fn words_of(&self, dispatch: &Dispatch) -> &[u64] {
        &self.words[dispatch.words.0 as usize..dispatch.words.1 as usize]
    }
}

/// Marks writable buffers as in use by kernels until dropped.
pub(crate) struct InUse<'a>(&'a [Buffer]);

impl<'a> InUse<'a> {
    pub(crate) fn new(buffers: &'a [Buffer]) -> Self {
        buffers.iter().for_each(Buffer::begin_run);
        Self(buffers)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Buffer::end_run);
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_UNITS, Split};

    #[test]
    fn the_shares_of_all_workers_are_the_whole_dispatch() {
        for workers in [1, 2, 3, 7, 64] {
            for programs in
                [1, 2, 5, 63, 100, 1001, MAX_UNITS, MAX_UNITS + 1, 123_456_789, u32::MAX]
            {
                for first in [0, workers / 2, workers - 1] {
                    let split = Split::new(programs, workers, first);
                    let mut next = 0;
                    for position in 0..workers {
                        let units = split.units_of((first + position) % workers, workers);
                        assert_eq!(units.start, next, "{split:?}");
                        next = units.end;
                    }
                    assert_eq!(next, split.units, "{split:?}");
                    assert!(next <= MAX_UNITS);
                    assert_eq!(split.programs_of(0..next), 0..programs);
                    assert!(!split.programs_of(next - 1..next).is_empty());
                }
            }
        }
    }
}
