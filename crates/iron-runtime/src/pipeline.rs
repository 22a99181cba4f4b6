//! Compiled kernels made ready for a device.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use crate::backend::Backend;
use crate::{Binding, CpuKernel, InstanceDescriptor, KernelDescriptor, Result, ScheduleDescriptor};

/// A kernel's code, ready to run on its device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pipeline {
    /// A function of this program.
    Cpu(CpuKernel),
}

/// What a pipeline was built from.
#[derive(Clone, Copy, Debug)]
pub struct PipelineKey {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Type arguments.
    pub bindings: &'static [Binding],
    /// Name of the schedule.
    pub schedule: &'static str,
}

/// The pipelines of a device, each built at its first use.
///
/// Command buffers remember what they looked up, so this is not on the path of a repeated encode.
#[derive(Debug, Default)]
pub struct PipelineCache {
    pipelines: Mutex<HashMap<(usize, usize), (PipelineKey, Pipeline)>>,
}

impl PipelineCache {
    /// Number of pipelines that were built.
    pub fn len(&self) -> usize {
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing was built yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the pipelines were built from, in no particular order.
    pub fn keys(&self) -> Vec<PipelineKey> {
        let pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.values().map(|(key, _)| *key).collect()
    }

    /// The pipeline of one schedule of one instance.
    pub(crate) fn get(
        &self,
        backend: &Backend,
        kernel: &'static KernelDescriptor,
        instance: &'static InstanceDescriptor,
        schedule: &'static ScheduleDescriptor,
    ) -> Result<Pipeline> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        // Statics: their addresses identify them. An instance may share its schedules with another.
        let address = (ptr::from_ref(instance).addr(), ptr::from_ref(schedule).addr());
        if let Some((_, pipeline)) = pipelines.get(&address) {
            return Ok(*pipeline);
        }
        let pipeline = backend.pipeline(schedule)?;
        let key = PipelineKey {
            kernel: kernel.name,
            bindings: instance.bindings,
            schedule: schedule.name,
        };
        pipelines.insert(address, (key, pipeline));
        Ok(pipeline)
    }
}
