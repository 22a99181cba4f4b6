//! The processor that kernels run on.

use std::sync::Arc;

use crate::backend::{Backend, cpu::CpuBackend};
use crate::pipeline::PipelineCache;
use crate::{Buffer, CommandBuffer, CpuOptions, DType, IsaLevel, KernelDescriptor, Result, Tensor};

/// A processor with its worker threads and its pipelines; clones share them.
///
/// One command buffer runs at a time; `run` from several threads takes turns.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Backend,
    pipelines: PipelineCache,
}

impl Device {
    /// The CPU, with its own worker threads.
    ///
    /// # Errors
    ///
    /// When the instruction set asked for is not supported, or threads cannot be started.
    pub fn cpu(options: CpuOptions) -> Result<Self> {
        let backend = Backend::Cpu(CpuBackend::new(options)?);
        Ok(Self { inner: Arc::new(Inner { backend, pipelines: PipelineCache::default() }) })
    }

    /// What the device is, for people: `CPU (avx2, 4 threads)`.
    pub fn name(&self) -> String {
        match &self.inner.backend {
            Backend::Cpu(cpu) => format!("CPU ({}, {} threads)", cpu.isa(), cpu.threads()),
        }
    }

    /// Threads that run kernels, the calling one included.
    pub fn threads(&self) -> usize {
        self.inner.backend.workers()
    }

    /// Instruction set of the kernels that this device picks.
    pub fn isa(&self) -> IsaLevel {
        match &self.inner.backend {
            Backend::Cpu(cpu) => cpu.isa(),
        }
    }

    /// Allocates zeroed memory that the device's kernels can use.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer> {
        match &self.inner.backend {
            Backend::Cpu(_) => Buffer::zeroed(bytes),
        }
    }

    /// A contiguous tensor of zeros in memory of the device.
    pub fn tensor(&self, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        match &self.inner.backend {
            Backend::Cpu(_) => Tensor::zeros(dtype, shape),
        }
    }

    /// An empty command buffer.
    pub fn command_buffer(&self) -> CommandBuffer {
        CommandBuffer::new(self.clone())
    }

    /// The pipelines that were built so far.
    pub fn pipelines(&self) -> &PipelineCache {
        &self.inner.pipelines
    }

    /// Builds every pipeline of `kernel` now, so that its first use costs nothing; returns how many there are.
    pub fn prewarm(&self, kernel: &'static KernelDescriptor) -> Result<usize> {
        let mut count = 0;
        for instance in kernel.instances {
            for schedule in instance.schedules {
                self.inner.pipelines.get(&self.inner.backend, kernel, instance, schedule)?;
                count += 1;
            }
        }
        Ok(count)
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.inner.backend
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name())
    }
}
