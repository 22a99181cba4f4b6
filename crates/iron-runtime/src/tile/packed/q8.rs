//! `Q8_0`: bytes under one scale per 32 values.
//!
//! Unit of 64 values: 16 vectors of codes, one a step | scales of sub-block 0, of sub-block 1 (16 f16 each). Codes are
//! the stored signed bytes plus 128, since the integer dot product takes unsigned weights.

use iron_core::Format;

use super::{PackedFormat, half_of_row, halves, put_half, put_word, word_at, word_of_row, words};
use crate::tile::isa::Isa;

const SCALES: usize = 1024;

/// Bytes offset by 128.
#[derive(Clone, Copy, Debug)]
pub struct Q8_0;

impl PackedFormat for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
    const UNIT: usize = 64;
    const UNIT_BYTES: usize = 1088;
    const SUB: usize = 32;
    const BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const MINIMUM: bool = false;

    #[inline(always)]
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2] {
        let offset = 512 * sub + 128 * pair;
        unsafe { [words::<I>(unit, offset), words::<I>(unit, offset + 64)] }
    }
    #[inline(always)]
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe { halves::<I>(unit, SCALES + 32 * sub) }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { word_of_row(unit, 512 * sub + 64 * step, row).to_le_bytes() }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe { (half_of_row(unit, SCALES + 32 * sub, row), 0.0) }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], index: usize, row: usize) {
        put_half(unit, SCALES + 32 * index, row, &block[..2]);
        for step in 0..8 {
            let word = word_at(&block[2..], step) ^ 0x8080_8080;
            put_word(unit, 512 * index + 64 * step, row, word);
        }
    }
}
