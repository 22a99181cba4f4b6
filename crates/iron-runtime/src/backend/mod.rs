//! What differs between kinds of devices: building pipelines and running commands.

pub(crate) mod cpu;

use crate::commands::{Commands, Phase};
use crate::pipeline::Pipeline;
use crate::{Format, Result, ScheduleDescriptor, WeightLayout};

use cpu::CpuBackend;

/// A kind of device. Every match over it is exhaustive, so a new kind is added where the compiler points.
pub(crate) enum Backend {
    /// Worker threads of this process.
    Cpu(CpuBackend),
}

impl Backend {
    /// Independent workers that a dispatch is split over.
    pub(crate) fn workers(&self) -> usize {
        match self {
            Self::Cpu(cpu) => cpu.threads(),
        }
    }

    /// Makes a schedule's code ready to run.
    #[expect(clippy::unnecessary_wraps, reason = "devices with a driver fail to load code")]
    pub(crate) fn pipeline(&self, schedule: &ScheduleDescriptor) -> Result<Pipeline> {
        match self {
            Self::Cpu(cpu) => Ok(Pipeline::Cpu(cpu.entry(&schedule.cpu))),
        }
    }

    /// Whether this device's kernels read `format` weights in `layout`; else the name of the layout they need.
    #[inline]
    pub(crate) fn check_layout(
        &self,
        format: Format,
        layout: WeightLayout,
    ) -> std::result::Result<(), &'static str> {
        match (self, format.is_dense(), layout) {
            (Self::Cpu(_), true, WeightLayout::Dense { .. })
            | (Self::Cpu(_), false, WeightLayout::CpuPacked) => Ok(()),
            (Self::Cpu(_), true, _) => Err(WeightLayout::Dense { row_stride: 0 }.name()),
            (Self::Cpu(_), false, _) => Err(WeightLayout::CpuPacked.name()),
        }
    }

    /// Runs the phases in order and waits for the last.
    pub(crate) fn run(&self, commands: &Commands, phases: &[Phase]) -> Result<()> {
        match self {
            Self::Cpu(cpu) => cpu.run(commands, phases),
        }
    }
}
