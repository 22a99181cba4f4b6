//! The instruction sets that CPU kernels are compiled for.

use std::fmt;
use std::str::FromStr;

use crate::RuntimeError;

/// An instruction set that CPU kernels exist in; a later one runs everything that an earlier one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IsaLevel {
    /// Whatever the compiler's base target has.
    Portable,
    /// x86-64 with AVX2, FMA and F16C (Haswell, Zen and later).
    Avx2,
    /// The above and AVX-512 F, BW, DQ, VL and VNNI (Ice Lake, Zen 4 and later).
    Avx512,
}

impl IsaLevel {
    /// Every level, best first.
    pub const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Portable];

    /// The best level that this processor and its operating system support.
    pub fn detect() -> Self {
        Self::ALL.into_iter().find(|level| level.is_available()).unwrap_or(Self::Portable)
    }

    /// Whether this processor can run kernels of this level.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 => false,
            Self::Portable => true,
        }
    }

    /// The spelling used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        }
    }

    /// The inverse of [`IsaLevel::name`], ignoring case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for IsaLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IsaLevel {
    type Err = RuntimeError;

    fn from_str(name: &str) -> Result<Self, RuntimeError> {
        Self::parse(name).ok_or_else(|| RuntimeError::UnknownIsa { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::IsaLevel;

    #[test]
    fn every_level_parses_from_its_name() {
        for level in IsaLevel::ALL {
            assert_eq!(level.to_string().to_uppercase().parse::<IsaLevel>().unwrap(), level);
        }
        assert!(
            "sse2"
                .parse::<IsaLevel>()
                .unwrap_err()
                .to_string()
                .contains("avx512, avx2 or portable")
        );
    }
}
