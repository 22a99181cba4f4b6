//! The calling convention between the runtime and a compiled CPU kernel.

use std::ops::Range;

/// What one call of a [`CpuKernel`] works on.
pub struct Launch<'a> {
    /// Argument words in the order of the kernel's parameters, then its dimensions.
    pub args: &'a [u64],
    /// The programs to run, as linear indices into the grid; axis 0 is the fastest.
    pub programs: Range<u32>,
    /// Number of programs along each axis.
    pub grid: [u32; 3],
    /// Index of the calling thread.
    pub thread: u32,
}

/// A compiled kernel: runs every program of `launch.programs`.
///
/// # Safety
///
/// The argument words must be those that the kernel's contract describes: pointers valid for the shapes that the
/// dimensions give, and not written by anyone else while the kernel runs.
pub type CpuKernel = unsafe fn(&Launch<'_>);

/// The versions of one kernel that a build holds; the device picks the best one its processor runs.
#[derive(Clone, Copy, Debug)]
pub struct CpuEntries {
    /// For x86-64 with AVX-512.
    pub avx512: Option<CpuKernel>,
    /// For x86-64 with AVX2.
    pub avx2: Option<CpuKernel>,
    /// For any processor.
    pub portable: CpuKernel,
}
