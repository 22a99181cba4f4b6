//! From one generic kernel to one function per instruction set.

use super::level::IsaLevel;
use crate::launch::CpuKernel;

/// A kernel compiled for every instruction set of the target architecture.
#[derive(Clone, Copy, Debug)]
pub struct CpuEntries {
    /// AVX-512 version, on x86-64.
    pub avx512: Option<CpuKernel>,
    /// AVX2 version, on x86-64.
    pub avx2: Option<CpuKernel>,
    /// Version for any processor.
    pub portable: CpuKernel,
}

impl CpuEntries {
    /// The version for `level`, or the portable one where the architecture has none.
    pub fn select(&self, level: IsaLevel) -> CpuKernel {
        match level {
            IsaLevel::Avx512 => self.avx512,
            IsaLevel::Avx2 => self.avx2,
            IsaLevel::Portable => None,
        }
        .unwrap_or(self.portable)
    }
}

/// Compiles `#[inline(always)] unsafe fn name<I: Isa>(launch: &Launch<'_>)` for every instruction set and evaluates to a
/// constant [`CpuEntries`].
///
/// Only code that is inlined into these functions gets their instruction set, so everything a kernel calls has to be
/// `#[inline(always)]` too.
#[macro_export]
macro_rules! cpu_entries {
    ($name:ident) => {{
        // SAFETY: these functions pass on the contract of `CpuKernel`; the target features they enable are the ones that
        // their instruction set requires.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
        unsafe fn avx512(launch: &$crate::launch::Launch<'_>) {
            unsafe { $name::<$crate::tile::Avx512>(launch) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn avx2(launch: &$crate::launch::Launch<'_>) {
            unsafe { $name::<$crate::tile::Avx2>(launch) }
        }
        unsafe fn portable(launch: &$crate::launch::Launch<'_>) {
            unsafe { $name::<$crate::tile::Portable>(launch) }
        }
        #[cfg(target_arch = "x86_64")]
        let entries = $crate::tile::CpuEntries { avx512: Some(avx512), avx2: Some(avx2), portable };
        #[cfg(not(target_arch = "x86_64"))]
        let entries = $crate::tile::CpuEntries { avx512: None, avx2: None, portable };
        entries
    }};
}
