//! Memory of the running thread for tiles that stay in its first-level cache.
//!
//! It is not on the stack. On x86-64 LLVM probes frames of more than 32 KiB in a loop that counts in `r11`; where a
//! function may return before it needs its frame, the frame is made after values were already put into registers, and
//! one that lives in `r11` is lost (seen with rustc 1.95 at -O3: the number of rows of a panel loop, which then ran past
//! its end).

use std::cell::RefCell;
use std::mem::MaybeUninit;

/// What memory is allocated in: a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([MaybeUninit<u8>; 64]);

/// A thread's memory for one purpose, which only grows.
type Region = RefCell<Vec<Line>>;

thread_local! {
    static KERNEL: Region = const { RefCell::new(Vec::new()) };
    static PANEL: Region = const { RefCell::new(Vec::new()) };
}

/// `bytes` bytes on a cache line with arbitrary contents, for the tiles of a kernel.
///
/// They belong to the running thread until it asks again, which a kernel does once.
pub fn scratch(bytes: usize) -> *mut u8 {
    KERNEL.with(|region| start(region, bytes))
}

/// Memory with arbitrary contents for the `T` of a primitive that a kernel calls.
///
/// It belongs to the running thread until it asks again; primitives do not call each other.
pub(super) fn panel<T: Copy>() -> *mut T {
    const { assert!(align_of::<T>() <= align_of::<Line>()) };
    PANEL.with(|region| start(region, size_of::<T>())).cast()
}

#[inline(never)]
fn start(region: &Region, bytes: usize) -> *mut u8 {
    let mut lines = region.borrow_mut();
    let count = bytes.div_ceil(size_of::<Line>());
    if lines.len() < count {
        lines.resize(count, Line([MaybeUninit::uninit(); 64]));
    }
    lines.as_mut_ptr().cast()
}
