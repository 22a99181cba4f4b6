//! Which instruction set kernels run with.

use std::fmt;

/// An instruction set that every kernel is compiled for, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsaLevel {
    /// AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// AVX2, FMA and F16C.
    Avx2,
    /// What the target guarantees; runs everywhere, slowly.
    Portable,
}

impl IsaLevel {
    /// Every level, best first.
    pub const ALL: [IsaLevel; 3] = [Self::Avx512, Self::Avx2, Self::Portable];

    /// The best level that this processor has.
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
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
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

    /// The level to run with: `requested` where the processor has it, else the best one.
    pub fn resolve(requested: Option<Self>) -> Result<Self, UnavailableLevel> {
        match requested {
            None => Ok(Self::detect()),
            Some(level) if level.is_available() => Ok(level),
            Some(level) => Err(UnavailableLevel { requested: level, best: Self::detect() }),
        }
    }

    /// The spelling used in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        }
    }

    /// The inverse of [`IsaLevel::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for IsaLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An instruction set was asked for that this processor lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this processor cannot run {requested} kernels; its best level is {best}")]
pub struct UnavailableLevel {
    /// The level that was asked for.
    pub requested: IsaLevel,
    /// The level to ask for instead.
    pub best: IsaLevel,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detected_level_is_available_and_resolves() {
        let best = IsaLevel::detect();
        assert!(best.is_available());
        assert_eq!(IsaLevel::resolve(None), Ok(best));
        assert_eq!(IsaLevel::resolve(Some(IsaLevel::Portable)), Ok(IsaLevel::Portable));
    }

    #[test]
    fn names_round_trip() {
        for level in IsaLevel::ALL {
            assert_eq!(IsaLevel::parse(level.name()), Some(level));
        }
    }
}
