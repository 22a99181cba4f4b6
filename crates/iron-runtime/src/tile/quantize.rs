//! Activations as int8 blocks.

use super::isa::Isa;

/// Quantises `16 * V` neighbouring values of one row to int8, 32 to a block (`V` is even).
///
/// Of each block with amplitude `a` = max |x|: `scale = a / 127`, `q = round(x * (127 / a))` with ties to even, and
/// `sum = scale * Σ q`. `n` is the number of valid values, a multiple of 32; blocks past it are neither computed nor
/// stored. `q`, `scale` and `sum` point to the first value's places in the three planes of
/// [`Int8Rows`](super::Int8Rows). A block of zeros has scale 0. `q` is never -128.
#[inline(always)]
pub unsafe fn quantize_row_tile<I: Isa, const V: usize>(
    x: &[I::F; V],
    q: *mut i8,
    scale: *mut f32,
    sum: *mut f32,
    n: i32,
) {
    unsafe {
        const { assert!(V.is_multiple_of(2), "a block of 32 values is two vectors") };
        for block in 0..V / 2 {
            if 32 * block as i32 >= n {
                break;
            }
            let (low, high) = (x[2 * block], x[2 * block + 1]);
            let amplitude = I::reduce_max_f(I::max_f(I::abs_f(low), I::abs_f(high)));
            let inverse = if amplitude > 0.0 { 127.0 / amplitude } else { 0.0 };
            // 127 / a overflows for a below 2^-121: such a block is zero to every consumer.
            let (scale_x, inverse) =
                if inverse.is_finite() { (amplitude / 127.0, inverse) } else { (0.0, 0.0) };
            let inverse = I::splat_f(inverse);
            let low = I::i_from_f(I::round_f(I::mul_f(low, inverse)));
            let high = I::i_from_f(I::round_f(I::mul_f(high, inverse)));
            I::store_i8(q.add(32 * block), low);
            I::store_i8(q.add(32 * block + 16), high);
            *scale.add(block) = scale_x;
            *sum.add(block) = scale_x * I::reduce_add_i(I::add_i(low, high)) as f32;
        }
    }
}
