//! `Q5_0` and `Q5_1`: nibbles with a fifth bit under one scale per 32 values.
//!
//! Unit of 64 values: 8 vectors of nibbles, four a sub-block | 2 vectors of fifth bits, one a sub-block, bit `step` of each
//! byte belonging to that step | scales of sub-block 0, of sub-block 1 (16 f16 each) | with `Q5_1`, minima likewise.

use iron_core::Format;

use super::{
    PackedFormat, five_bits, five_bits_of_row, half_of_row, halves, put_fifth_bits, put_half,
    put_nibbles,
};
use crate::tile::isa::Isa;

const FIFTH: usize = 512;
const SCALES: usize = 640;
const MINIMA: usize = 704;

/// Five bits offset by 16.
#[derive(Clone, Copy, Debug)]
pub struct Q5_0;

/// Five bits with a minimum.
#[derive(Clone, Copy, Debug)]
pub struct Q5_1;

/// Packs a block's 4 bytes of fifth bits, in the order of the values, and its 16 bytes of nibbles.
fn put_codes(block: &[u8], unit: &mut [u8], index: usize, row: usize) {
    let (fifth, low) = block.split_at(4);
    put_nibbles(unit, 256 * index, row, low, false);
    put_nibbles(unit, 256 * index + 128, row, low, true);
    put_fifth_bits(unit, FIFTH + 64 * index, row, |value| fifth[value / 8] >> (value % 8) & 1);
}

impl PackedFormat for Q5_0 {
    const FORMAT: Format = Format::Q5_0;
    const UNIT: usize = 64;
    const UNIT_BYTES: usize = 704;
    const SUB: usize = 32;
    const BITS: u32 = 5;
    const OFFSET: i32 = 16;
    const MINIMUM: bool = false;

    #[inline(always)]
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2] {
        unsafe { five_bits::<I>(unit, FIFTH, sub, pair) }
    }
    #[inline(always)]
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe { halves::<I>(unit, SCALES + 32 * sub) }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { five_bits_of_row(unit, FIFTH, sub, step, row) }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe { (half_of_row(unit, SCALES + 32 * sub, row), 0.0) }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], index: usize, row: usize) {
        put_half(unit, SCALES + 32 * index, row, &block[..2]);
        put_codes(&block[2..], unit, index, row);
    }
}

impl PackedFormat for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const UNIT: usize = 64;
    const UNIT_BYTES: usize = 768;
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
        unsafe { halves::<I>(unit, SCALES + 32 * sub) }
    }
    #[inline(always)]
    unsafe fn minimum<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe { halves::<I>(unit, MINIMA + 32 * sub) }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { five_bits_of_row(unit, FIFTH, sub, step, row) }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe {
            (half_of_row(unit, SCALES + 32 * sub, row), half_of_row(unit, MINIMA + 32 * sub, row))
        }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], index: usize, row: usize) {
        put_half(unit, SCALES + 32 * index, row, &block[..2]);
        put_half(unit, MINIMA + 32 * index, row, &block[2..4]);
        put_codes(&block[4..], unit, index, row);
    }
}
