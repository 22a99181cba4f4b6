//! What models are built from: layers over the device's kernels.
//!
//! Models call nothing else. Which kernels are joined, and in which form a product wants its input, is decided here.

mod attention;
mod context;
mod embedding;
mod linear;
mod load;
mod mlp;
mod norm;
mod rope;
mod soft_cap;

pub use self::attention::Attention;
pub use self::context::{Context, Precision};
pub use self::embedding::Embedding;
pub use self::linear::{Linear, LinearInput, WantedInput, project};
pub use self::load::Loader;
pub use self::mlp::GatedMlp;
pub use self::norm::{Residual, RmsNorm, normalize};
pub use self::rope::Rope;
pub use self::soft_cap::soft_cap;

pub use crate::arena::Scope;
