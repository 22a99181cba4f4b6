//! Iron's passes, targets and artefacts.

pub mod compile;
pub mod emit;
pub mod instance;
pub mod passes;
pub mod target;

pub use instance::{Binding, Instance};
pub use target::Target;
