//! AVX2 with FMA and F16C: a vector is two registers.
#![cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "intrinsics name themselves"))]

use super::outline::Outlined;
use core::arch::x86_64::*;

use super::isa::{Isa, Lanes};
use super::portable::valid;

/// AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2;

type F = [__m256; 2];
type I = [__m256i; 2];
/// All bits of a lane are its truth value.
type M = [__m256i; 2];

/// Functions that are one expression of intrinsics for each half of their vectors.
macro_rules! halves {
    ($($name:ident($($arg:ident: $from:ty),*) -> $to:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $from),*) -> $to {
            // SAFETY: the caller has the instruction set.
            unsafe {
                [
                    { $(let $arg = $arg[0];)* $body },
                    { $(let $arg = $arg[1];)* $body },
                ]
            }
        }
    )*};
}

/// Functions that are one expression.
macro_rules! ops {
    ($($name:ident($($arg:ident: $from:ty),*) -> $to:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $from),*) -> $to {
            // SAFETY: the caller has the instruction set and vouches for the pointers, as the trait demands.
            unsafe { $body }
        }
    )*};
}

#[inline(always)]
unsafe fn not(v: __m256i) -> __m256i {
    unsafe { _mm256_xor_si256(v, _mm256_set1_epi32(-1)) }
}

/// Moves the unsigned order onto the signed one.
#[inline(always)]
unsafe fn flip(v: __m256i) -> __m256i {
    unsafe { _mm256_xor_si256(v, _mm256_set1_epi32(i32::MIN)) }
}

#[inline(always)]
unsafe fn blend(m: __m256i, a: __m256, b: __m256) -> __m256 {
    unsafe { _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m)) }
}

#[inline(always)]
unsafe fn compare<const OP: i32>(a: __m256, b: __m256) -> __m256i {
    unsafe { _mm256_castps_si256(_mm256_cmp_ps::<OP>(a, b)) }
}

impl Lanes for Avx2 {
    type F = F;
    type I = I;
    type M = M;

    ops! {
        splat_f(x: f32) -> F = [_mm256_set1_ps(x); 2];
        splat_i(x: i32) -> I = [_mm256_set1_epi32(x); 2];
        splat_m(x: bool) -> M = [_mm256_set1_epi32(-i32::from(x)); 2];
    }
    halves! {
        add_f(a: F, b: F) -> F = _mm256_add_ps(a, b);
        sub_f(a: F, b: F) -> F = _mm256_sub_ps(a, b);
        mul_f(a: F, b: F) -> F = _mm256_mul_ps(a, b);
        div_f(a: F, b: F) -> F = _mm256_div_ps(a, b);
        fma_f(a: F, b: F, c: F) -> F = _mm256_fmadd_ps(a, b, c);
        min_f(a: F, b: F) -> F = _mm256_min_ps(a, b);
        max_f(a: F, b: F) -> F = _mm256_max_ps(a, b);
        neg_f(a: F) -> F = _mm256_xor_ps(a, _mm256_set1_ps(-0.0));
        abs_f(a: F) -> F = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        sqrt_f(a: F) -> F = _mm256_sqrt_ps(a);
        floor_f(a: F) -> F = _mm256_floor_ps(a);
        round_f(a: F) -> F = _mm256_round_ps::<0x08>(a);
        add_i(a: I, b: I) -> I = _mm256_add_epi32(a, b);
        sub_i(a: I, b: I) -> I = _mm256_sub_epi32(a, b);
        mul_i(a: I, b: I) -> I = _mm256_mullo_epi32(a, b);
        and_i(a: I, b: I) -> I = _mm256_and_si256(a, b);
        or_i(a: I, b: I) -> I = _mm256_or_si256(a, b);
        xor_i(a: I, b: I) -> I = _mm256_xor_si256(a, b);
        shl_i(a: I, b: I) -> I = _mm256_sllv_epi32(a, b);
        shr_i(a: I, b: I) -> I = _mm256_srav_epi32(a, b);
        shr_u(a: I, b: I) -> I = _mm256_srlv_epi32(a, b);
        min_i(a: I, b: I) -> I = _mm256_min_epi32(a, b);
        max_i(a: I, b: I) -> I = _mm256_max_epi32(a, b);
        lt_f(a: F, b: F) -> M = compare::<_CMP_LT_OQ>(a, b);
        le_f(a: F, b: F) -> M = compare::<_CMP_LE_OQ>(a, b);
        eq_f(a: F, b: F) -> M = compare::<_CMP_EQ_OQ>(a, b);
        lt_i(a: I, b: I) -> M = _mm256_cmpgt_epi32(b, a);
        le_i(a: I, b: I) -> M = not(_mm256_cmpgt_epi32(a, b));
        eq_i(a: I, b: I) -> M = _mm256_cmpeq_epi32(a, b);
        lt_u(a: I, b: I) -> M = _mm256_cmpgt_epi32(flip(b), flip(a));
        le_u(a: I, b: I) -> M = not(_mm256_cmpgt_epi32(flip(a), flip(b)));
        and_m(a: M, b: M) -> M = _mm256_and_si256(a, b);
        or_m(a: M, b: M) -> M = _mm256_or_si256(a, b);
        not_m(a: M) -> M = not(a);
        select_f(m: M, a: F, b: F) -> F = blend(m, a, b);
        select_i(m: M, a: I, b: I) -> I = _mm256_blendv_epi8(b, a, m);
        select_m(m: M, a: M, b: M) -> M = _mm256_blendv_epi8(b, a, m);
        f_from_i(a: I) -> F = _mm256_cvtepi32_ps(a);
        // The high half scaled is exact, so the sum rounds once.
        f_from_u(a: I) -> F = _mm256_fmadd_ps(
            _mm256_cvtepi32_ps(_mm256_srli_epi32::<16>(a)),
            _mm256_set1_ps(65536.0),
            _mm256_cvtepi32_ps(_mm256_and_si256(a, _mm256_set1_epi32(0xffff))),
        );
        i_from_f(a: F) -> I = _mm256_cvttps_epi32(a);
        bits_f(a: I) -> F = _mm256_castsi256_ps(a);
        bits_i(a: F) -> I = _mm256_castps_si256(a);
    }
}

#[inline(always)]
unsafe fn from_bf16(bits: __m128i) -> __m256 {
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits))) }
}

/// The bits of 8 bfloat16, ties to even, in 32-bit lanes.
#[inline(always)]
unsafe fn bf16_bits(v: __m256) -> __m256i {
    unsafe {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let nan = compare::<_CMP_UNORD_Q>(v, v);
        _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan))
    }
}

/// The low 16 bits of each lane; the lanes must be below 65536.
#[inline(always)]
unsafe fn narrow(v: I) -> __m256i {
    unsafe { _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(v[0], v[1])) }
}

/// The low byte of each lane.
#[inline(always)]
unsafe fn bytes(v: I) -> __m128i {
    unsafe {
        let mask = _mm256_set1_epi32(0xff);
        let words = narrow([_mm256_and_si256(v[0], mask), _mm256_and_si256(v[1], mask)]);
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
    }
}

/// Loads of the first `n` elements, for types without a masked load: whole vectors directly, parts through a buffer.
macro_rules! part_loads {
    ($($name:ident, $full:ident, $element:ty, $vector:ty, $select:ident;)*) => {$(
        #[inline(always)]
        unsafe fn $name(ptr: *const $element, n: i32, fill: $vector) -> $vector {
            // SAFETY: only the first `n` elements are read, for which the caller vouches.
            unsafe {
                if n >= 16 {
                    return Self::$full(ptr);
                }
                let mut buffer = [0; 16];
                for lane in 0..valid(n) {
                    buffer[lane] = ptr.add(lane).read_unaligned();
                }
                Self::$select(Self::first_m(n), Self::$full(buffer.as_ptr()), fill)
            }
        }
    )*};
}

/// Stores of the first `n` elements, like [`part_loads`].
macro_rules! part_stores {
    ($($name:ident, $full:ident, $element:ty, $vector:ty;)*) => {$(
        #[inline(always)]
        unsafe fn $name(ptr: *mut $element, v: $vector, n: i32) {
            // SAFETY: only the first `n` elements are written, for which the caller vouches.
            unsafe {
                if n >= 16 {
                    return Self::$full(ptr, v);
                }
                let mut buffer = [0; 16];
                Self::$full(buffer.as_mut_ptr(), v);
                for lane in 0..valid(n) {
                    ptr.add(lane).write_unaligned(buffer[lane]);
                }
            }
        }
    )*};
}

/// 16-bit elements one by one: there is no gather instruction for them.
macro_rules! gather_16_bit {
    ($name:ident, $load:ident) => {
        #[inline(always)]
        unsafe fn $name(ptr: *const u16, index: I, m: M, fill: F) -> F {
            // SAFETY: the caller vouches for the elements of true lanes, and no others are read.
            unsafe {
                let (mut at, mut on) = ([0i32; 16], [0i32; 16]);
                Self::store_i32(at.as_mut_ptr(), index);
                Self::store_i32(on.as_mut_ptr(), m);
                let mut bits = [0u16; 16];
                for lane in 0..16 {
                    if on[lane] != 0 {
                        bits[lane] = ptr.offset(at[lane] as isize).read_unaligned();
                    }
                }
                Self::select_f(m, Self::$load(bits.as_ptr()), fill)
            }
        }
    };
}

/// The three steps of a reduction after the two halves: lanes 4 apart, 2 apart, 1 apart.
macro_rules! reduce_ps {
    ($v:expr, $half:ident, $quarter:ident, $one:ident) => {{
        let v = $half($v[0], $v[1]);
        let v = $quarter(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = $quarter(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32($one(v, _mm_movehdup_ps(v)))
    }};
}

macro_rules! reduce_epi32 {
    ($v:expr, $half:ident, $quarter:ident) => {{
        let v = $half($v[0], $v[1]);
        let v = $quarter(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        let v = $quarter(v, _mm_shuffle_epi32::<0b11_10_11_10>(v));
        _mm_cvtsi128_si32($quarter(v, _mm_shuffle_epi32::<0b01>(v)))
    }};
}

/// The sums of eight rows of which the upper and lower halves are added already.
#[inline(always)]
unsafe fn reduce_rows(rows: [__m256; 8]) -> __m256 {
    unsafe {
        let mut quarter = [_mm256_setzero_ps(); 4];
        for i in 0..4 {
            // Blocks of four lanes: rows i, i + 4.
            let low = _mm256_permute2f128_ps::<0x20>(rows[i], rows[i + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(rows[i], rows[i + 4]);
            quarter[i] = _mm256_add_ps(low, high);
        }
        let mut pair = [_mm256_setzero_ps(); 2];
        for i in 0..2 {
            // In each block: rows +0, +0, +2, +2.
            let low = _mm256_shuffle_ps::<0b01_00_01_00>(quarter[i], quarter[i + 2]);
            let high = _mm256_shuffle_ps::<0b11_10_11_10>(quarter[i], quarter[i + 2]);
            pair[i] = _mm256_add_ps(low, high);
        }
        // In each block: rows +0, +2, +1, +3.
        let low = _mm256_shuffle_ps::<0b10_00_10_00>(pair[0], pair[1]);
        let high = _mm256_shuffle_ps::<0b11_01_11_01>(pair[0], pair[1]);
        _mm256_permute_ps::<0b11_01_10_00>(_mm256_add_ps(low, high))
    }
}

impl Isa for Avx2 {
    const WIDE: bool = false;
    const DOT8_SIGNED: bool = true;

    #[inline(always)]
    unsafe fn outline<O: Outlined>(work: O) {
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline(never)]
        unsafe fn call<O: Outlined>(work: O) {
            unsafe { work.run::<Avx2>() }
        }
        unsafe { call(work) }
    }

    ops! {
        iota() -> I = [_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)];
        first_m(n: i32) -> M = Self::lt_i(Self::iota(), Self::splat_i(n));
        any_m(m: M) -> bool = {
            let any = _mm256_or_si256(m[0], m[1]);
            _mm256_testz_si256(any, any) == 0
        };

        load_f32(ptr: *const f32) -> F = [_mm256_loadu_ps(ptr), _mm256_loadu_ps(ptr.add(8))];
        load_f16(ptr: *const u16) -> F =
            [_mm256_cvtph_ps(_mm_loadu_si128(ptr.cast())), _mm256_cvtph_ps(_mm_loadu_si128(ptr.add(8).cast()))];
        load_bf16(ptr: *const u16) -> F =
            [from_bf16(_mm_loadu_si128(ptr.cast())), from_bf16(_mm_loadu_si128(ptr.add(8).cast()))];
        load_i32(ptr: *const i32) -> I = [_mm256_loadu_si256(ptr.cast()), _mm256_loadu_si256(ptr.add(8).cast())];
        load_i8(ptr: *const i8) -> I =
            [_mm256_cvtepi8_epi32(_mm_loadl_epi64(ptr.cast())), _mm256_cvtepi8_epi32(_mm_loadl_epi64(ptr.add(8).cast()))];
        load_u8(ptr: *const u8) -> I =
            [_mm256_cvtepu8_epi32(_mm_loadl_epi64(ptr.cast())), _mm256_cvtepu8_epi32(_mm_loadl_epi64(ptr.add(8).cast()))];

        load_f32_n(ptr: *const f32, n: i32, fill: F) -> F = {
            if n >= 16 {
                return Self::load_f32(ptr);
            }
            let m = Self::first_m(n);
            let low = _mm256_maskload_ps(ptr, m[0]);
            Self::select_f(m, [low, _mm256_maskload_ps(ptr.wrapping_add(8), m[1])], fill)
        };
        load_i32_n(ptr: *const i32, n: i32, fill: I) -> I = {
            if n >= 16 {
                return Self::load_i32(ptr);
            }
            let m = Self::first_m(n);
            let low = _mm256_maskload_epi32(ptr, m[0]);
            Self::select_i(m, [low, _mm256_maskload_epi32(ptr.wrapping_add(8), m[1])], fill)
        };

        store_f32(ptr: *mut f32, v: F) -> () = {
            _mm256_storeu_ps(ptr, v[0]);
            _mm256_storeu_ps(ptr.add(8), v[1]);
        };
        store_f16(ptr: *mut u16, v: F) -> () = {
            _mm_storeu_si128(ptr.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]));
            _mm_storeu_si128(ptr.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]));
        };
        store_bf16(ptr: *mut u16, v: F) -> () =
            _mm256_storeu_si256(ptr.cast(), narrow([bf16_bits(v[0]), bf16_bits(v[1])]));
        store_i32(ptr: *mut i32, v: I) -> () = {
            _mm256_storeu_si256(ptr.cast(), v[0]);
            _mm256_storeu_si256(ptr.add(8).cast(), v[1]);
        };
        store_i8(ptr: *mut i8, v: I) -> () = _mm_storeu_si128(ptr.cast(), bytes(v));
        store_u8(ptr: *mut u8, v: I) -> () = _mm_storeu_si128(ptr.cast(), bytes(v));

        store_f32_n(ptr: *mut f32, v: F, n: i32) -> () = {
            if n >= 16 {
                return Self::store_f32(ptr, v);
            }
            let m = Self::first_m(n);
            _mm256_maskstore_ps(ptr, m[0], v[0]);
            _mm256_maskstore_ps(ptr.wrapping_add(8), m[1], v[1]);
        };
        store_i32_n(ptr: *mut i32, v: I, n: i32) -> () = {
            if n >= 16 {
                return Self::store_i32(ptr, v);
            }
            let m = Self::first_m(n);
            _mm256_maskstore_epi32(ptr, m[0], v[0]);
            _mm256_maskstore_epi32(ptr.wrapping_add(8), m[1], v[1]);
        };

        gather_f32(ptr: *const f32, index: I, m: M, fill: F) -> F = [
            _mm256_mask_i32gather_ps::<4>(fill[0], ptr, index[0], _mm256_castsi256_ps(m[0])),
            _mm256_mask_i32gather_ps::<4>(fill[1], ptr, index[1], _mm256_castsi256_ps(m[1])),
        ];
        gather_i32(ptr: *const i32, index: I, m: M, fill: I) -> I = [
            _mm256_mask_i32gather_epi32::<4>(fill[0], ptr, index[0], m[0]),
            _mm256_mask_i32gather_epi32::<4>(fill[1], ptr, index[1], m[1]),
        ];

        reduce_add_f(v: F) -> f32 = reduce_ps!(v, _mm256_add_ps, _mm_add_ps, _mm_add_ss);
        reduce_max_f(v: F) -> f32 = reduce_ps!(v, _mm256_max_ps, _mm_max_ps, _mm_max_ss);
        reduce_min_f(v: F) -> f32 = reduce_ps!(v, _mm256_min_ps, _mm_min_ps, _mm_min_ss);
        reduce_add_i(v: I) -> i32 = reduce_epi32!(v, _mm256_add_epi32, _mm_add_epi32);
        reduce_max_i(v: I) -> i32 = reduce_epi32!(v, _mm256_max_epi32, _mm_max_epi32);
        reduce_min_i(v: I) -> i32 = reduce_epi32!(v, _mm256_min_epi32, _mm_min_epi32);

        lane_f(v: F, i: usize) -> f32 = {
            let half = if i < 8 { v[0] } else { v[1] };
            _mm256_cvtss_f32(_mm256_permutevar8x32_ps(half, _mm256_set1_epi32(i as i32 & 7)))
        };
        lane_i(v: I, i: usize) -> i32 = {
            let half = if i < 8 { v[0] } else { v[1] };
            _mm256_cvtsi256_si32(_mm256_permutevar8x32_epi32(half, _mm256_set1_epi32(i as i32 & 7)))
        };

        prefetch(ptr: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(ptr.cast());
    }
    part_loads! {
        load_f16_n, load_f16, u16, F, select_f;
        load_bf16_n, load_bf16, u16, F, select_f;
        load_i8_n, load_i8, i8, I, select_i;
        load_u8_n, load_u8, u8, I, select_i;
    }
    part_stores! {
        store_f16_n, store_f16, u16, F;
        store_bf16_n, store_bf16, u16, F;
        store_i8_n, store_i8, i8, I;
        store_u8_n, store_u8, u8, I;
    }
    gather_16_bit!(gather_f16, load_f16);
    gather_16_bit!(gather_bf16, load_bf16);

    #[inline(always)]
    unsafe fn reduce_add_16(v: &[F; 16]) -> F {
        unsafe {
            let mut halves = [[_mm256_setzero_ps(); 8]; 2];
            for row in 0..16 {
                halves[row / 8][row % 8] = _mm256_add_ps(v[row][0], v[row][1]);
            }
            [reduce_rows(halves[0]), reduce_rows(halves[1])]
        }
    }

    /// Products are summed in 16 bits, whose largest value bounds the steps: a step adds at most two products of 127
    /// and the largest code.
    #[inline(always)]
    fn dot4_depth(bits: u32) -> usize {
        if bits < 8 { i16::MAX as usize / (2 * 127 * ((1 << bits) - 1)) } else { 1 }
    }
    #[inline(always)]
    unsafe fn dot4(bits: u32, acc: I, codes: I, x: I) -> I {
        unsafe {
            let mut out = acc;
            for half in 0..2 {
                let products = if bits < 8 {
                    _mm256_maddubs_epi16(codes[half], x[half])
                } else {
                    // |code - 128| times x under the sign of the code: at most 2 * 128 * 127, which fits.
                    let signed = _mm256_xor_si256(codes[half], _mm256_set1_epi8(i8::MIN));
                    _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(x[half], signed))
                };
                out[half] = _mm256_add_epi16(out[half], products);
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn dot4_fold(acc: I) -> I {
        unsafe {
            let ones = _mm256_set1_epi16(1);
            [_mm256_madd_epi16(acc[0], ones), _mm256_madd_epi16(acc[1], ones)]
        }
    }
}
