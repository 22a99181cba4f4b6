//! Dot products of f32 activations with plain float weights, used in place.
//!
//! One output of one call is `acc + tree(v)`: `v` holds 16 partial sums, lane `l` folding the products at `k0 + l`,
//! `k0 + l + 16`, .. by fma, and `tree` is [`Isa::reduce_add_f`]. Both flavours and every register tile give the same
//! bits for the same split of k into calls.

use super::dot_f32::F32Rows;
use super::isa::Isa;

/// The element type of a dense weight tensor.
pub trait DenseWeight: Copy + 'static {
    /// The stored element.
    type Element: Copy;
    /// Loads 16 elements.
    unsafe fn load<I: Isa>(ptr: *const Self::Element) -> I::F;
    /// Loads the first `n` of 16 elements, zeros after them.
    unsafe fn load_n<I: Isa>(ptr: *const Self::Element, n: i32) -> I::F;
}

/// 32-bit floats.
#[derive(Clone, Copy, Debug)]
pub struct F32;
/// Half-precision floats, as bits.
#[derive(Clone, Copy, Debug)]
pub struct F16;
/// bfloat16, as bits.
#[derive(Clone, Copy, Debug)]
pub struct BF16;

/// Adds a product of `M` rows and `16 * G` weight rows over `k0..k0 + kn`.
///
/// `acc[i][g]` lane `l` gains `x[i, k0..k0 + kn] · w[16 * g + l, k0..k0 + kn]`. `w` points to the tile's first weight
/// row, column 0, with `stride` elements from one row to the next; `kn` may be any number. `rows` and `cols` count the
/// valid activation rows and weight rows: what lies past them is not read, and the accumulators there are unspecified.
#[inline(always)]
pub unsafe fn dot_dense<I: Isa, T: DenseWeight, const M: usize, const G: usize>(
    acc: &mut [[I::F; G]; M],
    x: F32Rows,
    rows: i32,
    w: *const T::Element,
    stride: usize,
    cols: i32,
    k0: usize,
    kn: usize,
) {
    let _ = (acc, x, rows, w, stride, cols, k0, kn);
    todo!()
}

/// The same product for a whole tile in memory: only the first `rows` by `cols` of `acc` are touched.
#[inline(always)]
pub unsafe fn dot_dense_panel<I: Isa, T: DenseWeight, const BM: usize, const BN: usize>(
    acc: *mut f32,
    ld: usize,
    x: F32Rows,
    rows: i32,
    w: *const T::Element,
    stride: usize,
    cols: i32,
    k0: usize,
    kn: usize,
) {
    let _ = (acc, ld, x, rows, w, stride, cols, k0, kn);
    todo!()
}
