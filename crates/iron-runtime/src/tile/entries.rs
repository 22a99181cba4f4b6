//! From one generic kernel to one function per instruction set.

/// Compiles `#[inline(always)] unsafe fn name<I: Isa>(launch: &Launch<'_>)` for every instruction set and evaluates to a
/// constant [`CpuEntries`](crate::CpuEntries).
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
        unsafe fn avx512(launch: &$crate::Launch<'_>) {
            unsafe { $name::<$crate::tile::Avx512>(launch) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn avx2(launch: &$crate::Launch<'_>) {
            unsafe { $name::<$crate::tile::Avx2>(launch) }
        }
        unsafe fn portable(launch: &$crate::Launch<'_>) {
            unsafe { $name::<$crate::tile::Portable>(launch) }
        }
        #[cfg(target_arch = "x86_64")]
        let entries = $crate::CpuEntries { avx512: Some(avx512), avx2: Some(avx2), portable };
        #[cfg(not(target_arch = "x86_64"))]
        let entries = $crate::CpuEntries { avx512: None, avx2: None, portable };
        entries
    }};
}
