//! Small pieces that generated kernels use beside [`Isa`]: positions, scatters, checked division.

use std::mem::MaybeUninit;

use super::isa::Isa;

/// `base + lane * step` in every lane.
#[inline(always)]
pub unsafe fn affine<I: Isa>(base: i32, step: i32) -> I::I {
    unsafe {
        let lanes = if step == 1 { I::iota() } else { I::mul_i(I::iota(), I::splat_i(step)) };
        I::add_i(I::splat_i(base), lanes)
    }
}

/// `16 * V` values of a tile in memory as vectors.
#[inline(always)]
pub unsafe fn load_vectors<I: Isa, const V: usize>(from: *const f32) -> [I::F; V] {
    unsafe {
        let mut out = [I::splat_f(0.0); V];
        for (v, lanes) in out.iter_mut().enumerate() {
            *lanes = I::load_f32(from.add(16 * v));
        }
        out
    }
}

/// The inverse of [`load_vectors`].
#[inline(always)]
pub unsafe fn store_vectors<I: Isa, const V: usize>(to: *mut f32, values: &[I::F; V]) {
    unsafe {
        for (v, lanes) in values.iter().enumerate() {
            I::store_f32(to.add(16 * v), *lanes);
        }
    }
}

/// Sets `count` elements to `value`.
#[inline(always)]
pub unsafe fn fill<T: Copy>(to: *mut T, count: usize, value: T) {
    unsafe {
        std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<T>>(), count)
            .fill(MaybeUninit::new(value));
    }
}

/// `a / b` towards zero; 0 where `b` is 0.
#[inline(always)]
pub fn div_i(a: i32, b: i32) -> i32 {
    a.checked_div(b).unwrap_or(0)
}

/// `a % b` with the sign of `a`; 0 where `b` is 0.
#[inline(always)]
pub fn rem_i(a: i32, b: i32) -> i32 {
    a.checked_rem(b).unwrap_or(0)
}

/// The smaller of two, as `Isa::min_f` has it.
#[inline(always)]
pub fn min_value(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The larger of two, as `Isa::max_f` has it.
#[inline(always)]
pub fn max_value(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The value of half-precision bits.
#[inline(always)]
pub fn f16_value(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32()
}

/// The nearest half-precision bits.
#[inline(always)]
pub fn f16_bits(value: f32) -> u16 {
    half::f16::from_f32(value).to_bits()
}

/// The value of bfloat16 bits.
#[inline(always)]
pub fn bf16_value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16 bits.
#[inline(always)]
pub fn bf16_bits(value: f32) -> u16 {
    half::bf16::from_f32(value).to_bits()
}

macro_rules! lanewise {
    ($($(#[$doc:meta])* $name:ident, $of:expr;)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub unsafe fn $name<I: Isa>(a: I::I, b: I::I) -> I::I {
            unsafe {
                let mut lanes = [0_i32; 16];
                for (lane, value) in lanes.iter_mut().enumerate() {
                    *value = $of(I::lane_i(a, lane), I::lane_i(b, lane));
                }
                I::load_i32(lanes.as_ptr())
            }
        })*
    };
}
lanewise! {
    /// [`div_i`] in every lane.
    div_lanes_i, div_i;
    /// [`rem_i`] in every lane.
    rem_lanes_i, rem_i;
    /// Unsigned division in every lane; 0 where `b` is 0.
    div_lanes_u, |a: i32, b: i32| (a as u32).checked_div(b as u32).unwrap_or(0) as i32;
    /// Unsigned remainder in every lane; 0 where `b` is 0.
    rem_lanes_u, |a: i32, b: i32| (a as u32).checked_rem(b as u32).unwrap_or(0) as i32;
}

macro_rules! scatters {
    ($($(#[$doc:meta])* $name:ident, $element:ty, $vector:ident, $spilled:ty, $store:ident;)*) => {
        $($(#[$doc])*
        ///
        /// Elements go to `to + index` in ascending lane order where the mask is set.
        #[inline(always)]
        pub unsafe fn $name<I: Isa>(to: *mut $element, index: I::I, mask: I::M, values: I::$vector) {
            unsafe {
                let mut spilled: [$spilled; 16] = [Default::default(); 16];
                I::$store(spilled.as_mut_ptr().cast(), values);
                let mut indices = [0_i32; 16];
                I::store_i32(indices.as_mut_ptr(), index);
                let mut selected = [0_i32; 16];
                I::store_i32(selected.as_mut_ptr(), I::select_i(mask, I::splat_i(1), I::splat_i(0)));
                for lane in 0..16 {
                    if selected[lane] != 0 {
                        *to.wrapping_offset(indices[lane] as isize) = spilled[lane];
                    }
                }
            }
        })*
    };
}
scatters! {
    /// Scatters f32.
    scatter_f32, f32, F, f32, store_f32;
    /// Scatters f16.
    scatter_f16, u16, F, u16, store_f16;
    /// Scatters bf16.
    scatter_bf16, u16, F, u16, store_bf16;
    /// Scatters i32.
    scatter_i32, i32, I, i32, store_i32;
    /// Scatters i8.
    scatter_i8, i8, I, i8, store_i8;
    /// Scatters u8.
    scatter_u8, u8, I, u8, store_u8;
}
