//! Transcendental functions, for 16 lanes and for one.
//!
//! A lane of a vector result and the scalar function of the same name are equal bit for bit, on every instruction set.

use super::isa::Lanes;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub unsafe fn $name<L: Lanes>(x: L::F) -> L::F { let _ = x; todo!() })*

        /// The same functions of one value.
        pub mod scalar {
            use super::super::scalar::Scalar;
            $($(#[$doc])*
            #[inline(always)]
            pub fn $name(x: f32) -> f32 {
                // SAFETY: `Scalar` needs no instruction set.
                unsafe { super::$name::<Scalar>(x) }
            })*
        }
    };
}

functions! {
    /// e^x.
    exp;
    /// Natural logarithm.
    ln;
    /// 2^x.
    exp2;
    /// `1 / sqrt(x)`, from correctly rounded operations.
    rsqrt;
    /// `1 / x`, correctly rounded.
    recip;
    /// Hyperbolic tangent.
    tanh;
    /// `1 / (1 + e^-x)`.
    sigmoid;
    /// Error function.
    erf;
    /// Sine.
    sin;
    /// Cosine.
    cos;
}
