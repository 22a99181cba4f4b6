//! Iron's types and intermediate representation.
//!
//! A kernel begins as [`syntax`] (what `#[kernel]` recorded), becomes [`ir`] when it is type-checked, and stays in that
//! one representation until a target prints it.

mod builder;
mod dequantize;
mod dim_expr;
mod dtype;
mod format;
mod infer;
pub mod ir;
mod lex;
mod names;
mod parse;
pub mod predicate;
mod print;
mod render;
mod span;
pub mod syntax;
pub mod tuning;
mod verify;
pub mod visit;

pub use builder::Builder;
pub use dequantize::dequantize;
pub use dtype::DType;
pub use format::{Format, Packing, Scale, Zero};
pub use lex::ParseError;
pub use render::{render, render_with};
pub use span::{Diagnostic, Span};
pub use verify::verify;
pub use visit::{Access, Substitution, Uses};
