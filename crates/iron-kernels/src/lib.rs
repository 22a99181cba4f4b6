//! Every compiled kernel, as typed functions that encode a call.
//!
//! The kernels live in crates of their own so that they compile side by side.

pub use iron_kernels_attention::*;
pub use iron_kernels_matmul::*;
pub use iron_kernels_ops::*;
