//! Iron's types and intermediate representation.
//!
//! A kernel begins as [`syntax`] (what `#[kernel]` recorded), becomes [`ir`] when it is type-checked, and stays in that
//! one representation until a target prints it.

mod builder;
mod dtype;
mod format;
mod infer;
pub mod ir;
mod names;
mod span;
pub mod syntax;
mod verify;
mod visit;

pub use builder::Builder;
pub use dtype::DType;
pub use format::{Format, Packing, Scale, Zero};
pub use span::{Diagnostic, Span};
pub use verify::verify;
pub use visit::{Access, Substitution, Uses};
