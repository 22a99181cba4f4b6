use crate::tile::isa::{Isa, Lanes};
use crate::tile::math::{self, scalar};
use crate::tile::testing::{OnIsa, Random, on_every_level};

macro_rules! functions {
    ($($name:ident)*) => {
        /// A vector function applied to a slice of whole vectors.
        enum Function { $($name),* }
        #[allow(non_camel_case_types)]
        struct Apply<'a>(&'a Function, &'a [f32]);
        impl OnIsa for Apply<'_> {
            type Output = Vec<f32>;
            #[inline(always)]
            unsafe fn run<I: Isa>(&self) -> Vec<f32> {
                let mut out = vec![0.0; self.1.len()];
                for at in (0..out.len()).step_by(16) {
                    unsafe {
                        let x = I::load_f32(self.1[at..].as_ptr());
                        let y = match self.0 { $(Function::$name => math::$name::<I>(x)),* };
                        I::store_f32(out[at..].as_mut_ptr(), y);
                    }
                }
                out
            }
        }
        fn of_scalar(function: &Function, x: f32) -> f32 {
            match function { $(Function::$name => scalar::$name(x)),* }
        }
    };
}

#[allow(non_camel_case_types)]
mod generated {
    use super::*;
    functions! { exp ln exp2 rsqrt recip tanh sigmoid erf sin cos }

    /// Applies `function` on every level and checks that all agree bit for bit with the scalar version.
    pub(super) fn apply(function: &str, x: &[f32]) -> Vec<f32> {
        let function = match function {
            "exp" => Function::exp,
            "ln" => Function::ln,
            "exp2" => Function::exp2,
            "rsqrt" => Function::rsqrt,
            "recip" => Function::recip,
            "tanh" => Function::tanh,
            "sigmoid" => Function::sigmoid,
            "erf" => Function::erf,
            "sin" => Function::sin,
            "cos" => Function::cos,
            _ => unreachable!(),
        };
        let mut padded = x.to_vec();
        padded.resize(x.len().next_multiple_of(16), 1.0);
        let expected: Vec<f32> = x.iter().map(|x| of_scalar(&function, *x)).collect();
        for (level, found) in on_every_level(&Apply(&function, &padded)) {
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()),
                    "{level}: f({}) = {found}, scalar {expected}",
                    x[i]
                );
            }
        }
        expected
    }
}
use generated::apply;

/// Random values in `low..high`.
fn values(low: f32, high: f32) -> Vec<f32> {
    let mut random = Random(7);
    (0..40_000).map(|_| low + (high - low) * (random.unit() * 0.5 + 0.5)).collect()
}

fn check_relative(name: &str, x: &[f32], reference: impl Fn(f64) -> f64, tolerance: f64) {
    for (x, y) in x.iter().zip(apply(name, x)) {
        let expected = reference(f64::from(*x));
        let error =
            (f64::from(y) - expected).abs() / expected.abs().max(f64::from(f32::MIN_POSITIVE));
        assert!(error <= tolerance, "{name}({x}) = {y}, expected {expected}: error {error:e}");
    }
}

fn check_absolute(name: &str, x: &[f32], reference: impl Fn(f64) -> f64, tolerance: f64) {
    for (x, y) in x.iter().zip(apply(name, x)) {
        let expected = reference(f64::from(*x));
        let error = (f64::from(y) - expected).abs();
        assert!(error <= tolerance, "{name}({x}) = {y}, expected {expected}: error {error:e}");
    }
}

/// The error function by its Taylor series up to 3 and its continued fraction above.
fn erf(x: f64) -> f64 {
    let magnitude = x.abs();
    let value = if magnitude < 3.0 {
        let (mut term, mut sum) = (magnitude, magnitude);
        for n in 1..100 {
            term *= -magnitude * magnitude / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let mut fraction = magnitude;
        for n in (1..100).rev() {
            fraction = magnitude + f64::from(n) / 2.0 / fraction;
        }
        1.0 - (-magnitude * magnitude).exp() / fraction / std::f64::consts::PI.sqrt()
    };
    value.copysign(x)
}

#[test]
fn exp_is_accurate_over_its_range() {
    check_relative("exp", &values(-87.0, 88.7), f64::exp, 2e-7);
    check_relative("exp", &values(-1.0, 1.0), f64::exp, 2e-7);
}

#[test]
fn exp_reaches_its_limits() {
    let y = apply("exp", &[f32::NEG_INFINITY, -104.5, 0.0, 89.0, f32::INFINITY, f32::NAN, -100.0]);
    assert_eq!(y[..5], [0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY]);
    assert!(y[5].is_nan());
    assert!((f64::from(y[6]) - (-100.0f64).exp()).abs() < 1e-45);
}

#[test]
fn exp2_is_exact_at_integers_and_accurate_between() {
    for n in -149..128 {
        assert_eq!(f64::from(apply("exp2", &[n as f32])[0]), f64::from(n).exp2());
    }
    check_relative("exp2", &values(-126.0, 127.9), f64::exp2, 2e-7);
    let y = apply("exp2", &[f32::NEG_INFINITY, 128.0, f32::INFINITY]);
    assert_eq!(y, [0.0, f32::INFINITY, f32::INFINITY]);
}

#[test]
fn ln_is_accurate_over_its_range() {
    check_relative("ln", &values(1e-6, 2.0), f64::ln, 2e-7);
    check_relative("ln", &values(1.0, 3e38), f64::ln, 2e-7);
    check_relative("ln", &values(1e-45, 1e-38), f64::ln, 2e-7);
    check_relative("ln", &values(0.99, 1.01), f64::ln, 2e-7);
}

#[test]
fn ln_reaches_its_limits() {
    let y = apply("ln", &[0.0, -0.0, 1.0, f32::INFINITY, -1.0, f32::NAN, f32::NEG_INFINITY]);
    assert_eq!(y[..4], [f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, f32::INFINITY]);
    assert!(y[4..].iter().all(|y| y.is_nan()));
}

#[test]
fn rsqrt_and_recip_are_exact_operations() {
    for x in values(1e-3, 1e3) {
        assert_eq!(scalar::rsqrt(x), 1.0 / x.sqrt());
        assert_eq!(scalar::recip(x), 1.0 / x);
    }
    apply("rsqrt", &values(1e-3, 1e3));
    apply("recip", &values(1e-3, 1e3));
    assert_eq!(apply("rsqrt", &[0.0, f32::INFINITY]), [f32::INFINITY, 0.0]);
}

#[test]
fn tanh_is_accurate_and_saturates() {
    check_relative("tanh", &values(-10.0, 10.0), f64::tanh, 3e-7);
    check_relative("tanh", &values(-0.7, 0.7), f64::tanh, 3e-7);
    let y = apply("tanh", &[f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0]);
    assert_eq!(y[..2], [-1.0, 1.0]);
    assert!(y[2].is_nan());
    assert_eq!(y[3], 0.0);
}

#[test]
fn sigmoid_is_accurate_and_saturates() {
    check_relative("sigmoid", &values(-87.0, 30.0), |x| 1.0 / (1.0 + (-x).exp()), 3e-7);
    assert_eq!(apply("sigmoid", &[f32::NEG_INFINITY, 0.0, f32::INFINITY]), [0.0, 0.5, 1.0]);
}

#[test]
fn erf_is_accurate_and_saturates() {
    check_relative("erf", &values(-5.0, 5.0), erf, 2e-7);
    check_relative("erf", &values(-1e-3, 1e-3), erf, 2e-7);
    let y = apply("erf", &[f32::NEG_INFINITY, 9.0, f32::INFINITY, f32::NAN]);
    assert_eq!(y[..3], [-1.0, 1.0, 1.0]);
    assert!(y[3].is_nan());
}

#[test]
fn sin_and_cos_are_accurate_for_long_positions() {
    for range in [1.0, 100.0, 2e5] {
        check_absolute("sin", &values(-range, range), f64::sin, 2e-7);
        check_absolute("cos", &values(-range, range), f64::cos, 2e-7);
    }
    assert!(apply("sin", &[f32::INFINITY, f32::NAN]).iter().all(|y| y.is_nan()));
}

#[test]
fn lanes_of_scalar_and_portable_agree_on_conversions() {
    use crate::tile::scalar::Scalar;
    // SAFETY: `Scalar` needs no instruction set.
    unsafe {
        assert_eq!(Scalar::i_from_f(-3.9), -3);
        assert_eq!(Scalar::i_from_f(f32::NAN), i32::MIN);
        assert_eq!(Scalar::i_from_f(3e9), i32::MIN);
    }
}
