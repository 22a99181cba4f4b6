//! Calls an emitted kernel by its parameters: the argument list follows from the kernel and the target.

use iron_codegen::target::abi::{self, Slot};
use iron_core::ir::{DimExpr, DimOp, Kernel};

use crate::{Arg, Emulated, Error, Order, Target};

/// What is passed for a parameter.
#[derive(Debug)]
pub enum Argument<'a> {
    /// A tensor that is read: its bytes and its strides in elements, without the last axis.
    Input(&'a [u8], &'a [i64]),
    /// A tensor that may be written.
    Output(&'a mut [u8], &'a [i64]),
    /// A float.
    F32(f32),
    /// A signed integer.
    I32(i32),
    /// An unsigned integer.
    U32(u32),
}

impl Argument<'_> {
    fn strides(&self) -> &[i64] {
        match self {
            Self::Input(_, strides) | Self::Output(_, strides) => strides,
            _ => &[],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(x) => x.to_ne_bytes().to_vec(),
            Self::I32(x) => x.to_ne_bytes().to_vec(),
            Self::U32(x) => x.to_ne_bytes().to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The value of a dimension expression.
pub(crate) fn evaluate(expr: &DimExpr, dims: &[i64]) -> i64 {
    match expr {
        DimExpr::Const(value) => *value,
        DimExpr::Dim(dim) => dims[*dim as usize],
        DimExpr::Op(op, a, b) => {
            let (a, b) = (evaluate(a, dims), evaluate(b, dims));
            match op {
                DimOp::Add => a + b,
                DimOp::Sub => a - b,
                DimOp::Mul => a * b,
                DimOp::Div => a / b,
                DimOp::DivCeil => (a + b - 1) / b,
                DimOp::Min => a.min(b),
                DimOp::Max => a.max(b),
            }
        }
    }
}

/// Runs `kernel`, whose text `emulated` was compiled from, over its whole grid.
///
/// `arguments` are in the order of the parameters, `dims` in the order of [`Kernel::dims`].
///
/// # Panics
/// When an argument is missing or of another kind than its parameter.
pub fn call(
    emulated: &Emulated,
    kernel: &Kernel,
    dims: &[i64],
    arguments: &mut [Argument<'_>],
    order: Order,
) -> Result<(), Error> {
    let mut grid = [1; 3];
    for (axis, expr) in kernel.grid.iter().enumerate() {
        grid[axis] =
            u32::try_from(evaluate(expr, dims)).expect("a grid of fewer than 2^32 programs");
    }
    let value = |slot: &Slot, arguments: &[Argument<'_>]| match *slot {
        Slot::Stride { param, axis } => {
            arguments[param as usize].strides()[axis as usize].to_ne_bytes().to_vec()
        }
        Slot::Dim { dim } => dims[dim as usize].to_ne_bytes().to_vec(),
        Slot::Scalar { param } => arguments[param as usize].bytes(),
        Slot::Pointer { .. } => unreachable!("pointers are no values"),
    };
    let (slots, members) = match emulated.target() {
        Target::Cuda => (abi::cuda(kernel), None),
        Target::Metal => {
            let (buffers, members) = abi::metal(kernel);
            (buffers, Some(members))
        }
    };
    // Values first: they borrow the arguments only for a moment, the buffers until the end.
    let mut args: Vec<Option<Arg<'_>>> = slots
        .iter()
        .map(|slot| {
            (!matches!(slot, Slot::Pointer { .. })).then(|| Arg::Value(value(slot, arguments)))
        })
        .collect();
    if let Some(members) = members {
        let mut bytes: Vec<u8> = members.iter().flat_map(|slot| value(slot, arguments)).collect();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        args.push(Some(Arg::Value(bytes)));
    }
    let mut buffers: Vec<Option<Arg<'_>>> = arguments
        .iter_mut()
        .map(|argument| match argument {
            Argument::Input(bytes, _) => Some(Arg::Input(bytes)),
            Argument::Output(bytes, _) => Some(Arg::Output(bytes)),
            _ => None,
        })
        .collect();
    for (slot, arg) in slots.iter().zip(&mut args) {
        if let Slot::Pointer { param } = slot {
            *arg = buffers[*param as usize].take();
        }
    }
    let mut args: Vec<Arg<'_>> =
        args.into_iter().map(|arg| arg.expect("an argument per slot")).collect();
    emulated.run_ordered(grid, kernel.launch.threads, kernel.launch.shared_bytes, &mut args, order)
}
