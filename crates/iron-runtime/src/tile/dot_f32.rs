//! Dot products of f32 activations with packed weights: the exact mode.
//!
//! Weights are dequantised as the ggml reference does, in f32 with separate multiplications and additions; products are
//! folded by fma in ascending k. Both flavours, every register tile and every split of k give the same bits.

use super::isa::Isa;
use super::packed::PackedFormat;

/// A tile of f32 activations: a pointer to row 0, column 0.
#[derive(Clone, Copy, Debug)]
pub struct F32Rows {
    /// Values, `[rows, k]`.
    pub x: *const f32,
    /// Elements from one row to the next.
    pub stride: usize,
}

/// Adds a product of `M` rows and `16 * G` weight rows over `k0..k0 + kn`; arguments as in
/// [`dot_int8`](super::dot_int8).
#[inline(always)]
pub unsafe fn dot_f32_packed<I: Isa, W: PackedFormat, const M: usize, const G: usize>(
    acc: &mut [[I::F; G]; M],
    x: F32Rows,
    rows: i32,
    w: *const u8,
    row_group: usize,
    cols: i32,
    k: usize,
    k0: usize,
    kn: usize,
) {
    let _ = (acc, x, rows, w, row_group, cols, k, k0, kn);
    todo!()
}

/// The same product for a whole tile in memory; arguments as in [`dot_int8_panel`](super::dot_int8_panel).
#[inline(always)]
pub unsafe fn dot_f32_packed_panel<
    I: Isa,
    W: PackedFormat,
    const BM: usize,
    const BN: usize,
    const BK: usize,
>(
    acc: *mut f32,
    ld: usize,
    x: F32Rows,
    rows: i32,
    w: *const u8,
    row_group: usize,
    cols: i32,
    k: usize,
    k0: usize,
    kn: usize,
) {
    let _ = (acc, ld, x, rows, w, row_group, cols, k, k0, kn);
    todo!()
}
