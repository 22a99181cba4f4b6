//! `Q4_0` and `Q4_1`: nibbles under one scale per 32 values.
//!
//! Unit of 64 values: 8 vectors of nibbles, four a sub-block | scales of sub-block 0, of sub-block 1 (16 f16 each) |
//! with `Q4_1`, minima likewise.

use iron_core::Format;

use super::{PackedFormat, half_of_row, halves, nibbles, nibbles_of_row, put_half, put_nibbles};
use crate::tile::isa::Isa;

const SCALES: usize = 512;
const MINIMA: usize = 576;

/// Nibbles offset by 8.
#[derive(Clone, Copy, Debug)]
pub struct Q4_0;

/// Nibbles with a minimum.
#[derive(Clone, Copy, Debug)]
pub struct Q4_1;

impl PackedFormat for Q4_0 {
    const FORMAT: Format = Format::Q4_0;
    const UNIT: usize = 64;
    const UNIT_BYTES: usize = 576;
    const SUB: usize = 32;
    const BITS: u32 = 4;
    const OFFSET: i32 = 8;
    const MINIMUM: bool = false;

    #[inline(always)]
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2] {
        unsafe { nibbles::<I>(unit, 256 * sub + 64 * pair) }
    }
    #[inline(always)]
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe { halves::<I>(unit, SCALES + 32 * sub) }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { nibbles_of_row(unit, 256 * sub, step, row) }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe { (half_of_row(unit, SCALES + 32 * sub, row), 0.0) }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], index: usize, row: usize) {
        put_half(unit, SCALES + 32 * index, row, &block[..2]);
        put_nibbles(unit, 256 * index, row, &block[2..], false);
        put_nibbles(unit, 256 * index + 128, row, &block[2..], true);
    }
}

impl PackedFormat for Q4_1 {
    const FORMAT: Format = Format::Q4_1;
    const UNIT: usize = 64;
    const UNIT_BYTES: usize = 640;
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
        unsafe { halves::<I>(unit, SCALES + 32 * sub) }
    }
    #[inline(always)]
    unsafe fn minimum<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe { halves::<I>(unit, MINIMA + 32 * sub) }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { nibbles_of_row(unit, 256 * sub, step, row) }
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
        put_nibbles(unit, 256 * index, row, &block[4..], false);
        put_nibbles(unit, 256 * index + 128, row, &block[4..], true);
    }
}
