//! Compute layouts of quantised weights.
//!
//! Rows come in groups of 16. A group is a run of units of [`PackedFormat::UNIT`] values along k, each a multiple of 64
//! bytes; within a unit a vector holds one 32-bit word of every row, so that lane `l` belongs to row `l` of the group. A
//! word carries the codes of four neighbouring k (a *step*), as bytes or as nibbles of two neighbouring steps.

mod q4;
mod q4k;
mod q6k;
mod q8;

use half::f16;
use iron_core::Format;

use super::isa::Isa;
pub use q4::{Q4_0, Q4_1};
pub use q4k::Q4K;
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
    /// What is added to the scaled codes of a sub-block; called for formats with a minimum only.
    unsafe fn minimum<I: Isa>(unit: *const u8, sub: usize) -> I::F;

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
