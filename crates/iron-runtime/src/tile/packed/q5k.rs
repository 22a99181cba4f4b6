//! `Q5_K`: nibbles with a fifth bit, and 6-bit scales and minima per 32 values.
//!
//! Unit of 256 values: 32 vectors of nibbles, four a sub-block | 8 vectors of fifth bits, one a sub-block, bit `step` of
//! each byte belonging to that step | the scales of [`six_bit`].

use iron_core::Format;

use super::q4k::put_sub_blocks;
use super::{PackedFormat, five_bits, five_bits_of_row, put_fifth_bits, six_bit};
use crate::tile::isa::Isa;

const FIFTH: usize = 2048;
const SCALES: usize = 2560;

/// Five bits with a minimum under two levels of scales.
#[derive(Clone, Copy, Debug)]
pub struct Q5K;

impl PackedFormat for Q5K {
    const FORMAT: Format = Format::Q5K;
    const UNIT: usize = 256;
    const UNIT_BYTES: usize = 2816;
    const SUB: usize = 32;
    const BITS: u32 = 5;
    const OFFSET: i32 = 0;
    const MINIMUM: bool = true;

    #[inline(always)]
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2] {
        unsafe { five_bits::<I>(unit, FIFTH, sub, pair) }
    }
    #[inline(always)]
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe { six_bit::scale::<I>(unit.add(SCALES), sub) }
    }
    #[inline(always)]
    unsafe fn minimum<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe { six_bit::minimum::<I>(unit.add(SCALES), sub) }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { five_bits_of_row(unit, FIFTH, sub, step, row) }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe { six_bit::row_scale(unit.add(SCALES), sub, row) }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], _: usize, row: usize) {
        six_bit::put(block, &mut unit[SCALES..], row);
        // Bit `sub` of byte `value` is that sub-block's.
        let (fifth, low) = block[16..].split_at(32);
        for sub in 0..8 {
            put_fifth_bits(unit, FIFTH + 64 * sub, row, |value| fifth[value] >> sub & 1);
        }
        put_sub_blocks(low, unit, row);
    }
}
