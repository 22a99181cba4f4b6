//! Iron's kernels, each beside its reference.
//!
//! A kernel is a Rust function marked `#[kernel]`; this crate is tables of syntax and runs at build time only.

pub mod butter;
pub mod mlx;
pub mod reference;

mod instances;

pub use instances::{
    BUDGET, EXCLUDED, INSTANCES, INSTANCES_GPU, TUNING_CPU, TUNING_CUDA, TUNING_METAL,
};

use iron_core::syntax::Function;

/// Every kernel and helper.
pub fn functions() -> Vec<&'static Function> {
    vec![
        &mlx::attention::ATTENTION,
        &mlx::elementwise::SILU_MUL,
        &mlx::elementwise::GELU_MUL,
        &mlx::elementwise::GELU_ERF_MUL,
        &mlx::elementwise::ADD,
        &mlx::elementwise::ADD_BIAS,
        &mlx::elementwise::SOFT_CAP,
        &mlx::gather::EMBED,
        &mlx::gather::TAKE_ROWS,
        &mlx::matmul::MATMUL,
        &mlx::rms_norm::RMS_NORM,
        &mlx::rms_norm::ADD_RMS_NORM,
        &mlx::rope::ROPE,
        &mlx::rope::ROPE_INTERLEAVED,
        &mlx::softmax::SOFTMAX,
        &mlx::softmax::ARGMAX,
        &butter::cache::APPEND_KV,
        &butter::quantize::QUANTIZE,
        &butter::sample::THREEFRY_MIX,
        &butter::sample::ROTATE_LEFT,
        &butter::sample::THREEFRY,
        &butter::sample::SAMPLE,
    ]
}
