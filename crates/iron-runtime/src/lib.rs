//! Runs Iron's compiled kernels: devices, buffers, tensors and command buffers.
//!
//! A generated crate provides static [`KernelDescriptor`]s; its typed wrappers call [`CommandBuffer::encode`], which
//! checks every argument against the kernel's contract, picks the instance and the schedule, and lays out the argument
//! words. [`CommandBuffer::run`] runs what was encoded; [`CommandBuffer::finish`] turns it into a [`Recording`] that
//! can be replayed.

#![expect(unsafe_code, reason = "memory mappings, raw tensor memory and calls of compiled kernels")]

mod activations;
mod backend;
mod bandwidth;
mod binder;
mod buffer;
mod command_buffer;
mod commands;
mod descriptor;
mod device;
mod error;
mod isa_level;
pub mod launch;
mod memory;
mod pipeline;
mod pod;
mod profile;
mod quantized;
mod recording;
mod shape;
mod tensor;
pub mod tile;

pub use activations::Activations;
pub use backend::cpu::{AvailableCpu, CpuOptions};
pub use bandwidth::{measure_read_bandwidth, measure_read_bandwidth_of};
pub use binder::Arg;
pub use buffer::Buffer;
pub use command_buffer::CommandBuffer;
pub use descriptor::{
    ActivationKind, Binding, DimExpr, Element, InstanceDescriptor, KernelDescriptor,
    ParamDescriptor, ParamKind, ScheduleDescriptor,
};
pub use device::Device;
pub use error::{EncodeError, Result, RuntimeError};
pub use isa_level::IsaLevel;
pub use launch::{CpuEntries, CpuKernel, Launch};
pub use memory::peak_rss;
pub use pipeline::{PipelineCache, PipelineKey};
pub use pod::{Pod, TensorElement};
pub use profile::DispatchTiming;
pub use quantized::{QuantizedTensor, WeightLayout};
pub use recording::Recording;
pub use shape::{MAX_RANK, Shape};
pub use tensor::Tensor;

pub use iron_core::{DType, Format};
