//! `Q3_K`: three bits with signed 6-bit scales per 16 values, under one f16 per 256.
//!
//! Unit of 256 values: 16 vectors of low bits, one a sub-block | 8 vectors of third bits, one a pair of sub-blocks, bit
//! `4 * (sub % 2) + step` of each byte belonging to that step | three vectors with a word a row: the low 4 bits of the
//! scales 0..8, of the scales 8..16, the high 2 bits of all | 16 f16 `d` | 32 bytes of padding.

use iron_core::Format;

use super::{
    PackedFormat, half_of_row, halves, move_bit, put_half, put_two_bits, put_word, two_bits,
    two_bits_of_row, word_of_row, words,
};
use crate::tile::isa::Isa;

const THIRD: usize = 1024;
const SCALES_LOW: usize = 1536;
const SCALES_HIGH: usize = 1664;
const D: usize = 1728;
/// Three bits offset by 4.
#[derive(Clone, Copy, Debug)]
pub struct Q3K;

impl PackedFormat for Q3K {
    const FORMAT: Format = Format::Q3K;
    const UNIT: usize = 256;
    const UNIT_BYTES: usize = 1792;
    const SUB: usize = 16;
    const BITS: u32 = 3;
    const OFFSET: i32 = 4;
    const MINIMUM: bool = false;

    #[inline(always)]
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2] {
        unsafe {
            let [first, second] = two_bits::<I>(unit, 64 * sub, pair);
            let word = words::<I>(unit, THIRD + 64 * (sub / 2));
            let step = 4 * (sub % 2) + 2 * pair;
            [
                I::or_i(first, move_bit::<I>(word, step, 2)),
                I::or_i(second, move_bit::<I>(word, step + 1, 2)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe {
            let low = words::<I>(unit, SCALES_LOW + 64 * (sub / 8));
            let low = I::and_i(I::shr_u(low, I::splat_i(4 * (sub % 8) as i32)), I::splat_i(15));
            let high = I::shr_u(words::<I>(unit, SCALES_HIGH), I::splat_i(2 * sub as i32));
            let high = I::shl_i(I::and_i(high, I::splat_i(3)), I::splat_i(4));
            let scale = I::add_i(I::or_i(low, high), I::splat_i(-32));
            I::mul_f(halves::<I>(unit, D), I::f_from_i(scale))
        }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe {
            let third = word_of_row(unit, THIRD + 64 * (sub / 2), row) >> (4 * (sub % 2) + step);
            let low = two_bits_of_row(unit, 64 * sub, step, row);
            (low | (third & 0x0101_0101) << 2).to_le_bytes()
        }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe {
            let low = word_of_row(unit, SCALES_LOW + 64 * (sub / 8), row) >> (4 * (sub % 8)) & 15;
            let high = word_of_row(unit, SCALES_HIGH, row) >> (2 * sub) & 3;
            let scale = (low | high << 4) as i32 - 32;
            (half_of_row(unit, D, row) * scale as f32, 0.0)
        }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], _: usize, row: usize) {
        let (third, rest) = block.split_at(32);
        let (low, rest) = rest.split_at(64);
        let (scales, d) = rest.split_at(12);
        put_two_bits(unit, 0, row, low);
        // Bit `value / 32` of byte `value % 32` is that value's.
        for pair in 0..8 {
            let mut word = 0;
            for value in 32 * pair..32 * pair + 32 {
                let bit = u32::from(third[value % 32] >> (value / 32) & 1);
                word |= bit << (8 * (value % 4) + value % 32 / 4);
            }
            put_word(unit, THIRD + 64 * pair, row, word);
        }
        // Bytes 0..8 hold the low nibbles of the scales 0..8 and 8..16, bytes 8..12 the high bits, four scales a bit pair.
        let (mut lows, mut high) = ([0; 2], 0);
        for sub in 0..16 {
            lows[sub / 8] |= u32::from(scales[sub % 8] >> (sub / 8 * 4) & 15) << (4 * (sub % 8));
            high |= u32::from(scales[8 + sub % 4] >> (sub / 4 * 2) & 3) << (2 * sub);
        }
        put_word(unit, SCALES_LOW, row, lows[0]);
        put_word(unit, SCALES_LOW + 64, row, lows[1]);
        put_word(unit, SCALES_HIGH, row, high);
        put_half(unit, D, row, d);
    }
}
