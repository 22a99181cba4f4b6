//! The scales and minima of `Q4_K` and `Q5_K`: eight of 6 bits each under two f16 per 256 values.
//!
//! 256 bytes of a unit: 16 f16 `d`, 16 f16 `dmin` | three vectors with a word a row: the low 4 bits of the eight scales |
//! of the eight minima | the high 2 bits of the scales (bits 0..16) and of the minima (bits 16..32).

use super::{half_of_row, halves, put_half, put_word, word_of_row, words};
use crate::tile::isa::Isa;

const D_MIN: usize = 32;
const SCALES_LOW: usize = 64;
const MINIMA_LOW: usize = 128;
const HIGH: usize = 192;

/// The scales of sub-block `sub`, with the part that this file describes at `part`.
#[inline(always)]
pub(super) unsafe fn scale<I: Isa>(part: *const u8, sub: usize) -> I::F {
    unsafe {
        let high = I::shl_i(words::<I>(part, HIGH), I::splat_i(4));
        I::mul_f(halves::<I>(part, 0), six_bits::<I>(part, SCALES_LOW, high, sub))
    }
}

/// What is added to the scaled codes of sub-block `sub`.
#[inline(always)]
pub(super) unsafe fn minimum<I: Isa>(part: *const u8, sub: usize) -> I::F {
    unsafe {
        let high = I::shr_u(words::<I>(part, HIGH), I::splat_i(12));
        let minimum = six_bits::<I>(part, MINIMA_LOW, high, sub);
        I::neg_f(I::mul_f(halves::<I>(part, D_MIN), minimum))
    }
}

/// One row's scale and minimum of a sub-block.
#[inline(always)]
pub(super) unsafe fn row_scale(part: *const u8, sub: usize, row: usize) -> (f32, f32) {
    unsafe {
        let scale = half_of_row(part, 0, row) * six_bits_of_row(part, SCALES_LOW, 0, sub, row);
        let minimum =
            half_of_row(part, D_MIN, row) * six_bits_of_row(part, MINIMA_LOW, 16, sub, row);
        (scale, -minimum)
    }
}

/// Packs a block's first 16 bytes: `d`, `dmin`, ggml's 12 bytes of 6-bit numbers.
pub(super) fn put(block: &[u8], part: &mut [u8], row: usize) {
    put_half(part, 0, row, &block[..2]);
    put_half(part, D_MIN, row, &block[2..4]);
    let (mut scales_low, mut minima_low, mut high) = (0, 0, 0);
    for sub in 0..8 {
        let (scale, minimum) = scale_and_minimum(&block[4..16], sub);
        scales_low |= (scale & 15) << (4 * sub);
        minima_low |= (minimum & 15) << (4 * sub);
        high |= (scale >> 4) << (2 * sub) | (minimum >> 4) << (16 + 2 * sub);
    }
    put_word(part, SCALES_LOW, row, scales_low);
    put_word(part, MINIMA_LOW, row, minima_low);
    put_word(part, HIGH, row, high);
}

/// The 6-bit integers of sub-block `sub`: low bits from the words at `low`, high bits from `high`, whose bits 4 and 5 are
/// those of sub-block 0.
#[inline(always)]
unsafe fn six_bits<I: Isa>(part: *const u8, low: usize, high: I::I, sub: usize) -> I::F {
    unsafe {
        let low = I::shr_u(words::<I>(part, low), I::splat_i(4 * sub as i32));
        let high = I::shr_u(high, I::splat_i(2 * sub as i32));
        let low = I::and_i(low, I::splat_i(0x0f));
        I::f_from_i(I::or_i(low, I::and_i(high, I::splat_i(0x30))))
    }
}

#[inline(always)]
unsafe fn six_bits_of_row(part: *const u8, low: usize, high: usize, sub: usize, row: usize) -> f32 {
    unsafe {
        let low = word_of_row(part, low, row) >> (4 * sub) & 15;
        let high = word_of_row(part, HIGH, row) >> (high + 2 * sub) & 3;
        (low | high << 4) as f32
    }
}

/// The scale and minimum of a sub-block from ggml's 12 bytes of 6-bit numbers.
fn scale_and_minimum(bytes: &[u8], sub: usize) -> (u32, u32) {
    let byte = |index: usize| u32::from(bytes[index]);
    if sub < 4 {
        (byte(sub) & 63, byte(sub + 4) & 63)
    } else {
        (byte(sub + 4) & 15 | (byte(sub - 4) >> 6) << 4, byte(sub + 4) >> 4 | (byte(sub) >> 6) << 4)
    }
}
