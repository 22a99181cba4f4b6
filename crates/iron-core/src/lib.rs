//! Iron's types and intermediate representation.

mod dtype;
mod format;

pub use dtype::DType;
pub use format::{Format, Packing, Scale, Zero};
