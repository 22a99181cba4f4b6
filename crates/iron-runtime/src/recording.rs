//! Replaying encoded calls.

use crate::command_buffer::{run, run_profiled};
use crate::commands::Commands;
use crate::{Device, DispatchTiming, Result};

/// A bound list of kernel calls that can run any number of times.
///
/// The calls use the addresses and sizes that they were encoded with; what changes between runs is read from memory.
pub struct Recording {
    device: Device,
    commands: Commands,
}

impl Recording {
    pub(crate) fn new(device: Device, mut commands: Commands) -> Self {
        commands.buffers.sort_unstable_by_key(crate::Buffer::id);
        commands.buffers.dedup_by(|a, b| a.same_as(b));
        Self { device, commands }
    }

    /// Runs every call and waits for the last.
    pub fn run(&self) -> Result<()> {
        run(&self.device, &self.commands)
    }

    /// Runs one call at a time, parallel groups included, and returns the time of each.
    pub fn run_profiled(&self) -> Result<Vec<DispatchTiming>> {
        run_profiled(&self.device, &self.commands)
    }

    /// Number of calls.
    pub fn len(&self) -> usize {
        self.commands.dispatches.len()
    }

    /// Whether there is no call.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of barriers that a run passes: consecutive calls of one program each, and parallel groups, share one.
    pub fn barriers(&self) -> usize {
        self.commands.phases.len()
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recording({} dispatches on {})", self.len(), self.device.name())
    }
}
