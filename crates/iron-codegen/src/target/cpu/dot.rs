//! `DotTile` on the CPU: which primitive of the tile library computes it, and the call.

use iron_core::ir::{
    ActivationKind, DotOperand, Index, Kernel, Op, OpKind, ParamKind, Storage, TileRef, Value,
};
use iron_core::{DType, Diagnostic, Format};

use super::{Emitter, Result, format_marker, param_name, pitch};
use crate::passes::schedule::cpu::LANES;

/// The primitives a product can map to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Primitive {
    /// Int8 activations, packed weights.
    Int8(Format),
    /// f32 activations, packed weights.
    F32Packed(Format),
    /// f32 activations, plain float weights.
    Dense(Format),
    /// A computed tile and row-major memory `[k, n]`.
    RowMajor(DType),
}

/// Whether the accumulator of such a product may stay in registers.
pub fn keeps_registers(kernel: &Kernel, a: &DotOperand, b: &DotOperand) -> bool {
    matches!(
        primitive(kernel, a, b),
        Some(Primitive::Int8(_) | Primitive::F32Packed(_) | Primitive::Dense(_))
    )
}

fn primitive(kernel: &Kernel, a: &DotOperand, b: &DotOperand) -> Option<Primitive> {
    let kind = |tile: &TileRef| &kernel.params[tile.tensor as usize].kind;
    match (a, b) {
        (DotOperand::Memory(a), DotOperand::Memory(b)) if !a.transposed && !b.transposed => {
            match (kind(a), kind(b)) {
                (
                    ParamKind::Activations { kind: ActivationKind::Int8, .. },
                    ParamKind::Quantized { format, .. },
                ) if !format.is_dense() => Some(Primitive::Int8(*format)),
                (
                    ParamKind::Activations { kind: ActivationKind::Plain(DType::F32), .. }
                    | ParamKind::Tensor { dtype: DType::F32, .. },
                    ParamKind::Quantized { format, .. },
                ) => Some(if format.is_dense() {
                    Primitive::Dense(*format)
                } else {
                    Primitive::F32Packed(*format)
                }),
                _ => None,
            }
        }
        (DotOperand::Tile(_), DotOperand::Memory(b)) if b.transposed => match kind(b) {
            ParamKind::Tensor { dtype, .. } if dtype.is_float() => {
                Some(Primitive::RowMajor(*dtype))
            }
            _ => None,
        },
        _ => None,
    }
}

/// A range axis of an operand in memory.
struct RangeAxis {
    start: String,
    /// Positions that exist, at most `len`, from `start` on.
    valid: String,
}

impl Emitter<'_> {
    pub(super) fn dot(&mut self, op: &Op) -> Result<()> {
        let OpKind::DotTile { a, b, acc, .. } = &op.kind else { unreachable!() };
        let result = op.results[0];
        let unsupported = || {
            Diagnostic::new(op.span, "the CPU has no primitive for this product").help(
                "products are: activations (int8 or f32) with weights, or a computed tile with a transposed tile of a float tensor",
            )
        };
        let primitive = primitive(self.kernel, a, b).ok_or_else(unsupported)?;
        let shape = self.kernel.ty(result).shape().to_vec();
        let (m, n) = (shape[0], shape[1]);
        let in_registers = self.storage(result) == Some(Storage::Vectors);
        if !n.is_multiple_of(LANES) {
            return Err(Diagnostic::new(op.span, format!("a product has {n} columns"))
                .help("the CPU computes 16 columns at a time: use a multiple of 16"));
        }
        let target = if in_registers {
            let line = format!("let mut {} = {};", self.name(result), self.name(*acc));
            self.line(&line);
            format!("&mut {}", self.name(result))
        } else {
            self.copy_memory(*acc, result);
            format!("{}, {}", self.memory(result), pitch(&shape))
        };
        match (primitive, a, b) {
            (Primitive::RowMajor(dtype), DotOperand::Tile(a), DotOperand::Memory(b)) => {
                self.row_major(dtype, *a, b, m, &target);
                Ok(())
            }
            (primitive, DotOperand::Memory(a), DotOperand::Memory(b)) => {
                self.weights(primitive, a, b, (m, n), &target, in_registers).ok_or_else(unsupported)
            }
            _ => Err(unsupported()),
        }
    }

    fn range(&self, index: &Index) -> Option<RangeAxis> {
        match index {
            Index::Range { start, len, stride: 1, bound } => {
                let start = self.scalar(*start);
                let valid = bound.map_or_else(
                    || format!("{len}_i32"),
                    |bound| format!("({} - {start}).min({len}_i32)", self.scalar(bound)),
                );
                Some(RangeAxis { start, valid })
            }
            Index::At(value) => {
                Some(RangeAxis { start: self.scalar(*value), valid: "1_i32".to_owned() })
            }
            _ => None,
        }
    }

    fn weights(
        &mut self,
        primitive: Primitive,
        a: &TileRef,
        b: &TileRef,
        (m, n): (u32, u32),
        target: &str,
        registers: bool,
    ) -> Option<()> {
        let (rows, depth) = (self.range(&a.index[0])?, self.range(&a.index[1])?);
        let cols = self.range(&b.index[0])?;
        let x = param_name(&self.kernel.params[a.tensor as usize].name);
        let w_param = &self.kernel.params[b.tensor as usize];
        let w = param_name(&w_param.name);
        let total = self.extent(&w_param.kind.shape()[1]);
        let groups = n / LANES;
        let row0 = format!("({} as isize)", rows.start);
        let depth_args = format!("({}) as usize, ({}) as usize", depth.start, depth.valid);
        let activations = match primitive {
            Primitive::Int8(_) => format!(
                "tile::Int8Rows {{ q: {x}.wrapping_offset({row0} * {x}_stride0), scale: {x}_scale.wrapping_offset({row0} * {x}_block_stride), sum: {x}_sum.wrapping_offset({row0} * {x}_block_stride), q_stride: {x}_stride0 as usize, block_stride: {x}_block_stride as usize }}"
            ),
            _ => format!(
                "tile::F32Rows {{ x: {x}.wrapping_offset({row0} * {x}_stride0), stride: {x}_stride0 as usize }}"
            ),
        };
        let call = match primitive {
            Primitive::Int8(format) | Primitive::F32Packed(format) => {
                let stem = if matches!(primitive, Primitive::Int8(_)) {
                    "dot_int8"
                } else {
                    "dot_f32_packed"
                };
                let marker = format_marker(format);
                let (name, generics) = if registers {
                    (stem.to_owned(), format!("I, tile::{marker}, {m}, {groups}"))
                } else {
                    (format!("{stem}_panel"), format!("I, tile::{marker}"))
                };
                format!(
                    "tile::{name}::<{generics}>({target}, {activations}, {}, {w}, ({} / 16) as usize, {}, ({total}) as usize, {depth_args});",
                    rows.valid, cols.start, cols.valid
                )
            }
            Primitive::Dense(format) => {
                let marker = format_marker(format);
                let (name, generics) = if registers {
                    ("dot_dense", format!("I, tile::{marker}, {m}, {groups}"))
                } else {
                    ("dot_dense_panel", format!("I, tile::{marker}"))
                };
                format!(
                    "tile::{name}::<{generics}>({target}, {activations}, {}, {w}.wrapping_offset({} as isize * {w}_stride0), {w}_stride0 as usize, {}, {depth_args});",
                    rows.valid, cols.start, cols.valid
                )
            }
            Primitive::RowMajor(_) => return None,
        };
        self.line(&call);
        Some(())
    }

    /// `b` is `[k, n]` in memory: the tile reference is transposed, so its first range axis is k.
    fn row_major(&mut self, dtype: DType, a: Value, b: &TileRef, m: u32, target: &str) {
        let param = &self.kernel.params[b.tensor as usize];
        let name = param_name(&param.name);
        let rank = b.index.len();
        let mut offset = Vec::new();
        let mut ranges = Vec::new();
        for (axis, index) in b.index.iter().enumerate() {
            let stride = self.stride(b.tensor, axis);
            let Some(range) = self.range(index) else { continue };
            let position = format!("({} as isize)", range.start);
            offset.push(
                stride
                    .as_ref()
                    .map_or_else(|| position.clone(), |stride| format!("{position} * {stride}")),
            );
            if matches!(index, Index::Range { .. }) {
                ranges.push((range, stride));
            }
        }
        debug_assert!(rank >= 2 && ranges.len() == 2, "TypeCheck made a tile of two axes");
        let stride = ranges[0].1.clone().unwrap_or_else(|| "1".to_owned());
        let a_memory = self.memory(a);
        let a_pitch = pitch(self.kernel.ty(a).shape());
        let marker = match dtype {
            DType::F16 => "F16",
            DType::BF16 => "BF16",
            _ => "F32",
        };
        let line = format!(
            "tile::dot_nn::<I, tile::{marker}>({target}, {a_memory}, {a_pitch}, {name}.wrapping_offset({}), {stride} as usize, {m}, {}, {});",
            offset.join(" + "),
            ranges[0].0.valid,
            ranges[1].0.valid
        );
        self.line(&line);
    }
}
