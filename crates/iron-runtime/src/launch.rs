//! What one thread is told when it runs its share of a kernel.

use std::ops::Range;

use crate::IsaLevel;

/// One thread's share of a dispatch.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The kernel's argument words: what [`CommandBuffer::encode`](crate::CommandBuffer::encode) lays out.
    pub args: &'a [u64],
    /// The linear program ids to run, all within `grid`.
    pub programs: Range<u32>,
    /// Programs along each axis; axis 0 varies fastest.
    pub grid: [u32; 3],
    /// Index of the running thread, below the device's thread count.
    pub thread: u32,
}

/// A compiled kernel for one instruction set.
///
/// It runs every program of its launch. Programs may be split into any ranges, run in any order and on any thread.
///
/// # Safety
///
/// The processor must have the instruction set that the kernel was compiled for, and `args` must be what the kernel's
/// descriptor asks for: live pointers to buffers of the stated sizes that no other program writes.
pub type CpuKernel = unsafe fn(&Launch<'_>);

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
    /// The best version that a processor of this level runs.
    pub fn select(&self, level: IsaLevel) -> CpuKernel {
        let avx2 = self.avx2.unwrap_or(self.portable);
        match level {
            IsaLevel::Avx512 => self.avx512.unwrap_or(avx2),
            IsaLevel::Avx2 => avx2,
            IsaLevel::Portable => self.portable,
        }
    }
}
