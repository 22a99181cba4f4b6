//! Products of activations with weights.
//!
//! The text is generated from `iron-std` when this crate is built.
#![expect(
    unsafe_code,
    reason = "generated kernels work on raw tiles; each function states its contract"
)]
#![allow(
    non_snake_case,
    unused_imports,
    unused_variables,
    unused_parens,
    unused_mut,
    unused_assignments,
    clippy::all,
    clippy::pedantic,
    reason = "generated text is regular rather than minimal"
)]

use iron_runtime::tile::{self, Isa};
use iron_runtime::{
    ActivationKind, Activations, Arg, Binding, CommandBuffer, DType, DimExpr, Element, Format,
    InstanceDescriptor, KernelDescriptor, Launch, ParamDescriptor, ParamKind, QuantizedTensor,
    Result, ScheduleDescriptor, Tensor, cpu_entries,
};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
