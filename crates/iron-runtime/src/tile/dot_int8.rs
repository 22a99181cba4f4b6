//! Dot products of int8 activations with packed weights.
//!
//! One output is a fold over the sub-blocks of k in ascending order, always by the same f32 operations, with `i` the
//! exact integer sum of codes times activations:
//! * formats with an offset: `acc = fma(fma(i, scale_x, -offset * sum_x), scale_w, acc)`;
//! * formats with a minimum: `acc = fma(i * scale_x, scale_w, acc)`, then `acc = fma(sum_x, minimum_w, acc)`.
//!
//! So both flavours, every register tile and every split of k give the same bits.

use super::isa::Isa;
use super::packed::PackedFormat;

/// A tile of activations quantised by [`quantize_row_tile`](super::quantize_row_tile): pointers to row 0, column 0.
#[derive(Clone, Copy, Debug)]
pub struct Int8Rows {
    /// Quantised values, `[rows, k]`.
    pub q: *const i8,
    /// Scale of each 32 values, `[rows, k / 32]`.
    pub scale: *const f32,
    /// Scale times the sum of each 32 quantised values, `[rows, k / 32]`.
    pub sum: *const f32,
    /// Elements from one row of `q` to the next.
    pub q_stride: usize,
    /// Elements from one row of `scale` and `sum` to the next.
    pub block_stride: usize,
}

/// Adds a product of `M` rows and `16 * G` weight rows over `k0..k0 + kn`: the decode path.
///
/// `acc[i][g]` lane `l` gains `x[i, k0..k0 + kn] · w[16 * (row_group + g) + l, k0..k0 + kn]`. `w` is the start of the
/// packed tensor, `k` its full row length; `k0` is a multiple of `W::UNIT` and `kn` of 32. `rows` and `cols` count the
/// valid activation rows and weight rows from the tile's origin: what lies past them is not read, and the accumulators
/// there are unspecified.
#[inline(always)]
pub unsafe fn dot_int8<I: Isa, W: PackedFormat, const M: usize, const G: usize>(
    acc: &mut [[I::F; G]; M],
    x: Int8Rows,
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

/// The same product for a whole tile in memory, `BM` rows by `BN` weight rows: the prefill path.
///
/// `acc` is row-major with `ld` elements from one row to the next; only the first `rows` by `cols` of it are touched,
/// except that columns up to the next multiple of 16 may be. The weights are unpacked once for all rows.
#[inline(always)]
pub unsafe fn dot_int8_panel<
    I: Isa,
    W: PackedFormat,
    const BM: usize,
    const BN: usize,
    const BK: usize,
>(
    acc: *mut f32,
    ld: usize,
    x: Int8Rows,
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
