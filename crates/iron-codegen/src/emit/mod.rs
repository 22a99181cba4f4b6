//! Artefacts: which instances exist, the Rust crate of kernels, the manifest.

mod build;
mod manifest;
mod plan;
mod rust;

pub use build::{BuildError, Catalog, build_cpu_crate};
pub use manifest::{Compiled, manifest};
pub use plan::{Plan, PlanError, PlannedInstance, PlannedKernel, PlannedSchedule};
pub use rust::cpu_crate;
