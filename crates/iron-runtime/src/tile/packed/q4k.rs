//! `Q4_K`: nibbles with 6-bit scales and minima per 32 values.
//!
//! Unit of 256 values: 32 vectors of nibbles, four a sub-block | the scales of [`six_bit`].

use iron_core::Format;

use super::{PackedFormat, nibbles, nibbles_of_row, put_nibbles, six_bit};
use crate::tile::isa::Isa;

const SCALES: usize = 2048;

/// Nibbles with a minimum under two levels of scales.
#[derive(Clone, Copy, Debug)]
pub struct Q4K;

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
        unsafe { six_bit::scale::<I>(unit.add(SCALES), sub) }
    }
    #[inline(always)]
    unsafe fn minimum<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe { six_bit::minimum::<I>(unit.add(SCALES), sub) }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { nibbles_of_row(unit, 256 * sub, step, row) }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe { six_bit::row_scale(unit.add(SCALES), sub, row) }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], _: usize, row: usize) {
        six_bit::put(block, &mut unit[SCALES..], row);
        put_sub_blocks(&block[16..], unit, row);
    }
}

/// Packs 128 bytes of nibbles: each 32 hold one sub-block in the low nibbles and the next one in the high.
pub(super) fn put_sub_blocks(nibbles: &[u8], unit: &mut [u8], row: usize) {
    for (pair, bytes) in nibbles.chunks_exact(32).enumerate() {
        put_nibbles(unit, 512 * pair, row, bytes, false);
        put_nibbles(unit, 512 * pair + 256, row, bytes, true);
    }
}
