//! One lane: arithmetic for values that are uniform over a tile, and the definition of each lane of [`Portable`].
//!
//! [`Portable`]: super::Portable

use super::isa::Lanes;

/// A "vector" of one lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalar;

impl Lanes for Scalar {
    type F = f32;
    type I = i32;
    type M = bool;

    #[inline(always)]
    unsafe fn splat_f(x: f32) -> f32 {
        x
    }
    #[inline(always)]
    unsafe fn splat_i(x: i32) -> i32 {
        x
    }
    #[inline(always)]
    unsafe fn splat_m(x: bool) -> bool {
        x
    }

    #[inline(always)]
    unsafe fn add_f(a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    unsafe fn sub_f(a: f32, b: f32) -> f32 {
        a - b
    }
    #[inline(always)]
    unsafe fn mul_f(a: f32, b: f32) -> f32 {
        a * b
    }
    #[inline(always)]
    unsafe fn div_f(a: f32, b: f32) -> f32 {
        a / b
    }
    #[inline(always)]
    unsafe fn fma_f(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    unsafe fn min_f(a: f32, b: f32) -> f32 {
        if a < b { a } else { b }
    }
    #[inline(always)]
    unsafe fn max_f(a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }
    #[inline(always)]
    unsafe fn neg_f(a: f32) -> f32 {
        -a
    }
    #[inline(always)]
    unsafe fn abs_f(a: f32) -> f32 {
        a.abs()
    }
    #[inline(always)]
    unsafe fn sqrt_f(a: f32) -> f32 {
        a.sqrt()
    }
    #[inline(always)]
    unsafe fn floor_f(a: f32) -> f32 {
        a.floor()
    }
    #[inline(always)]
    unsafe fn round_f(a: f32) -> f32 {
        a.round_ties_even()
    }

    #[inline(always)]
    unsafe fn add_i(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    unsafe fn sub_i(a: i32, b: i32) -> i32 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    unsafe fn mul_i(a: i32, b: i32) -> i32 {
        a.wrapping_mul(b)
    }
    #[inline(always)]
    unsafe fn and_i(a: i32, b: i32) -> i32 {
        a & b
    }
    #[inline(always)]
    unsafe fn or_i(a: i32, b: i32) -> i32 {
        a | b
    }
    #[inline(always)]
    unsafe fn xor_i(a: i32, b: i32) -> i32 {
        a ^ b
    }
    #[inline(always)]
    unsafe fn shl_i(a: i32, b: i32) -> i32 {
        if (b as u32) < 32 { a << b } else { 0 }
    }
    #[inline(always)]
    unsafe fn shr_i(a: i32, b: i32) -> i32 {
        a >> (b as u32).min(31)
    }
    #[inline(always)]
    unsafe fn shr_u(a: i32, b: i32) -> i32 {
        if (b as u32) < 32 { (a as u32 >> b) as i32 } else { 0 }
    }
    #[inline(always)]
    unsafe fn min_i(a: i32, b: i32) -> i32 {
        a.min(b)
    }
    #[inline(always)]
    unsafe fn max_i(a: i32, b: i32) -> i32 {
        a.max(b)
    }

    #[inline(always)]
    unsafe fn lt_f(a: f32, b: f32) -> bool {
        a < b
    }
    #[inline(always)]
    unsafe fn le_f(a: f32, b: f32) -> bool {
        a <= b
    }
    #[inline(always)]
    unsafe fn eq_f(a: f32, b: f32) -> bool {
        a == b
    }
    #[inline(always)]
    unsafe fn lt_i(a: i32, b: i32) -> bool {
        a < b
    }
    #[inline(always)]
    unsafe fn le_i(a: i32, b: i32) -> bool {
        a <= b
    }
    #[inline(always)]
    unsafe fn eq_i(a: i32, b: i32) -> bool {
        a == b
    }
    #[inline(always)]
    unsafe fn lt_u(a: i32, b: i32) -> bool {
        (a as u32) < b as u32
    }
    #[inline(always)]
    unsafe fn le_u(a: i32, b: i32) -> bool {
        a as u32 <= b as u32
    }

    #[inline(always)]
    unsafe fn and_m(a: bool, b: bool) -> bool {
        a & b
    }
    #[inline(always)]
    unsafe fn or_m(a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    unsafe fn not_m(a: bool) -> bool {
        !a
    }
    #[inline(always)]
    unsafe fn select_f(m: bool, a: f32, b: f32) -> f32 {
        if m { a } else { b }
    }
    #[inline(always)]
    unsafe fn select_i(m: bool, a: i32, b: i32) -> i32 {
        if m { a } else { b }
    }
    #[inline(always)]
    unsafe fn select_m(m: bool, a: bool, b: bool) -> bool {
        if m { a } else { b }
    }

    #[inline(always)]
    unsafe fn f_from_i(a: i32) -> f32 {
        a as f32
    }
    #[inline(always)]
    unsafe fn f_from_u(a: i32) -> f32 {
        a as u32 as f32
    }
    #[inline(always)]
    unsafe fn i_from_f(a: f32) -> i32 {
        const LIMIT: f32 = 2_147_483_648.0;
        if (-LIMIT..LIMIT).contains(&a) { a as i32 } else { i32::MIN }
    }
    #[inline(always)]
    unsafe fn bits_f(a: i32) -> f32 {
        f32::from_bits(a as u32)
    }
    #[inline(always)]
    unsafe fn bits_i(a: f32) -> i32 {
        a.to_bits() as i32
    }
}
