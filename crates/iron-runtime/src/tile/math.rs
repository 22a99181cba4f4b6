//! Transcendental functions, for 16 lanes and for one.
//!
//! A lane of a vector result and the scalar function of the same name are equal bit for bit, on every instruction set:
//! each function is one sequence of correctly rounded operations without branches.
//!
//! Polynomials are those of Cephes (`expf`, `logf`, `tanhf`, `sinf`, `cosf`) and of N. Juffa's `erff`.
#![expect(
    clippy::unreadable_literal,
    clippy::excessive_precision,
    reason = "coefficients as published"
)]

use super::isa::Lanes;

/// `x + c[0]`-first Horner evaluation by fma: `((c0 * x + c1) * x + c2) ..`.
#[inline(always)]
unsafe fn polynomial<L: Lanes, const N: usize>(x: L::F, coefficients: [f32; N]) -> L::F {
    unsafe {
        let mut y = L::splat_f(coefficients[0]);
        for coefficient in &coefficients[1..] {
            y = L::fma_f(y, x, L::splat_f(*coefficient));
        }
        y
    }
}

/// `e^r * 2^n` for |r| <= ln(2) / 2 and whole n in -252..=254, rounding once where the result is subnormal.
#[inline(always)]
unsafe fn exp_times_power<L: Lanes>(r: L::F, n: L::F) -> L::F {
    unsafe {
        let p = polynomial::<L, 6>(
            r,
            [
                1.9875691500e-4,
                1.3981999507e-3,
                8.3334519073e-3,
                4.1665795894e-2,
                1.6666665459e-1,
                5.0000001201e-1,
            ],
        );
        let p = L::add_f(L::fma_f(p, L::mul_f(r, r), r), L::splat_f(1.0));
        // 2^n alone may be out of range where the product is not.
        let n = L::i_from_f(n);
        let half = L::shr_i(n, L::splat_i(1));
        let rest = L::sub_i(n, half);
        L::mul_f(L::mul_f(p, power_of_two::<L>(half)), power_of_two::<L>(rest))
    }
}

/// `2^n` for n in -126..=127.
#[inline(always)]
unsafe fn power_of_two<L: Lanes>(n: L::I) -> L::F {
    unsafe { L::bits_f(L::shl_i(L::add_i(n, L::splat_i(127)), L::splat_i(23))) }
}

/// `x` within `low..=high`; NaN stays NaN.
#[inline(always)]
unsafe fn clamp<L: Lanes>(x: L::F, low: f32, high: f32) -> L::F {
    unsafe { L::min_f(L::splat_f(high), L::max_f(L::splat_f(low), x)) }
}

/// The magnitude of `x` with the sign of `sign`.
#[inline(always)]
unsafe fn copy_sign<L: Lanes>(x: L::F, sign: L::F) -> L::F {
    unsafe {
        let sign = L::and_i(L::bits_i(sign), L::splat_i(i32::MIN));
        L::bits_f(L::or_i(L::bits_i(L::abs_f(x)), sign))
    }
}

const LN_2_HIGH: f32 = 0.693359375;
const LN_2_LOW: f32 = -2.12194440e-4;

/// e^x, within 2 units in the last place: 0 at minus infinity, infinity above 88.8.
#[inline(always)]
pub unsafe fn exp<L: Lanes>(x: L::F) -> L::F {
    unsafe {
        // Past these bounds the result is 0 and infinity.
        let x = clamp::<L>(x, -110.0, 89.5);
        let n = L::round_f(L::mul_f(x, L::splat_f(std::f32::consts::LOG2_E)));
        let r = L::fma_f(n, L::splat_f(-LN_2_HIGH), x);
        let r = L::fma_f(n, L::splat_f(-LN_2_LOW), r);
        exp_times_power::<L>(r, n)
    }
}

/// 2^x, within 2 units in the last place.
#[inline(always)]
pub unsafe fn exp2<L: Lanes>(x: L::F) -> L::F {
    unsafe {
        // Past these bounds the result is 0 and infinity.
        let x = clamp::<L>(x, -160.0, 129.0);
        let n = L::round_f(x);
        let r = L::mul_f(L::sub_f(x, n), L::splat_f(std::f32::consts::LN_2));
        exp_times_power::<L>(r, n)
    }
}

/// Natural logarithm, within 2 units in the last place: minus infinity at 0, NaN below.
#[inline(always)]
pub unsafe fn ln<L: Lanes>(x: L::F) -> L::F {
    unsafe {
        const SQRT_HALF: i32 = 0x3f3504f3;
        // Subnormal numbers have no exponent of their own; 2^23 gives them one.
        let tiny = L::lt_f(x, L::splat_f(f32::MIN_POSITIVE));
        let scaled = L::select_f(tiny, L::mul_f(x, L::splat_f(8388608.0)), x);
        let shift = L::select_f(tiny, L::splat_f(-23.0), L::splat_f(0.0));
        // x = 2^e * m with m in sqrt(1/2)..sqrt(2).
        let offset = L::sub_i(L::bits_i(scaled), L::splat_i(SQRT_HALF));
        let e = L::add_f(L::f_from_i(L::shr_i(offset, L::splat_i(23))), shift);
        let m = L::add_i(L::and_i(offset, L::splat_i(0x007fffff)), L::splat_i(SQRT_HALF));
        let f = L::sub_f(L::bits_f(m), L::splat_f(1.0));
        let p = polynomial::<L, 9>(
            f,
            [
                7.0376836292e-2,
                -1.1514610310e-1,
                1.1676998740e-1,
                -1.2420140846e-1,
                1.4249322787e-1,
                -1.6668057665e-1,
                2.0000714765e-1,
                -2.4999993993e-1,
                3.3333331174e-1,
            ],
        );
        let square = L::mul_f(f, f);
        let y = L::mul_f(L::mul_f(f, square), p);
        let y = L::fma_f(e, L::splat_f(LN_2_LOW), y);
        let y = L::fma_f(square, L::splat_f(-0.5), y);
        let y = L::fma_f(e, L::splat_f(LN_2_HIGH), L::add_f(f, y));
        // Infinity and NaN pass through; 0 and negative numbers are special.
        let finite = L::lt_f(x, L::splat_f(f32::INFINITY));
        let y = L::select_f(finite, y, x);
        let zero = L::eq_f(x, L::splat_f(0.0));
        let y = L::select_f(zero, L::splat_f(f32::NEG_INFINITY), y);
        L::select_f(L::lt_f(x, L::splat_f(0.0)), L::splat_f(f32::NAN), y)
    }
}

/// `1 / sqrt(x)`, from two correctly rounded operations.
#[inline(always)]
pub unsafe fn rsqrt<L: Lanes>(x: L::F) -> L::F {
    unsafe { L::div_f(L::splat_f(1.0), L::sqrt_f(x)) }
}

/// `1 / x`, correctly rounded.
#[inline(always)]
pub unsafe fn recip<L: Lanes>(x: L::F) -> L::F {
    unsafe { L::div_f(L::splat_f(1.0), x) }
}

/// Hyperbolic tangent, within 3e-7 relative.
#[inline(always)]
pub unsafe fn tanh<L: Lanes>(x: L::F) -> L::F {
    unsafe {
        let magnitude = L::abs_f(x);
        let square = L::mul_f(x, x);
        let p = polynomial::<L, 5>(
            square,
            [
                -5.70498872745e-3,
                2.06390887954e-2,
                -5.37397155531e-2,
                1.33314422036e-1,
                -3.33332819422e-1,
            ],
        );
        let small = L::fma_f(L::mul_f(p, square), x, x);
        let e = exp::<L>(L::add_f(magnitude, magnitude));
        let rest = L::div_f(L::splat_f(2.0), L::add_f(e, L::splat_f(1.0)));
        let large = copy_sign::<L>(L::sub_f(L::splat_f(1.0), rest), x);
        // NaN takes the polynomial.
        L::select_f(L::le_f(L::splat_f(0.625), magnitude), large, small)
    }
}

/// `1 / (1 + e^-x)`, within 4 units in the last place above -87 and 0 below -88.8.
#[inline(always)]
pub unsafe fn sigmoid<L: Lanes>(x: L::F) -> L::F {
    unsafe {
        let e = exp::<L>(L::neg_f(x));
        L::div_f(L::splat_f(1.0), L::add_f(L::splat_f(1.0), e))
    }
}

/// Error function, within 2 units in the last place.
#[inline(always)]
pub unsafe fn erf<L: Lanes>(x: L::F) -> L::F {
    unsafe {
        let magnitude = L::abs_f(x);
        let square = L::mul_f(x, x);
        // erf is 1 in f32 from 3.92 on; the bound keeps the polynomial finite.
        let t = L::min_f(L::splat_f(10.0), magnitude);
        let s = L::mul_f(t, t);
        let high = L::fma_f(L::splat_f(-1.72853470e-5), t, L::splat_f(3.83197126e-4));
        let low = L::fma_f(L::splat_f(-3.88396438e-3), t, L::splat_f(2.42546219e-2));
        let r = L::fma_f(high, s, low);
        let r = L::fma_f(r, t, L::splat_f(-1.06777877e-1));
        let r = L::fma_f(r, t, L::splat_f(-6.34846687e-1));
        let r = L::fma_f(r, t, L::splat_f(-1.28717512e-1));
        let r = L::fma_f(r, t, L::neg_f(t));
        let large = copy_sign::<L>(L::sub_f(L::splat_f(1.0), exp::<L>(r)), x);
        let p = polynomial::<L, 6>(
            square,
            [
                -5.96761703e-4,
                4.99119423e-3,
                -2.67681349e-2,
                1.12819925e-1,
                -3.76125336e-1,
                1.28379166e-1,
            ],
        );
        let small = L::fma_f(p, x, x);
        // NaN takes the polynomial.
        L::select_f(L::lt_f(L::splat_f(0.927734375), magnitude), large, small)
    }
}

/// `sin(x + quarter turns * π / 2)`: reduction to |r| <= π / 4 by three parts of π / 2 (Cody and Waite), exact products
/// by fma.
#[inline(always)]
unsafe fn sine<L: Lanes>(x: L::F, quarter_turns: i32) -> L::F {
    unsafe {
        let n = L::round_f(L::mul_f(x, L::splat_f(std::f32::consts::FRAC_2_PI)));
        let minus_n = L::neg_f(n);
        let r = L::fma_f(minus_n, L::splat_f(1.57079637e0), x);
        let r = L::fma_f(minus_n, L::splat_f(-4.37113883e-8), r);
        let r = L::fma_f(minus_n, L::splat_f(-1.71512449e-15), r);
        let square = L::mul_f(r, r);
        let p = polynomial::<L, 3>(square, [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1]);
        let sin = L::fma_f(L::mul_f(p, square), r, r);
        let p = polynomial::<L, 3>(
            square,
            [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2],
        );
        let cos = L::fma_f(square, L::splat_f(-0.5), L::splat_f(1.0));
        let cos = L::fma_f(L::mul_f(square, square), p, cos);
        let quadrant = L::add_i(L::i_from_f(n), L::splat_i(quarter_turns));
        let odd = L::eq_i(L::and_i(quadrant, L::splat_i(1)), L::splat_i(1));
        let sign = L::shl_i(L::and_i(quadrant, L::splat_i(2)), L::splat_i(30));
        L::bits_f(L::xor_i(L::bits_i(L::select_f(odd, cos, sin)), sign))
    }
}

/// Sine, within 2e-7 for |x| up to 2e5; NaN at infinity.
#[inline(always)]
pub unsafe fn sin<L: Lanes>(x: L::F) -> L::F {
    unsafe { sine::<L>(x, 0) }
}

/// Cosine, within 2e-7 for |x| up to 2e5; NaN at infinity.
#[inline(always)]
pub unsafe fn cos<L: Lanes>(x: L::F) -> L::F {
    unsafe { sine::<L>(x, 1) }
}

/// The same functions of one value.
pub mod scalar {
    use super::super::scalar::Scalar;

    macro_rules! of_one_value {
        ($($(#[$doc:meta])* $name:ident)*) => {$(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name(x: f32) -> f32 {
                // SAFETY: `Scalar` needs no instruction set.
                unsafe { super::$name::<Scalar>(x) }
            }
        )*};
    }

    of_one_value! {
        /// e^x.
        exp
        /// Natural logarithm.
        ln
        /// 2^x.
        exp2
        /// `1 / sqrt(x)`.
        rsqrt
        /// `1 / x`.
        recip
        /// Hyperbolic tangent.
        tanh
        /// `1 / (1 + e^-x)`.
        sigmoid
        /// Error function.
        erf
        /// Sine.
        sin
        /// Cosine.
        cos
    }
}
