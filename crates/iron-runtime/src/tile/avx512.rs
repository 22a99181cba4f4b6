//! AVX-512 with VNNI: a vector is one register.
#![cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "intrinsics name themselves"))]

use super::outline::Outlined;
use core::arch::x86_64::*;

use super::isa::{Isa, Lanes};

/// AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy, Debug)]
pub struct Avx512;

type F = __m512;
type I = __m512i;
type M = __mmask16;

/// Functions that are one expression of intrinsics.
macro_rules! ops {
    ($($name:ident($($arg:ident: $from:ty),*) -> $to:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $from),*) -> $to {
            // SAFETY: the caller has the instruction set and vouches for the pointers, as the trait demands.
            unsafe { $body }
        }
    )*};
}

impl Lanes for Avx512 {
    type F = F;
    type I = I;
    type M = M;

    ops! {
        splat_f(x: f32) -> F = _mm512_set1_ps(x);
        splat_i(x: i32) -> I = _mm512_set1_epi32(x);
        add_f(a: F, b: F) -> F = _mm512_add_ps(a, b);
        sub_f(a: F, b: F) -> F = _mm512_sub_ps(a, b);
        mul_f(a: F, b: F) -> F = _mm512_mul_ps(a, b);
        div_f(a: F, b: F) -> F = _mm512_div_ps(a, b);
        fma_f(a: F, b: F, c: F) -> F = _mm512_fmadd_ps(a, b, c);
        min_f(a: F, b: F) -> F = _mm512_min_ps(a, b);
        max_f(a: F, b: F) -> F = _mm512_max_ps(a, b);
        neg_f(a: F) -> F = _mm512_xor_ps(a, _mm512_set1_ps(-0.0));
        abs_f(a: F) -> F = _mm512_andnot_ps(_mm512_set1_ps(-0.0), a);
        sqrt_f(a: F) -> F = _mm512_sqrt_ps(a);
        floor_f(a: F) -> F = _mm512_roundscale_ps::<0x09>(a);
        round_f(a: F) -> F = _mm512_roundscale_ps::<0x08>(a);
        add_i(a: I, b: I) -> I = _mm512_add_epi32(a, b);
        sub_i(a: I, b: I) -> I = _mm512_sub_epi32(a, b);
        mul_i(a: I, b: I) -> I = _mm512_mullo_epi32(a, b);
        and_i(a: I, b: I) -> I = _mm512_and_si512(a, b);
        or_i(a: I, b: I) -> I = _mm512_or_si512(a, b);
        xor_i(a: I, b: I) -> I = _mm512_xor_si512(a, b);
        shl_i(a: I, b: I) -> I = _mm512_sllv_epi32(a, b);
        shr_i(a: I, b: I) -> I = _mm512_srav_epi32(a, b);
        shr_u(a: I, b: I) -> I = _mm512_srlv_epi32(a, b);
        min_i(a: I, b: I) -> I = _mm512_min_epi32(a, b);
        max_i(a: I, b: I) -> I = _mm512_max_epi32(a, b);
        lt_f(a: F, b: F) -> M = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        le_f(a: F, b: F) -> M = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b);
        eq_f(a: F, b: F) -> M = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
        lt_i(a: I, b: I) -> M = _mm512_cmplt_epi32_mask(a, b);
        le_i(a: I, b: I) -> M = _mm512_cmple_epi32_mask(a, b);
        eq_i(a: I, b: I) -> M = _mm512_cmpeq_epi32_mask(a, b);
        lt_u(a: I, b: I) -> M = _mm512_cmplt_epu32_mask(a, b);
        le_u(a: I, b: I) -> M = _mm512_cmple_epu32_mask(a, b);
        select_f(m: M, a: F, b: F) -> F = _mm512_mask_blend_ps(m, b, a);
        select_i(m: M, a: I, b: I) -> I = _mm512_mask_blend_epi32(m, b, a);
        f_from_i(a: I) -> F = _mm512_cvtepi32_ps(a);
        f_from_u(a: I) -> F = _mm512_cvtepu32_ps(a);
        i_from_f(a: F) -> I = _mm512_cvttps_epi32(a);
        bits_f(a: I) -> F = _mm512_castsi512_ps(a);
        bits_i(a: F) -> I = _mm512_castps_si512(a);
    }

    #[inline(always)]
    unsafe fn splat_m(x: bool) -> M {
        0u16.wrapping_sub(u16::from(x))
    }
    #[inline(always)]
    unsafe fn and_m(a: M, b: M) -> M {
        a & b
    }
    #[inline(always)]
    unsafe fn or_m(a: M, b: M) -> M {
        a | b
    }
    #[inline(always)]
    unsafe fn not_m(a: M) -> M {
        !a
    }
    #[inline(always)]
    unsafe fn select_m(m: M, a: M, b: M) -> M {
        (m & a) | (!m & b)
    }
}

/// The bits of 16 bfloat16, ties to even.
#[inline(always)]
unsafe fn bf16_bits(v: F) -> __m256i {
    unsafe {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_mask_blend_epi32(nan, rounded, quiet)))
    }
}

#[inline(always)]
unsafe fn from_bf16(bits: __m256i) -> F {
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))) }
}

/// Half-precision elements one by one: the gather instructions would read past the last.
macro_rules! gather_16_bit {
    ($name:ident, $load:ident) => {
        #[inline(always)]
        unsafe fn $name(ptr: *const u16, index: I, m: M, fill: F) -> F {
            // SAFETY: the caller vouches for the elements of true lanes, and no others are read.
            unsafe {
                let mut at = [0i32; 16];
                _mm512_storeu_si512(at.as_mut_ptr().cast(), index);
                let mut bits = [0u16; 16];
                for lane in 0..16 {
                    if m >> lane & 1 == 1 {
                        bits[lane] = ptr.offset(at[lane] as isize).read_unaligned();
                    }
                }
                _mm512_mask_blend_ps(m, fill, Self::$load(bits.as_ptr()))
            }
        }
    };
}

impl Isa for Avx512 {
    const WIDE: bool = true;
    const DOT8_SIGNED: bool = false;

    #[inline(always)]
    unsafe fn outline<O: Outlined>(work: O) {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
        #[inline(never)]
        unsafe fn call<O: Outlined>(work: O) {
            unsafe { work.run::<Avx512>() }
        }
        unsafe { call(work) }
    }

    #[inline(always)]
    unsafe fn first_m(n: i32) -> M {
        ((1u32 << n.clamp(0, 16)) - 1) as u16
    }
    #[inline(always)]
    unsafe fn any_m(m: M) -> bool {
        m != 0
    }
    ops! {
        iota() -> I = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

        load_f32(ptr: *const f32) -> F = _mm512_loadu_ps(ptr);
        load_f16(ptr: *const u16) -> F = _mm512_cvtph_ps(_mm256_loadu_si256(ptr.cast()));
        load_bf16(ptr: *const u16) -> F = from_bf16(_mm256_loadu_si256(ptr.cast()));
        load_i32(ptr: *const i32) -> I = _mm512_loadu_si512(ptr.cast());
        load_i8(ptr: *const i8) -> I = _mm512_cvtepi8_epi32(_mm_loadu_si128(ptr.cast()));
        load_u8(ptr: *const u8) -> I = _mm512_cvtepu8_epi32(_mm_loadu_si128(ptr.cast()));

        load_f32_n(ptr: *const f32, n: i32, fill: F) -> F = _mm512_mask_loadu_ps(fill, Self::first_m(n), ptr);
        load_f16_n(ptr: *const u16, n: i32, fill: F) -> F = {
            let m = Self::first_m(n);
            _mm512_mask_cvtph_ps(fill, m, _mm256_maskz_loadu_epi16(m, ptr.cast()))
        };
        load_bf16_n(ptr: *const u16, n: i32, fill: F) -> F = {
            let m = Self::first_m(n);
            _mm512_mask_blend_ps(m, fill, from_bf16(_mm256_maskz_loadu_epi16(m, ptr.cast())))
        };
        load_i32_n(ptr: *const i32, n: i32, fill: I) -> I = _mm512_mask_loadu_epi32(fill, Self::first_m(n), ptr);
        load_i8_n(ptr: *const i8, n: i32, fill: I) -> I = {
            let m = Self::first_m(n);
            _mm512_mask_cvtepi8_epi32(fill, m, _mm_maskz_loadu_epi8(m, ptr))
        };
        load_u8_n(ptr: *const u8, n: i32, fill: I) -> I = {
            let m = Self::first_m(n);
            _mm512_mask_cvtepu8_epi32(fill, m, _mm_maskz_loadu_epi8(m, ptr.cast()))
        };

        store_f32(ptr: *mut f32, v: F) -> () = _mm512_storeu_ps(ptr, v);
        store_f16(ptr: *mut u16, v: F) -> () =
            _mm256_storeu_si256(ptr.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        store_bf16(ptr: *mut u16, v: F) -> () = _mm256_storeu_si256(ptr.cast(), bf16_bits(v));
        store_i32(ptr: *mut i32, v: I) -> () = _mm512_storeu_si512(ptr.cast(), v);
        store_i8(ptr: *mut i8, v: I) -> () = _mm_storeu_si128(ptr.cast(), _mm512_cvtepi32_epi8(v));
        store_u8(ptr: *mut u8, v: I) -> () = _mm_storeu_si128(ptr.cast(), _mm512_cvtepi32_epi8(v));

        store_f32_n(ptr: *mut f32, v: F, n: i32) -> () = _mm512_mask_storeu_ps(ptr, Self::first_m(n), v);
        store_f16_n(ptr: *mut u16, v: F, n: i32) -> () =
            _mm256_mask_storeu_epi16(ptr.cast(), Self::first_m(n), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        store_bf16_n(ptr: *mut u16, v: F, n: i32) -> () =
            _mm256_mask_storeu_epi16(ptr.cast(), Self::first_m(n), bf16_bits(v));
        store_i32_n(ptr: *mut i32, v: I, n: i32) -> () = _mm512_mask_storeu_epi32(ptr, Self::first_m(n), v);
        store_i8_n(ptr: *mut i8, v: I, n: i32) -> () =
            _mm_mask_storeu_epi8(ptr, Self::first_m(n), _mm512_cvtepi32_epi8(v));
        store_u8_n(ptr: *mut u8, v: I, n: i32) -> () =
            _mm_mask_storeu_epi8(ptr.cast(), Self::first_m(n), _mm512_cvtepi32_epi8(v));

        gather_f32(ptr: *const f32, index: I, m: M, fill: F) -> F =
            _mm512_mask_i32gather_ps::<4>(fill, m, index, ptr);
        gather_i32(ptr: *const i32, index: I, m: M, fill: I) -> I =
            _mm512_mask_i32gather_epi32::<4>(fill, m, index, ptr);

        reduce_add_f(v: F) -> f32 = {
            let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        };
        reduce_max_f(v: F) -> f32 = {
            let v = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        };
        reduce_min_f(v: F) -> f32 = {
            let v = _mm256_min_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_min_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_min_ss(v, _mm_movehdup_ps(v)))
        };
        reduce_add_i(v: I) -> i32 = _mm512_reduce_add_epi32(v);
        reduce_max_i(v: I) -> i32 = _mm512_reduce_max_epi32(v);
        reduce_min_i(v: I) -> i32 = _mm512_reduce_min_epi32(v);

        lane_f(v: F, i: usize) -> f32 =
            _mm512_cvtss_f32(_mm512_permutexvar_ps(_mm512_set1_epi32(i as i32), v));
        lane_i(v: I, i: usize) -> i32 =
            _mm512_cvtsi512_si32(_mm512_permutexvar_epi32(_mm512_set1_epi32(i as i32), v));

        prefetch(ptr: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(ptr.cast());
    }
    gather_16_bit!(gather_f16, load_f16);
    gather_16_bit!(gather_bf16, load_bf16);

    #[inline(always)]
    unsafe fn reduce_add_16(v: &[F; 16]) -> F {
        // Each step halves the vectors and packs two of them into one, so that row i ends up in lane i.
        unsafe {
            let mut half = [_mm512_setzero_ps(); 8];
            for i in 0..8 {
                let (a, b) = (v[i], v[i + 8]);
                // Lanes 0..8: sums of a's lanes l and l + 8; lanes 8..16: of b's.
                let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b);
                let high = _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b);
                half[i] = _mm512_add_ps(low, high);
            }
            let mut quarter = [_mm512_setzero_ps(); 4];
            for i in 0..4 {
                // Blocks of four lanes: rows i, i + 8, i + 4, i + 12.
                let low = _mm512_shuffle_f32x4::<0b10_00_10_00>(half[i], half[i + 4]);
                let high = _mm512_shuffle_f32x4::<0b11_01_11_01>(half[i], half[i + 4]);
                quarter[i] = _mm512_add_ps(low, high);
            }
            let mut pair = [_mm512_setzero_ps(); 2];
            for i in 0..2 {
                // In each block: rows +0, +0, +2, +2.
                let low = _mm512_shuffle_ps::<0b01_00_01_00>(quarter[i], quarter[i + 2]);
                let high = _mm512_shuffle_ps::<0b11_10_11_10>(quarter[i], quarter[i + 2]);
                pair[i] = _mm512_add_ps(low, high);
            }
            // In each block: rows +0, +2, +1, +3; blocks: rows 0, 8, 4, 12.
            let low = _mm512_shuffle_ps::<0b10_00_10_00>(pair[0], pair[1]);
            let high = _mm512_shuffle_ps::<0b11_01_11_01>(pair[0], pair[1]);
            let order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
            _mm512_permutexvar_ps(order, _mm512_add_ps(low, high))
        }
    }

    #[inline(always)]
    fn dot4_depth(_: u32) -> usize {
        usize::MAX
    }
    #[inline(always)]
    unsafe fn dot4(_: u32, acc: I, codes: I, x: I) -> I {
        unsafe { _mm512_dpbusd_epi32(acc, codes, x) }
    }
    #[inline(always)]
    unsafe fn dot4_fold(acc: I) -> I {
        acc
    }
}
