//! Code that kernels call instead of containing it.
//!
//! Everything in a kernel is inlined, because only inlined code gets the kernel's instruction set. For the large
//! primitives that would mean a copy in every kernel; [`Isa::outline`] compiles them once an instruction set.

use super::isa::Isa;

/// Work that is compiled once for each instruction set.
pub trait Outlined {
    /// Does the work; `#[inline(always)]`, so that it becomes part of [`Isa::outline`].
    unsafe fn run<I: Isa>(self);
}

/// Declares `name`, which runs the `#[inline(always)]` function `body` out of line.
macro_rules! outlined {
    ($(#[$doc:meta])* pub unsafe fn $name:ident<I, $g:ident: $bound:ident>($($arg:ident: $ty:ty),* $(,)?) = $body:ident;) => {
        $(#[$doc])*
        #[inline(always)]
        pub unsafe fn $name<I: Isa, $g: $bound>($($arg: $ty),*) {
            struct Work<$g: $bound> {
                $($arg: $ty,)*
                of: std::marker::PhantomData<$g>,
            }
            impl<$g: $bound> crate::tile::outline::Outlined for Work<$g> {
                #[inline(always)]
                unsafe fn run<I: Isa>(self) {
                    unsafe { $body::<I, $g>($(self.$arg),*) }
                }
            }
            unsafe { I::outline(Work::<$g> { $($arg,)* of: std::marker::PhantomData }) }
        }
    };
}
pub(super) use outlined;
