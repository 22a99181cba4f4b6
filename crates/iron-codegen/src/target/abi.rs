//! The argument list of a GPU kernel, derived from its parameters.
//!
//! Everything that is not a pointer or a scalar parameter is a 64-bit signed integer. Strides count elements; the last
//! axis is contiguous and has none.
//!
//! * **CUDA**: one argument per [`Slot`], in order: for each parameter its pointer and strides (or its value), then every
//!   named dimension.
//! * **Metal**: buffer `i` is the pointer of the `i`-th parameter that has one. The next buffer holds a structure with the
//!   other slots: first all 64-bit integers (strides in parameter order, then dimensions), then the 4-byte scalars in
//!   parameter order. Where the launch contract asks for shared memory, `threadgroup(0)` has `Launch::shared_bytes`.

use iron_core::ir::{Kernel, ParamKind};

/// One argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Address of the first element (or block) of a parameter.
    Pointer {
        /// Parameter index.
        param: u32,
    },
    /// Distance in elements between neighbours along an axis. Packed weights are contiguous: theirs is not read.
    Stride {
        /// Parameter index.
        param: u32,
        /// Axis.
        axis: u32,
    },
    /// A scalar parameter by value (f32, i32 or u32).
    Scalar {
        /// Parameter index.
        param: u32,
    },
    /// A named dimension.
    Dim {
        /// Index into [`Kernel::dims`].
        dim: u32,
    },
}

/// The arguments of a CUDA kernel.
pub fn cuda(kernel: &Kernel) -> Vec<Slot> {
    let mut slots = Vec::new();
    for (param, declared) in (0u32..).zip(&kernel.params) {
        match &declared.kind {
            ParamKind::Scalar(_) => slots.push(Slot::Scalar { param }),
            kind => {
                slots.push(Slot::Pointer { param });
                let rank = kind.shape().len() as u32;
                slots.extend((0..rank.saturating_sub(1)).map(|axis| Slot::Stride { param, axis }));
            }
        }
    }
    slots.extend((0..kernel.dims.len() as u32).map(|dim| Slot::Dim { dim }));
    slots
}

/// The arguments of a Metal kernel: the buffers, then the members of the structure behind them.
pub fn metal(kernel: &Kernel) -> (Vec<Slot>, Vec<Slot>) {
    let (buffers, rest): (Vec<_>, Vec<_>) =
        cuda(kernel).into_iter().partition(|slot| matches!(slot, Slot::Pointer { .. }));
    let (scalars, integers): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|slot| matches!(slot, Slot::Scalar { .. }));
    (buffers, integers.into_iter().chain(scalars).collect())
}
