//! Kernels without a counterpart in MLX.

pub mod cache;
pub mod quantize;
pub mod sample;
