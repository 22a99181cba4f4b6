//! Compute layouts of quantised weights.
//!
//! Rows come in groups of 16. A group is a run of units of `UNIT` values along k, each a multiple of 64 bytes; within a
//! unit a vector holds one 32-bit word of every row, so that lane `l` belongs to row `l` of the group. A word carries
//! the codes of four neighbouring k (a *step*), as bytes or as nibbles of two neighbouring steps.

use iron_core::Format;

use super::isa::Isa;

/// A compute layout: how the dot products read a unit of 16 rows.
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

    /// The codes of steps `2 * pair` and `2 * pair + 1` of sub-block `sub`: four bytes a lane.
    unsafe fn codes<I: Isa>(unit: *const u8, sub: usize, pair: usize) -> [I::I; 2];
    /// The scales of sub-block `sub`.
    unsafe fn scale<I: Isa>(unit: *const u8, sub: usize) -> I::F;
    /// What is added to a scaled code of sub-block `sub`, in formats with a minimum.
    unsafe fn minimum<I: Isa>(unit: *const u8, sub: usize) -> I::F;
}

macro_rules! markers {
    ($($(#[$doc:meta])* $name:ident, $unit:expr, $bytes:expr, $sub:expr, $bits:expr, $offset:expr, $minimum:expr;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl PackedFormat for $name {
            const FORMAT: Format = Format::$name;
            const UNIT: usize = $unit;
            const UNIT_BYTES: usize = $bytes;
            const SUB: usize = $sub;
            const BITS: u32 = $bits;
            const OFFSET: i32 = $offset;
            const MINIMUM: bool = $minimum;
            #[inline(always)]
            unsafe fn codes<I: Isa>(_: *const u8, _: usize, _: usize) -> [I::I; 2] { todo!() }
            #[inline(always)]
            unsafe fn scale<I: Isa>(_: *const u8, _: usize) -> I::F { todo!() }
            #[inline(always)]
            unsafe fn minimum<I: Isa>(_: *const u8, _: usize) -> I::F { todo!() }
        })*
    };
}
markers! {
    /// Bytes offset by 128 under one scale per 32.
    Q8_0, 64, 1088, 32, 8, 128, false;
    /// Nibbles offset by 8 under one scale per 32.
    Q4_0, 64, 576, 32, 4, 8, false;
    /// Nibbles with one scale and one minimum per 32.
    Q4_1, 64, 640, 32, 4, 0, true;
    /// Nibbles with 6-bit scales and minima per 32 under an f16 pair per 256.
    Q4K, 256, 2304, 32, 4, 0, true;
    /// Six bits offset by 32 with 8-bit scales per 16 under one f16 per 256.
    Q6K, 256, 3392, 16, 6, 32, false;
}
