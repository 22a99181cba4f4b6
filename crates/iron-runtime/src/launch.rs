//! What one thread is told when it runs its share of a kernel.

use std::ops::Range;

/// One thread's share of a dispatch.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The kernel's arguments in the order of its manifest entry: pointers, dimensions and scalars as 64-bit words.
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
/// # Safety
/// The processor must have the instruction set that the kernel was compiled for, and `args` must be what the kernel's
/// manifest entry asks for: live pointers to buffers of the stated sizes that no other program writes.
pub type CpuKernel = unsafe fn(&Launch<'_>);
