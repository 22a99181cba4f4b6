//! The CPU tile library: what generated kernels are made of.
//!
//! A generated kernel is an `#[inline(always)]` function over [`Isa`]; [`cpu_entries!`](crate::cpu_entries) compiles it
//! for every instruction set. Elementwise code calls the functions of [`Isa`] and [`math`]; dot products, quantisation
//! and weight loads are the primitives below.
//!
//! **Invariant**: what a primitive computes for one output depends on nothing but that output's row of activations, its
//! row of weights and the order of k: never on the number of rows, the register tile or the instruction set.
#![expect(
    unsafe_code,
    reason = "vector intrinsics and raw tiles; every function states its contract"
)]
#![expect(
    clippy::inline_always,
    reason = "only inlined code gets the instruction set of the kernel that calls it"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "register tiles are indexed by row and column, across several arrays at once"
)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the contract of `Isa` holds throughout; the rest is each function's description"
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dense;
mod dot_f32;
mod dot_int8;
mod dot_nn;
mod entries;
mod isa;
mod lanes;
pub mod math;
mod outline;
mod pack;
mod packed;
mod portable;
mod quantize;
mod rows;
mod scalar;
mod scratch;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use dense::{BF16, DENSE_CHUNK, DenseWeight, F16, F32, dot_dense, dot_dense_panel};
pub use dot_f32::{F32Rows, dot_f32_packed, dot_f32_packed_panel};
pub use dot_int8::{Int8Rows, dot_int8, dot_int8_panel};
pub use dot_nn::dot_nn;
pub use isa::{Isa, Lanes};
pub use lanes::{
    affine, bf16_bits, bf16_value, div_i, div_lanes_i, div_lanes_u, f16_bits, f16_value, fill,
    load_vectors, max_value, min_value, rem_i, rem_lanes_i, rem_lanes_u, scatter_bf16, scatter_f16,
    scatter_f32, scatter_i8, scatter_i32, scatter_u8, store_vectors,
};
pub use outline::Outlined;
pub use pack::{PackError, pack_rows, packed_bytes, row_groups};
pub use packed::{PackedFormat, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
pub use portable::Portable;
pub use quantize::quantize_row_tile;
pub use rows::{load_dense_row, load_packed_row};
pub use scratch::scratch;
