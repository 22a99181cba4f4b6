//! Iron's passes, targets and artefacts.

pub mod instance;
pub mod passes;
pub mod target;

pub use instance::{Binding, Instance};
