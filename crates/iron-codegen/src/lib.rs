//! Iron's passes, targets and artefacts.

pub mod instance;
pub mod passes;

pub use instance::{Binding, Instance};
