//! Compute layouts of quantised weights.
//!
//! Rows come in groups of 16. A group is a run of units of [`PackedFormat::UNIT`] values along k, each a multiple of 64
//! bytes; within a unit a vector holds one 32-bit word of every row, so that lane `l` belongs to row `l` of the group. A
//! word carries the codes of four neighbouring k (a *step*), as bytes or as nibbles of two neighbouring steps.

mod q2k;
mod q3k;
mod q4;
mod q4k;
mod q5;
mod q5k;
mod q6k;
mod q8;
mod six_bit;

use half::f16;
use iron_core::Format;

use super::isa::Isa;
pub use q2k::Q2K;
pub use q3k::Q3K;
pub use q4::{Q4_0, Q4_1};
pub use q4k::Q4K;
pub use q5::{Q5_0, Q5_1};
pub use q5k::Q5K;
pub use q6k::Q6K;
pub use q8::Q8_0;

/// A compute layout: how a unit of 16 rows is written and read.
///
/// `unit` points to a whole unit, `sub` is below `UNIT / SUB`, `row` below 16.
pub trait PackedFormat: Copy + 'static {
    /// The storage format that packs into this layout.
    const FORMAT: Format;
    /// Values of one row in a unit.
    const UNIT: usize;
    /// Bytes of a unit of 16 rows.
    const UNIT_BYTES: usize;
    /// Neighbouring values of one row that share a scale.
    const SUB: usize;
    /// Bits of a code.
    const BITS: u32;
    /// What is subtracted from a code before scaling; 0 where a minimum is added afterwards instead.
    const OFFSET: i32;
    /// Whether a sub-block has a minimum.
    const MINIMUM: bool;

    /// The codes of steps `2 * pair` and `2 * pair + 1` of a sub-block: four bytes a lane.
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2];
    /// The scales of a sub-block.
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F;
    /// What is added to the scaled codes of a sub-block: zeros in formats without a minimum.
    #[inline(always)]
    unsafe fn minimum<I: Isa>(_unit: *const u8, _sub: usize) -> I::F {
        unsafe { I::splat_f(0.0) }
    }

    /// One row's codes of one step of a sub-block.
    unsafe fn row_codes(unit: *const u8, sub: usize, step: usize, row: usize) -> [u8; 4];
    /// One row's scale and minimum of a sub-block.
    unsafe fn row_scale(unit: *const u8, sub: usize, row: usize) -> (f32, f32);

    /// Writes storage block number `index` of the unit's row `row` into a unit that is zero there.
    fn pack_block(block: &[u8], unit: &mut [u8], index: usize, row: usize);
}

/// Bytes between a sub-block's weights and what is prefetched while it is computed: raised decode bandwidth by up to a
/// quarter on Ice Lake against no prefetch.
const PREFETCH_BYTES: usize = 4096;

/// Asks for a sub-block's share of the lines of a unit that comes soon.
///
/// A share at a time, since a unit's lines together are more than a core can have in flight.
#[inline(always)]
pub(super) unsafe fn prefetch_share<I: Isa, W: PackedFormat>(unit: *const u8, sub: usize) {
    unsafe {
        let share = (W::UNIT_BYTES / 64).div_ceil(W::UNIT / W::SUB);
        for line in 0..share {
            I::prefetch(unit.wrapping_add(PREFETCH_BYTES + 64 * (sub * share + line)));
        }
    }
}

/// Half-precision scales of 16 rows.
#[inline(always)]
unsafe fn halves<I: Isa>(unit: *const u8, offset: usize) -> I::F {
    unsafe { I::load_f16(unit.add(offset).cast()) }
}

/// One row's half-precision scale.
#[inline(always)]
unsafe fn half_of_row(unit: *const u8, offset: usize, row: usize) -> f32 {
    unsafe { f16::from_bits(unit.add(offset + 2 * row).cast::<u16>().read_unaligned()).to_f32() }
}

/// One row's word of a vector.
#[inline(always)]
unsafe fn word_of_row(unit: *const u8, offset: usize, row: usize) -> u32 {
    unsafe { unit.add(offset + 4 * row).cast::<u32>().read_unaligned() }
}

/// A vector of words.
#[inline(always)]
unsafe fn words<I: Isa>(unit: *const u8, offset: usize) -> I::I {
    unsafe { I::load_i32(unit.add(offset).cast()) }
}

const NIBBLES: u32 = 0x0f0f_0f0f;

/// The two steps of a vector of nibbles.
#[inline(always)]
unsafe fn nibbles<I: Isa>(unit: *const u8, offset: usize) -> [I::I; 2] {
    unsafe {
        let (both, mask) = (words::<I>(unit, offset), I::splat_i(NIBBLES as i32));
        [I::and_i(both, mask), I::and_i(I::shr_u(both, I::splat_i(4)), mask)]
    }
}

/// One row's codes of a step of nibbles, with the vectors of the sub-block starting at `offset`.
#[inline(always)]
unsafe fn nibbles_of_row(unit: *const u8, offset: usize, step: usize, row: usize) -> [u8; 4] {
    let word = unsafe { word_of_row(unit, offset + step / 2 * 64, row) };
    (word >> (4 * (step % 2)) & NIBBLES).to_le_bytes()
}

/// The word at `index` of a block's bytes.
fn word_at(bytes: &[u8], index: usize) -> u32 {
    u32::from_le_bytes([
        bytes[4 * index],
        bytes[4 * index + 1],
        bytes[4 * index + 2],
        bytes[4 * index + 3],
    ])
}

fn put_word(unit: &mut [u8], offset: usize, row: usize, word: u32) {
    unit[offset + 4 * row..][..4].copy_from_slice(&word.to_le_bytes());
}

fn put_half(unit: &mut [u8], offset: usize, row: usize, half: &[u8]) {
    unit[offset + 2 * row..][..2].copy_from_slice(half);
}

/// Packs a ggml run of 32 or more nibble codes: 16 bytes hold codes 0..16 low and 16..32 high, so each vector of two
/// steps takes two words of the same half.
fn put_nibbles(unit: &mut [u8], offset: usize, row: usize, bytes: &[u8], high: bool) {
    let shift = if high { 4 } else { 0 };
    for vector in 0..bytes.len() / 8 {
        let first = word_at(bytes, 2 * vector) >> shift & NIBBLES;
        let second = word_at(bytes, 2 * vector + 1) >> shift & NIBBLES;
        put_word(unit, offset + 64 * vector, row, first | second << 4);
    }
}

/// Moves bit `step` of each byte to bit `to` and clears the others.
#[inline(always)]
unsafe fn move_bit<I: Isa>(word: I::I, step: usize, to: usize) -> I::I {
    unsafe {
        let moved = if step <= to {
            I::shl_i(word, I::splat_i((to - step) as i32))
        } else {
            I::shr_u(word, I::splat_i((step - to) as i32))
        };
        I::and_i(moved, I::splat_i(0x0101_0101 << to))
    }
}

/// The two steps of a vector of nibbles with their fifth bits. Four vectors of nibbles a sub-block start the unit; from
/// `fifth` on, each sub-block has a vector with a bit a step in every byte.
#[inline(always)]
unsafe fn five_bits<I: Isa>(unit: *const u8, fifth: usize, sub: usize, pair: usize) -> [I::I; 2] {
    unsafe {
        let [first, second] = nibbles::<I>(unit, 256 * sub + 64 * pair);
        let word = words::<I>(unit, fifth + 64 * sub);
        [
            I::or_i(first, move_bit::<I>(word, 2 * pair, 4)),
            I::or_i(second, move_bit::<I>(word, 2 * pair + 1, 4)),
        ]
    }
}

/// One row's codes of a step of [`five_bits`].
#[inline(always)]
unsafe fn five_bits_of_row(
    unit: *const u8,
    fifth: usize,
    sub: usize,
    step: usize,
    row: usize,
) -> [u8; 4] {
    unsafe {
        let low = u32::from_le_bytes(nibbles_of_row(unit, 256 * sub, step, row));
        let high = word_of_row(unit, fifth + 64 * sub, row) >> step & 0x0101_0101;
        (low | high << 4).to_le_bytes()
    }
}

/// Packs the fifth bits of 32 values.
fn put_fifth_bits(unit: &mut [u8], offset: usize, row: usize, bit: impl Fn(usize) -> u8) {
    let word = (0..32)
        .fold(0, |word, value| word | u32::from(bit(value)) << (8 * (value % 4) + value / 4));
    put_word(unit, offset, row, word);
}

/// The two-bit codes of steps `2 * pair` and `2 * pair + 1` from a vector with two bits a step in every byte.
#[inline(always)]
unsafe fn two_bits<I: Isa>(unit: *const u8, offset: usize, pair: usize) -> [I::I; 2] {
    unsafe {
        let (word, mask) = (words::<I>(unit, offset), I::splat_i(0x0303_0303));
        let step = |step: usize| I::and_i(I::shr_u(word, I::splat_i(2 * step as i32)), mask);
        [step(2 * pair), step(2 * pair + 1)]
    }
}

/// One row's two-bit codes of a step.
#[inline(always)]
unsafe fn two_bits_of_row(unit: *const u8, offset: usize, step: usize, row: usize) -> u32 {
    unsafe { word_of_row(unit, offset, row) >> (2 * step) & 0x0303_0303 }
}

/// Packs ggml's 64 bytes of 256 two-bit codes, a vector for each 16: two halves of 32 bytes, whose four runs of 32 codes
/// are at bits 0, 2, 4, 6.
fn put_two_bits(unit: &mut [u8], offset: usize, row: usize, bytes: &[u8]) {
    for sub in 0..16 {
        let word = (0..16).fold(0, |word, at| {
            let value = 16 * sub + at;
            let code = bytes[value / 128 * 32 + value % 32] >> (value % 128 / 32 * 2) & 3;
            word | u32::from(code) << (8 * (at % 4) + at / 4 * 2)
        });
        put_word(unit, offset + 64 * sub, row, word);
    }
}
