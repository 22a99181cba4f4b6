//! Kernels that have a counterpart in MLX.

pub mod attention;
pub mod elementwise;
pub mod gather;
pub mod matmul;
pub mod rms_norm;
pub mod rope;
pub mod softmax;
