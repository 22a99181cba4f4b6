//! `Q6_K`: six bits with 8-bit scales per 16 values, under one f16 per 256.
//!
//! Unit of 256 values: 32 vectors of low nibbles, two a sub-block | 16 vectors of high bits, one a sub-block, its bits
//! `2 * step` of each byte belonging to that step | 16 x 16 i8 scales | 16 f16 `d` | 32 bytes of padding.

use iron_core::Format;

use super::{
    NIBBLES, PackedFormat, half_of_row, halves, nibbles, nibbles_of_row, put_half, put_word,
    word_at, word_of_row, words,
};
use crate::tile::isa::Isa;

const HIGH: usize = 2048;
const SCALES: usize = 3072;
const D: usize = 3328;
/// The two high bits of four codes, in place.
const HIGH_BITS: u32 = 0x3030_3030;

/// Six bits offset by 32.
#[derive(Clone, Copy, Debug)]
pub struct Q6K;

impl PackedFormat for Q6K {
    const FORMAT: Format = Format::Q6K;
    const UNIT: usize = 256;
    const UNIT_BYTES: usize = 3392;
    const SUB: usize = 16;
    const BITS: u32 = 6;
    const OFFSET: i32 = 32;
    const MINIMUM: bool = false;

    #[inline(always)]
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2] {
        unsafe {
            let [first, second] = nibbles::<I>(unit, 128 * sub + 64 * pair);
            let high = words::<I>(unit, HIGH + 64 * sub);
            let high = if pair == 0 { I::shl_i(high, I::splat_i(4)) } else { high };
            let mask = I::splat_i(HIGH_BITS as i32);
            [
                I::or_i(first, I::and_i(high, mask)),
                I::or_i(second, I::and_i(I::shr_u(high, I::splat_i(2)), mask)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe {
            let scale = I::load_i8(unit.add(SCALES + 16 * sub).cast());
            I::mul_f(halves::<I>(unit, D), I::f_from_i(scale))
        }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe {
            let low = u32::from_le_bytes(nibbles_of_row(unit, 128 * sub, step, row));
            let high = word_of_row(unit, HIGH + 64 * sub, row) >> (2 * step) << 4 & HIGH_BITS;
            (low | high).to_le_bytes()
        }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe {
            let scale = unit.add(SCALES + 16 * sub + row).cast::<i8>().read();
            (half_of_row(unit, D, row) * f32::from(scale), 0.0)
        }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], _: usize, row: usize) {
        let (low, rest) = block.split_at(128);
        let (high, rest) = rest.split_at(64);
        let (scales, d) = rest.split_at(16);
        put_half(unit, D, row, d);
        for (sub, scale) in scales.iter().enumerate() {
            unit[SCALES + 16 * sub + row] = *scale;
        }
        // A half of 128 values takes 64 low and 32 high bytes; its four runs of 32 values use bytes 0..32 low, 32..64
        // low, 0..32 high, 32..64 high nibbles, and bits 0, 2, 4, 6 of the high bytes.
        for sub in 0..16 {
            let (half, run, odd) = (sub / 8, sub / 2 % 4, sub % 2);
            let (mut high_word, mut steps) = (0, [0; 4]);
            for (step, codes) in steps.iter_mut().enumerate() {
                let word = 4 * odd + step;
                let low = word_at(low, 16 * half + 8 * (run % 2) + word);
                *codes = low >> (4 * (run / 2)) & NIBBLES;
                let bits = word_at(high, 8 * half + word) >> (2 * run) & 0x0303_0303;
                high_word |= bits << (2 * step);
            }
            put_word(unit, 128 * sub, row, steps[0] | steps[1] << 4);
            put_word(unit, 128 * sub + 64, row, steps[2] | steps[3] << 4);
            put_word(unit, HIGH + 64 * sub, row, high_word);
        }
    }
}
