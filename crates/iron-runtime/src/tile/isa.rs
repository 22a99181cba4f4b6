//! The vector interface that kernels and primitives are written against.
//!
//! A vector has 16 lanes on every instruction set, so the text of a kernel and the shape of every reduction are the
//! same everywhere, and float results are equal bit for bit between instruction sets.
//!
//! **Contract of every function here**: it may only run where the processor has the implementor's instruction set, and
//! it is only fast when inlined into a function that enables it (see [`cpu_entries!`](crate::cpu_entries)). Pointers
//! need the alignment of their element only; loads and stores touch just the elements that their description names.

use super::outline::Outlined;

/// Arithmetic lane by lane.
///
/// A supertrait of [`Isa`]: kernels reach these functions as `I::add_f(..)`. It stands alone so that
/// [`math`](super::math) can also be compiled for one lane, for values that are uniform over a tile.
pub trait Lanes: Copy + 'static {
    /// 32-bit floats.
    type F: Copy;
    /// 32-bit integers; signed and unsigned share the type.
    type I: Copy;
    /// Truth values.
    type M: Copy;

    /// The same float in every lane.
    unsafe fn splat_f(x: f32) -> Self::F;
    /// The same integer in every lane.
    unsafe fn splat_i(x: i32) -> Self::I;
    /// The same truth value in every lane.
    unsafe fn splat_m(x: bool) -> Self::M;

    /// `a + b`.
    unsafe fn add_f(a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    unsafe fn sub_f(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    unsafe fn mul_f(a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`, correctly rounded.
    unsafe fn div_f(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` with one rounding.
    unsafe fn fma_f(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a < b ? a : b`: a NaN on either side, or two zeros, gives `b`.
    unsafe fn min_f(a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`: a NaN on either side, or two zeros, gives `b`.
    unsafe fn max_f(a: Self::F, b: Self::F) -> Self::F;
    /// `-a`, by flipping the sign bit.
    unsafe fn neg_f(a: Self::F) -> Self::F;
    /// `|a|`, by clearing the sign bit.
    unsafe fn abs_f(a: Self::F) -> Self::F;
    /// Square root, correctly rounded.
    unsafe fn sqrt_f(a: Self::F) -> Self::F;
    /// The largest integer not above `a`.
    unsafe fn floor_f(a: Self::F) -> Self::F;
    /// The nearest integer, ties to even.
    unsafe fn round_f(a: Self::F) -> Self::F;

    /// `a + b`, wrapping.
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I;
    /// `a - b`, wrapping.
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I;
    /// `a * b`, low 32 bits.
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise and.
    unsafe fn and_i(a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    unsafe fn or_i(a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise exclusive or.
    unsafe fn xor_i(a: Self::I, b: Self::I) -> Self::I;
    /// `a << b`; zero where `b` as an unsigned number is 32 or more.
    unsafe fn shl_i(a: Self::I, b: Self::I) -> Self::I;
    /// Arithmetic `a >> b`; all sign bits where `b` as an unsigned number is 32 or more.
    unsafe fn shr_i(a: Self::I, b: Self::I) -> Self::I;
    /// Logical `a >> b`; zero where `b` as an unsigned number is 32 or more.
    unsafe fn shr_u(a: Self::I, b: Self::I) -> Self::I;
    /// Signed minimum.
    unsafe fn min_i(a: Self::I, b: Self::I) -> Self::I;
    /// Signed maximum.
    unsafe fn max_i(a: Self::I, b: Self::I) -> Self::I;

    /// `a < b`; false where either is NaN.
    unsafe fn lt_f(a: Self::F, b: Self::F) -> Self::M;
    /// `a <= b`; false where either is NaN.
    unsafe fn le_f(a: Self::F, b: Self::F) -> Self::M;
    /// `a == b`; false where either is NaN.
    unsafe fn eq_f(a: Self::F, b: Self::F) -> Self::M;
    /// Signed `a < b`.
    unsafe fn lt_i(a: Self::I, b: Self::I) -> Self::M;
    /// Signed `a <= b`.
    unsafe fn le_i(a: Self::I, b: Self::I) -> Self::M;
    /// `a == b`.
    unsafe fn eq_i(a: Self::I, b: Self::I) -> Self::M;
    /// Unsigned `a < b`.
    unsafe fn lt_u(a: Self::I, b: Self::I) -> Self::M;
    /// Unsigned `a <= b`.
    unsafe fn le_u(a: Self::I, b: Self::I) -> Self::M;

    /// Both.
    unsafe fn and_m(a: Self::M, b: Self::M) -> Self::M;
    /// Either.
    unsafe fn or_m(a: Self::M, b: Self::M) -> Self::M;
    /// The opposite.
    unsafe fn not_m(a: Self::M) -> Self::M;
    /// `m ? a : b`.
    unsafe fn select_f(m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// `m ? a : b`.
    unsafe fn select_i(m: Self::M, a: Self::I, b: Self::I) -> Self::I;
    /// `m ? a : b`.
    unsafe fn select_m(m: Self::M, a: Self::M, b: Self::M) -> Self::M;

    /// The nearest float of a signed integer.
    unsafe fn f_from_i(a: Self::I) -> Self::F;
    /// The nearest float of an unsigned integer.
    unsafe fn f_from_u(a: Self::I) -> Self::F;
    /// Truncation towards zero; `i32::MIN` for a NaN or a value that does not fit.
    unsafe fn i_from_f(a: Self::F) -> Self::I;
    /// The float with these bits.
    unsafe fn bits_f(a: Self::I) -> Self::F;
    /// The bits of a float.
    unsafe fn bits_i(a: Self::F) -> Self::I;
}

/// An instruction set: 16-lane vectors with memory, reductions and the steps of the integer dot product.
///
/// `_n` versions of loads take the number of valid lanes, of any sign and size: lanes from `n` on are `fill` and their
/// memory is not touched. `_n` versions of stores leave the memory of lanes from `n` on alone.
pub trait Isa: Lanes {
    /// Whether a vector is one 512-bit register; else it is several, and primitives pick smaller register tiles.
    const WIDE: bool;
    /// Whether [`Isa::dot4`] subtracts 128 from 8-bit codes.
    const DOT8_SIGNED: bool;

    /// Lanes 0, 1, .. 15.
    unsafe fn iota() -> Self::I;
    /// True in lanes below `n`: none for `n <= 0`, all for `n >= 16`.
    unsafe fn first_m(n: i32) -> Self::M;
    /// Whether any lane is true.
    unsafe fn any_m(m: Self::M) -> bool;

    /// 16 floats.
    unsafe fn load_f32(ptr: *const f32) -> Self::F;
    /// 16 half-precision floats, given as bits.
    unsafe fn load_f16(ptr: *const u16) -> Self::F;
    /// 16 bfloat16, given as bits.
    unsafe fn load_bf16(ptr: *const u16) -> Self::F;
    /// 16 words.
    unsafe fn load_i32(ptr: *const i32) -> Self::I;
    /// 16 bytes, sign-extended.
    unsafe fn load_i8(ptr: *const i8) -> Self::I;
    /// 16 bytes, zero-extended.
    unsafe fn load_u8(ptr: *const u8) -> Self::I;
    /// The first `n` of 16 floats.
    unsafe fn load_f32_n(ptr: *const f32, n: i32, fill: Self::F) -> Self::F;
    /// The first `n` of 16 half-precision floats.
    unsafe fn load_f16_n(ptr: *const u16, n: i32, fill: Self::F) -> Self::F;
    /// The first `n` of 16 bfloat16.
    unsafe fn load_bf16_n(ptr: *const u16, n: i32, fill: Self::F) -> Self::F;
    /// The first `n` of 16 words.
    unsafe fn load_i32_n(ptr: *const i32, n: i32, fill: Self::I) -> Self::I;
    /// The first `n` of 16 sign-extended bytes.
    unsafe fn load_i8_n(ptr: *const i8, n: i32, fill: Self::I) -> Self::I;
    /// The first `n` of 16 zero-extended bytes.
    unsafe fn load_u8_n(ptr: *const u8, n: i32, fill: Self::I) -> Self::I;

    /// 16 floats.
    unsafe fn store_f32(ptr: *mut f32, v: Self::F);
    /// 16 half-precision floats, ties to even; NaN stays NaN.
    unsafe fn store_f16(ptr: *mut u16, v: Self::F);
    /// 16 bfloat16, ties to even; NaN stays NaN.
    unsafe fn store_bf16(ptr: *mut u16, v: Self::F);
    /// 16 words.
    unsafe fn store_i32(ptr: *mut i32, v: Self::I);
    /// The low byte of each lane.
    unsafe fn store_i8(ptr: *mut i8, v: Self::I);
    /// The low byte of each lane.
    unsafe fn store_u8(ptr: *mut u8, v: Self::I);
    /// The first `n` of 16 floats.
    unsafe fn store_f32_n(ptr: *mut f32, v: Self::F, n: i32);
    /// The first `n` of 16 half-precision floats.
    unsafe fn store_f16_n(ptr: *mut u16, v: Self::F, n: i32);
    /// The first `n` of 16 bfloat16.
    unsafe fn store_bf16_n(ptr: *mut u16, v: Self::F, n: i32);
    /// The first `n` of 16 words.
    unsafe fn store_i32_n(ptr: *mut i32, v: Self::I, n: i32);
    /// The low bytes of the first `n` lanes.
    unsafe fn store_i8_n(ptr: *mut i8, v: Self::I, n: i32);
    /// The low bytes of the first `n` lanes.
    unsafe fn store_u8_n(ptr: *mut u8, v: Self::I, n: i32);

    /// `m ? ptr[index] : fill`, indices being signed elements.
    unsafe fn gather_f32(ptr: *const f32, index: Self::I, m: Self::M, fill: Self::F) -> Self::F;
    /// `m ? ptr[index] : fill`, indices being signed elements.
    unsafe fn gather_f16(ptr: *const u16, index: Self::I, m: Self::M, fill: Self::F) -> Self::F;
    /// `m ? ptr[index] : fill`, indices being signed elements.
    unsafe fn gather_bf16(ptr: *const u16, index: Self::I, m: Self::M, fill: Self::F) -> Self::F;
    /// `m ? ptr[index] : fill`, indices being signed elements.
    unsafe fn gather_i32(ptr: *const i32, index: Self::I, m: Self::M, fill: Self::I) -> Self::I;

    /// The sum of all lanes: lane i with i + 8, then i + 4, i + 2, i + 1.
    unsafe fn reduce_add_f(v: Self::F) -> f32;
    /// The maximum of all lanes by [`Lanes::max_f`], in the order of [`Isa::reduce_add_f`].
    unsafe fn reduce_max_f(v: Self::F) -> f32;
    /// The minimum of all lanes by [`Lanes::min_f`], in the order of [`Isa::reduce_add_f`].
    unsafe fn reduce_min_f(v: Self::F) -> f32;
    /// The wrapping sum of all lanes.
    unsafe fn reduce_add_i(v: Self::I) -> i32;
    /// The signed maximum of all lanes.
    unsafe fn reduce_max_i(v: Self::I) -> i32;
    /// The signed minimum of all lanes.
    unsafe fn reduce_min_i(v: Self::I) -> i32;
    /// Whether any lane is true (the same as [`Isa::any_m`]).
    #[inline(always)]
    unsafe fn reduce_or_m(m: Self::M) -> bool {
        unsafe { Self::any_m(m) }
    }
    /// Whether all lanes are true.
    #[inline(always)]
    unsafe fn reduce_and_m(m: Self::M) -> bool {
        unsafe { !Self::any_m(Self::not_m(m)) }
    }
    /// Lane `i` of the result is [`Isa::reduce_add_f`] of `v[i]`, bit for bit.
    unsafe fn reduce_add_16(v: &[Self::F; 16]) -> Self::F;

    /// Runs `work` in a function of its own.
    unsafe fn outline<O: Outlined>(work: O);

    /// Lane `i`, which must be below 16.
    unsafe fn lane_f(v: Self::F, i: usize) -> f32;
    /// Lane `i`, which must be below 16.
    unsafe fn lane_i(v: Self::I, i: usize) -> i32;

    /// Asks for the cache line of `ptr`, which need not be valid.
    unsafe fn prefetch(ptr: *const u8);

    /// How many [`Isa::dot4`] steps on codes of `bits` bits an accumulator takes before [`Isa::dot4_fold`].
    fn dot4_depth(bits: u32) -> usize;
    /// One step of an integer dot product: adds to each lane the four products of its unsigned `codes` bytes, which are
    /// below `1 << bits`, with its signed `x` bytes, which are above -128. With 8-bit codes and [`Isa::DOT8_SIGNED`] the
    /// codes count as `code - 128`. The accumulator starts as zeros and is opaque until folded.
    unsafe fn dot4(bits: u32, acc: Self::I, codes: Self::I, x: Self::I) -> Self::I;
    /// The 16 sums of an accumulator of [`Isa::dot4`].
    unsafe fn dot4_fold(acc: Self::I) -> Self::I;
}
