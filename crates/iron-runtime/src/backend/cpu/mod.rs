//! The CPU: persistent threads that run compiled kernels.

mod pool;
mod signal;
mod slots;
mod topology;

use crate::commands::{Commands, Phase};
use crate::{CpuEntries, CpuKernel, IsaLevel, Result, RuntimeError};

use pool::Pool;

pub use topology::AvailableCpu;

/// The most threads of one device.
const MAX_THREADS: usize = 1024;

/// How to use the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads, the calling one included. By default one per physical core that this process may use: the cores in its
    /// affinity mask (two siblings of one core count once, where `/sys` shows them), but no more than the CPU quota of
    /// its cgroup, rounded up.
    pub threads: Option<usize>,
    /// Instruction set of the kernels; by default the best that the processor has.
    pub isa: Option<IsaLevel>,
}

pub(crate) struct CpuBackend {
    isa: IsaLevel,
    pool: Pool,
}

impl CpuBackend {
    pub(crate) fn new(options: CpuOptions) -> Result<Self> {
        let detected = IsaLevel::detect();
        let isa = options.isa.unwrap_or(detected);
        if isa > detected {
            return Err(RuntimeError::UnsupportedIsa { requested: isa, detected });
        }
        let available = AvailableCpu::detect();
        let threads = options.threads.unwrap_or_else(|| available.default_threads());
        if threads == 0 || threads > MAX_THREADS {
            return Err(RuntimeError::ThreadCount { requested: threads, limit: MAX_THREADS });
        }
        Ok(Self { isa, pool: Pool::new(threads, threads > available.logical)? })
    }

    pub(crate) fn isa(&self) -> IsaLevel {
        self.isa
    }

    pub(crate) fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The best version that the device's instruction set runs.
    pub(crate) fn entry(&self, entries: &CpuEntries) -> CpuKernel {
        entries.select(self.isa)
    }

    pub(crate) fn run(&self, commands: &Commands, phases: &[Phase]) -> Result<()> {
        self.pool.run(commands, phases)
    }
}
