//! Iron's types and intermediate representation.
//!
//! A kernel begins as [`syntax`] (what `#[kernel]` recorded), becomes [`ir`] when it is type-checked, and stays in that
//! one representation until a target prints it.

mod dtype;
mod format;
pub mod ir;
mod span;
pub mod syntax;
pub mod visit;

pub use dtype::DType;
pub use format::{Format, Packing, Scale, Zero};
pub use span::{Diagnostic, Span};
