//! `Q4_K`: nibbles with 6-bit scales and minima per 32 values, under two f16 per 256.
//!
//! Unit of 256 values: 32 vectors of nibbles, four a sub-block | 16 f16 `d`, 16 f16 `dmin` | three vectors with a word a
//! row: the low 4 bits of the eight scales | of the eight minima | the high 2 bits of the scales (bits 0..16) and of the
//! minima (bits 16..32).

use iron_core::Format;

use super::{
    PackedFormat, half_of_row, halves, nibbles, nibbles_of_row, put_half, put_nibbles, put_word,
    word_of_row, words,
};
use crate::tile::isa::Isa;

const D: usize = 2048;
const D_MIN: usize = 2080;
const SCALES_LOW: usize = 2112;
const MINIMA_LOW: usize = 2176;
const HIGH: usize = 2240;

/// Nibbles with a minimum under two levels of scales.
#[derive(Clone, Copy, Debug)]
pub struct Q4K;

/// The 6-bit integers of sub-block `sub`: low bits from the words at `low`, high bits from `high`, whose bits 4 and 5 are
/// those of sub-block 0.
#[inline(always)]
unsafe fn six_bits<I: Isa>(unit: *const u8, low: usize, high: I::I, sub: usize) -> I::F {
    unsafe {
        let low = I::shr_u(words::<I>(unit, low), I::splat_i(4 * sub as i32));
        let high = I::shr_u(high, I::splat_i(2 * sub as i32));
        let low = I::and_i(low, I::splat_i(0x0f));
        I::f_from_i(I::or_i(low, I::and_i(high, I::splat_i(0x30))))
    }
}

#[inline(always)]
unsafe fn six_bits_of_row(unit: *const u8, low: usize, high: usize, sub: usize, row: usize) -> f32 {
    unsafe {
        let low = word_of_row(unit, low, row) >> (4 * sub) & 15;
        let high = word_of_row(unit, HIGH, row) >> (high + 2 * sub) & 3;
        (low | high << 4) as f32
    }
}

impl PackedFormat for Q4K {
    const FORMAT: Format = Format::Q4K;
    const UNIT: usize = 256;
    const UNIT_BYTES: usize = 2304;
    const SUB: usize = 32;
    const BITS: u32 = 4;
    const OFFSET: i32 = 0;
    const MINIMUM: bool = true;

    #[inline(always)]
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2] {
        unsafe { nibbles::<I>(unit, 256 * sub + 64 * pair) }
    }
    #[inline(always)]
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe {
            let high = I::shl_i(words::<I>(unit, HIGH), I::splat_i(4));
            I::mul_f(halves::<I>(unit, D), six_bits::<I>(unit, SCALES_LOW, high, sub))
        }
    }
    #[inline(always)]
    unsafe fn minimum<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe {
            let high = I::shr_u(words::<I>(unit, HIGH), I::splat_i(12));
            let minimum = six_bits::<I>(unit, MINIMA_LOW, high, sub);
            I::neg_f(I::mul_f(halves::<I>(unit, D_MIN), minimum))
        }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { nibbles_of_row(unit, 256 * sub, step, row) }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe {
            let scale = half_of_row(unit, D, row) * six_bits_of_row(unit, SCALES_LOW, 0, sub, row);
            let minimum =
                half_of_row(unit, D_MIN, row) * six_bits_of_row(unit, MINIMA_LOW, 16, sub, row);
            (scale, -minimum)
        }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], _: usize, row: usize) {
        put_half(unit, D, row, &block[..2]);
        put_half(unit, D_MIN, row, &block[2..4]);
        let (mut scales_low, mut minima_low, mut high) = (0, 0, 0);
        for sub in 0..8 {
            let (scale, minimum) = scale_and_minimum(&block[4..16], sub);
            scales_low |= (scale & 15) << (4 * sub);
            minima_low |= (minimum & 15) << (4 * sub);
            high |= (scale >> 4) << (2 * sub) | (minimum >> 4) << (16 + 2 * sub);
        }
        put_word(unit, SCALES_LOW, row, scales_low);
        put_word(unit, MINIMA_LOW, row, minima_low);
        put_word(unit, HIGH, row, high);
        // Each 32 bytes hold one sub-block in the low nibbles and the next one in the high.
        for (pair, bytes) in block[16..].chunks_exact(32).enumerate() {
            put_nibbles(unit, 512 * pair, row, bytes, false);
            put_nibbles(unit, 512 * pair + 256, row, bytes, true);
        }
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
