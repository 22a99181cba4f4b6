//! Vectors as arrays: the meaning of [`Isa`], on any processor.
//!
//! Where this is the only version of a kernel, it is inlined like the others. On x86-64 it only serves processors without
//! AVX2, and calls instead of inlined arrays take half to three quarters off its compile time, which was as much as that
//! of the two other versions together.

use super::isa::{Isa, Lanes};
use super::outline::Outlined;
use super::scalar::Scalar;
use half::{bf16, f16};

/// Plain Rust, 16 lanes in arrays.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

type F = [f32; 16];
type I = [i32; 16];
type M = [bool; 16];

/// Functions that do in each lane what [`Scalar`] does.
macro_rules! lanewise {
    ($($name:ident($($arg:ident: $from:ty),*) -> $to:ty;)*) => {$(
        #[cfg_attr(target_arch = "x86_64", inline(never))]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        unsafe fn $name($($arg: $from),*) -> $to {
            let mut out = [Default::default(); 16];
            for (lane, out) in out.iter_mut().enumerate() {
                // SAFETY: `Scalar` needs no instruction set.
                *out = unsafe { Scalar::$name($($arg[lane]),*) };
            }
            out
        }
    )*};
}

/// Halves the vector by `step(low, high)` until one lane is left: the fixed tree of all reductions.
macro_rules! reduce {
    ($v:expr, $step:expr) => {{
        let mut v = $v;
        let mut width = 8;
        while width > 0 {
            for lane in 0..width {
                // SAFETY: `Scalar` needs no instruction set.
                v[lane] = unsafe { $step(v[lane], v[lane + width]) };
            }
            width /= 2;
        }
        v[0]
    }};
}

impl Lanes for Portable {
    type F = F;
    type I = I;
    type M = M;

    #[inline(always)]
    unsafe fn splat_f(x: f32) -> F {
        [x; 16]
    }
    #[inline(always)]
    unsafe fn splat_i(x: i32) -> I {
        [x; 16]
    }
    #[inline(always)]
    unsafe fn splat_m(x: bool) -> M {
        [x; 16]
    }

    lanewise! {
        add_f(a: F, b: F) -> F;
        sub_f(a: F, b: F) -> F;
        mul_f(a: F, b: F) -> F;
        div_f(a: F, b: F) -> F;
        fma_f(a: F, b: F, c: F) -> F;
        min_f(a: F, b: F) -> F;
        max_f(a: F, b: F) -> F;
        neg_f(a: F) -> F;
        abs_f(a: F) -> F;
        sqrt_f(a: F) -> F;
        floor_f(a: F) -> F;
        round_f(a: F) -> F;
        add_i(a: I, b: I) -> I;
        sub_i(a: I, b: I) -> I;
        mul_i(a: I, b: I) -> I;
        and_i(a: I, b: I) -> I;
        or_i(a: I, b: I) -> I;
        xor_i(a: I, b: I) -> I;
        shl_i(a: I, b: I) -> I;
        shr_i(a: I, b: I) -> I;
        shr_u(a: I, b: I) -> I;
        min_i(a: I, b: I) -> I;
        max_i(a: I, b: I) -> I;
        lt_f(a: F, b: F) -> M;
        le_f(a: F, b: F) -> M;
        eq_f(a: F, b: F) -> M;
        lt_i(a: I, b: I) -> M;
        le_i(a: I, b: I) -> M;
        eq_i(a: I, b: I) -> M;
        lt_u(a: I, b: I) -> M;
        le_u(a: I, b: I) -> M;
        and_m(a: M, b: M) -> M;
        or_m(a: M, b: M) -> M;
        not_m(a: M) -> M;
        select_f(m: M, a: F, b: F) -> F;
        select_i(m: M, a: I, b: I) -> I;
        select_m(m: M, a: M, b: M) -> M;
        f_from_i(a: I) -> F;
        f_from_u(a: I) -> F;
        i_from_f(a: F) -> I;
        bits_f(a: I) -> F;
        bits_i(a: F) -> I;
    }
}

/// The valid lanes of 16.
#[inline(always)]
pub(super) fn valid(n: i32) -> usize {
    n.clamp(0, 16) as usize
}

/// Loads of `n` and of all elements, through `from`.
macro_rules! loads {
    ($($full:ident, $part:ident, $element:ty, $vector:ty, $from:expr;)*) => {$(
        #[cfg_attr(target_arch = "x86_64", inline(never))]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        unsafe fn $full(ptr: *const $element) -> $vector {
            unsafe { Self::$part(ptr, 16, [Default::default(); 16]) }
        }
        #[cfg_attr(target_arch = "x86_64", inline(never))]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        unsafe fn $part(ptr: *const $element, n: i32, fill: $vector) -> $vector {
            let mut out = fill;
            for (lane, out) in out.iter_mut().enumerate().take(valid(n)) {
                // SAFETY: the caller vouches for the first `n` elements.
                *out = $from(unsafe { ptr.add(lane).read_unaligned() });
            }
            out
        }
    )*};
}

/// Stores of `n` and of all elements, through `into`.
macro_rules! stores {
    ($($full:ident, $part:ident, $element:ty, $vector:ty, $into:expr;)*) => {$(
        #[cfg_attr(target_arch = "x86_64", inline(never))]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        unsafe fn $full(ptr: *mut $element, v: $vector) {
            unsafe { Self::$part(ptr, v, 16) }
        }
        #[cfg_attr(target_arch = "x86_64", inline(never))]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        unsafe fn $part(ptr: *mut $element, v: $vector, n: i32) {
            for (lane, v) in v.iter().enumerate().take(valid(n)) {
                // SAFETY: the caller vouches for the first `n` elements.
                unsafe { ptr.add(lane).write_unaligned($into(*v)) }
            }
        }
    )*};
}

macro_rules! gathers {
    ($($name:ident, $element:ty, $vector:ty, $from:expr;)*) => {$(
        #[cfg_attr(target_arch = "x86_64", inline(never))]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        unsafe fn $name(ptr: *const $element, index: I, m: M, fill: $vector) -> $vector {
            let mut out = fill;
            for (lane, out) in out.iter_mut().enumerate() {
                if m[lane] {
                    // SAFETY: the caller vouches for the elements of true lanes.
                    *out = $from(unsafe { ptr.offset(index[lane] as isize).read_unaligned() });
                }
            }
            out
        }
    )*};
}

#[inline(always)]
fn from_f16(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

#[inline(always)]
fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
fn to_f16(x: f32) -> u16 {
    f16::from_f32(x).to_bits()
}

#[inline(always)]
fn to_bf16(x: f32) -> u16 {
    bf16::from_f32(x).to_bits()
}

impl Isa for Portable {
    const WIDE: bool = false;
    const DOT8_SIGNED: bool = false;

    #[inline(always)]
    unsafe fn outline<O: Outlined>(work: O) {
        #[inline(never)]
        unsafe fn call<O: Outlined>(work: O) {
            unsafe { work.run::<Portable>() }
        }
        unsafe { call(work) }
    }

    #[inline(always)]
    unsafe fn iota() -> I {
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    }
    #[inline(always)]
    unsafe fn first_m(n: i32) -> M {
        let mut out = [false; 16];
        out[..valid(n)].fill(true);
        out
    }
    #[inline(always)]
    unsafe fn any_m(m: M) -> bool {
        m.contains(&true)
    }

    loads! {
        load_f32, load_f32_n, f32, F, |x| x;
        load_f16, load_f16_n, u16, F, from_f16;
        load_bf16, load_bf16_n, u16, F, from_bf16;
        load_i32, load_i32_n, i32, I, |x| x;
        load_i8, load_i8_n, i8, I, i32::from;
        load_u8, load_u8_n, u8, I, i32::from;
    }
    stores! {
        store_f32, store_f32_n, f32, F, |x| x;
        store_f16, store_f16_n, u16, F, to_f16;
        store_bf16, store_bf16_n, u16, F, to_bf16;
        store_i32, store_i32_n, i32, I, |x| x;
        store_i8, store_i8_n, i8, I, |x| x as i8;
        store_u8, store_u8_n, u8, I, |x| x as u8;
    }
    gathers! {
        gather_f32, f32, F, |x| x;
        gather_f16, u16, F, from_f16;
        gather_bf16, u16, F, from_bf16;
        gather_i32, i32, I, |x| x;
    }

    #[inline(always)]
    unsafe fn reduce_add_f(v: F) -> f32 {
        reduce!(v, Scalar::add_f)
    }
    #[inline(always)]
    unsafe fn reduce_max_f(v: F) -> f32 {
        reduce!(v, Scalar::max_f)
    }
    #[inline(always)]
    unsafe fn reduce_min_f(v: F) -> f32 {
        reduce!(v, Scalar::min_f)
    }
    #[inline(always)]
    unsafe fn reduce_add_i(v: I) -> i32 {
        reduce!(v, Scalar::add_i)
    }
    #[inline(always)]
    unsafe fn reduce_max_i(v: I) -> i32 {
        reduce!(v, Scalar::max_i)
    }
    #[inline(always)]
    unsafe fn reduce_min_i(v: I) -> i32 {
        reduce!(v, Scalar::min_i)
    }
    #[inline(always)]
    unsafe fn reduce_add_16(v: &[F; 16]) -> F {
        let mut out = [0.0; 16];
        for (row, out) in out.iter_mut().enumerate() {
            *out = unsafe { Self::reduce_add_f(v[row]) };
        }
        out
    }

    #[inline(always)]
    unsafe fn lane_f(v: F, i: usize) -> f32 {
        v[i]
    }
    #[inline(always)]
    unsafe fn lane_i(v: I, i: usize) -> i32 {
        v[i]
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    #[inline(always)]
    fn dot4_depth(_: u32) -> usize {
        usize::MAX
    }
    #[inline(always)]
    unsafe fn dot4(_: u32, acc: I, codes: I, x: I) -> I {
        let mut out = acc;
        for (lane, out) in out.iter_mut().enumerate() {
            let (codes, x) = (codes[lane].to_le_bytes(), x[lane].to_le_bytes());
            for byte in 0..4 {
                *out += i32::from(codes[byte]) * i32::from(x[byte] as i8);
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn dot4_fold(acc: I) -> I {
        acc
    }
}
