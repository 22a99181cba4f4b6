//! `Q2_K`: two bits with 4-bit scales and minima per 16 values, under two f16 per 256.
//!
//! Unit of 256 values: 16 vectors of codes, one a sub-block | a byte per sub-block and row with the scale in its low and the
//! minimum in its high nibble | 16 f16 `d`, 16 f16 `dmin`.

use iron_core::Format;

use super::{PackedFormat, half_of_row, halves, put_half, put_two_bits, two_bits, two_bits_of_row};
use crate::tile::isa::Isa;

const SCALES: usize = 1024;
const D: usize = 1280;
const D_MIN: usize = 1312;

/// Two bits with a minimum under two levels of scales.
#[derive(Clone, Copy, Debug)]
pub struct Q2K;

impl PackedFormat for Q2K {
    const FORMAT: Format = Format::Q2K;
    const UNIT: usize = 256;
    const UNIT_BYTES: usize = 1344;
    const SUB: usize = 16;
    const BITS: u32 = 2;
    const OFFSET: i32 = 0;
    const MINIMUM: bool = true;

    #[inline(always)]
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2] {
        unsafe { two_bits::<I>(unit, 64 * sub, pair) }
    }
    #[inline(always)]
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe {
            let both = I::load_i8(unit.add(SCALES + 16 * sub).cast());
            let scale = I::and_i(both, I::splat_i(15));
            I::mul_f(halves::<I>(unit, D), I::f_from_i(scale))
        }
    }
    #[inline(always)]
    unsafe fn minimum<I: Isa>(unit: *const u8, sub: usize) -> I::F {
        unsafe {
            let both = I::load_i8(unit.add(SCALES + 16 * sub).cast());
            let minimum = I::and_i(I::shr_u(both, I::splat_i(4)), I::splat_i(15));
            I::neg_f(I::mul_f(halves::<I>(unit, D_MIN), I::f_from_i(minimum)))
        }
    }

    #[inline(always)]
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4] {
        unsafe { two_bits_of_row(unit, 64 * sub, step, row).to_le_bytes() }
    }
    #[inline(always)]
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32) {
        unsafe {
            let both = unit.add(SCALES + 16 * sub + row).read();
            let scale = half_of_row(unit, D, row) * f32::from(both & 15);
            (scale, -(half_of_row(unit, D_MIN, row) * f32::from(both >> 4)))
        }
    }

    fn pack_block(block: &[u8], unit: &mut [u8], _: usize, row: usize) {
        let (scales, rest) = block.split_at(16);
        for (sub, both) in scales.iter().enumerate() {
            unit[SCALES + 16 * sub + row] = *both;
        }
        put_two_bits(unit, 0, row, &rest[..64]);
        put_half(unit, D, row, &rest[64..66]);
        put_half(unit, D_MIN, row, &rest[66..68]);
    }
}
