//! The matrix primitive: operands staged in shared memory, then matrix steps.

use std::fmt::Write as _;

use iron_core::ir::{DotOperand, Index, Storage, TileRef, Value};
use iron_core::{DType, Span};

use super::{Pointee, Printer, Result, format_name, map, pointee, type_name};
use crate::passes::schedule::gpu::{Stage, operand_dtype, stages};

/// One of the two axes of an operand, as it lies in memory.
struct Axis {
    /// Distance in elements between neighbours, 64 bits.
    stride: String,
    /// How many positions exist.
    count: String,
    /// Extent of the tile.
    len: u32,
    /// Tile of positions and bound, when they are listed.
    list: Option<(String, String)>,
    /// Whether this is the tensor's last, contiguous axis.
    contiguous: bool,
}

impl Printer<'_> {
    pub(super) fn dot(
        &mut self,
        a: &DotOperand,
        b: &DotOperand,
        acc: Value,
        k: u32,
        span: Span,
    ) -> Result<()> {
        let shape = self.kernel.ty(acc).shape().to_vec();
        let (m, n) = (shape[0], shape[1]);
        let threads = self.threads();
        let dtype = operand_dtype(self.kernel, a, b);
        let (stage_a, stage_b, _) = stages(self.dialect.machine(), dtype, m, n, k);
        let ty = type_name(dtype);
        let shared = self.dialect.shared();
        let mut names = Vec::new();
        for (operand, stage, name) in [(a, stage_a, "a_stage"), (b, stage_b, "b_stage")] {
            let name = self.names.fresh(name);
            let pointer = self.scratch(ty, stage.offset);
            self.line(format!("{shared}{ty}* const {name} = {pointer};"));
            self.stage(operand, stage, dtype, &name, span)?;
            names.push(name);
        }
        self.line("iron::barrier();");
        let acc = self.tile(acc, span)?;
        let call = format!(
            "iron::dot<{m}, {n}, {}, {}, {}, {threads}>",
            stage_a.cols, stage_a.pitch, stage_b.pitch
        );
        if acc.storage == Storage::Fragment {
            self.line(format!("{call}({}, {}, {}, tid);", acc.name, names[0], names[1]));
        } else {
            let sum = self.names.fresh("sum");
            self.line(format!("{} {sum};", map::fragment(&shape, threads)));
            self.line(format!("iron::load_fragment({sum}, {}, tid);", acc.name));
            self.line(format!("{call}({sum}, {}, {}, tid);", names[0], names[1]));
            self.line(format!("iron::store_fragment({sum}, {}, tid);", acc.name));
        }
        Ok(())
    }

    fn stage(
        &mut self,
        operand: &DotOperand,
        stage: Stage,
        dtype: DType,
        to: &str,
        span: Span,
    ) -> Result<()> {
        let threads = self.threads();
        let sizes = format!("{}, {}, {}, {threads}", stage.rows, stage.cols, stage.pitch);
        let ty = type_name(dtype);
        match operand {
            DotOperand::Tile(value) => {
                let tile = self.tile(*value, span)?;
                let shape = self.kernel.ty(*value).shape();
                let function = match tile.storage {
                    Storage::Shared => "stage_shared",
                    Storage::Fragment => "stage_fragment",
                    _ => "stage_blocked",
                };
                let (height, width) = (shape[0], shape[1]);
                self.line(format!(
                    "iron::{function}<{ty}, {sizes}, {height}, {width}>({to}, {}, tid);",
                    tile.name
                ));
                Ok(())
            }
            DotOperand::Memory(tile) => self.stage_memory(tile, &sizes, dtype, to, span),
        }
    }

    fn stage_memory(
        &mut self,
        tile: &TileRef,
        sizes: &str,
        dtype: DType,
        to: &str,
        span: Span,
    ) -> Result<()> {
        let ty = type_name(dtype);
        let param = tile.tensor;
        let packed = match pointee(&self.kernel.params[param as usize].kind) {
            Some(Pointee::Packed(format)) => format_name(format),
            _ => None,
        };
        if let Some(format) = packed {
            return self.stage_packed(tile, format, sizes, ty, to, span);
        }
        let mut base = self.param(param);
        let mut axes = Vec::new();
        let last = tile.index.len() - 1;
        for (axis, entry) in tile.index.iter().enumerate() {
            let stride = self.stride(param, axis);
            match entry {
                Index::At(value) => add_offset(&mut base, &self.scalar(*value, span)?, &stride),
                Index::Range { start, stride: step, .. } => {
                    let start = self.scalar(*start, span)?;
                    add_offset(&mut base, &start, &stride);
                    let (len, count) = self.extent(entry, span)?;
                    let stride = if *step == 1 { stride } else { format!("{stride} * {step}") };
                    axes.push(Axis { stride, count, len, list: None, contiguous: axis == last });
                }
                Index::Gather(list) => {
                    let len = self.kernel.ty(*list).shape()[0];
                    let list = self.tile(*list, span)?.name;
                    let extent = self.kernel.params[param as usize].kind.shape()[axis].clone();
                    let bound = self.dim_expr(&extent);
                    axes.push(Axis {
                        stride,
                        count: len.to_string(),
                        len,
                        list: Some((list, bound)),
                        contiguous: axis == last,
                    });
                }
            }
        }
        let Ok([first, second]) = <[Axis; 2]>::try_from(axes) else {
            return self.fail(span, "an operand of `dot` has two axes");
        };
        let (rows, cols) = if tile.transposed { (second, first) } else { (first, second) };
        let strides = format!("{}, {}", rows.stride, cols.stride);
        let counts = format!("{}, {}", rows.count, cols.count);
        let same = matches!(pointee(&self.kernel.params[param as usize].kind), Some(Pointee::Plain(stored)) if stored == dtype);
        let (function, list) = match (&rows.list, &cols.list) {
            (Some(_), Some(_)) => {
                return self.fail(span, "an operand of `dot` can be gathered along one axis");
            }
            (Some((list, bound)), None) => ("stage_gathered_rows", format!("{list}, {bound}, ")),
            (None, Some((list, bound))) => ("stage_gathered_cols", format!("{list}, {bound}, ")),
            (None, None) if rows.contiguous && rows.len > 1 => ("stage_transposed", String::new()),
            (None, None) if same => ("stage_same", String::new()),
            (None, None) => ("stage", String::new()),
        };
        self.line(format!(
            "iron::{function}<{ty}, {sizes}>({to}, {base}, {list}{strides}, {counts}, tid);"
        ));
        Ok(())
    }

    fn stage_packed(
        &mut self,
        tile: &TileRef,
        format: &str,
        sizes: &str,
        ty: &str,
        to: &str,
        span: Span,
    ) -> Result<()> {
        let rank = tile.index.len();
        let (row, k) = (&tile.index[rank - 2], &tile.index[rank - 1]);
        let (
            Index::Range { start: row_start, stride: 1, .. },
            Index::Range { start: k_start, stride: 1, .. },
        ) = (row, k)
        else {
            return self
                .fail(span, "packed weights are read as a range of rows and a range along k");
        };
        if tile.transposed {
            return self.fail(span, "packed weights cannot be read transposed");
        }
        let mut positions = self.positions(&tile.index[..rank - 2], span)?;
        positions.push(self.scalar(*row_start, span)?);
        let k_start = self.scalar(*k_start, span)?;
        let (_, rows) = self.extent(row, span)?;
        let (_, cols) = self.extent(k, span)?;
        let from = self.packed_row(tile.tensor, &positions);
        let bytes = self.packed_row_bytes(tile.tensor);
        self.line(format!("iron::stage_packed<{format}, {ty}, {sizes}>({to}, {from}, {bytes}, {k_start}, {rows}, {cols}, tid);"));
        Ok(())
    }

    fn extent(&mut self, entry: &Index, span: Span) -> Result<(u32, String)> {
        let Index::Range { start, len, stride, bound } = entry else {
            return self.fail(span, "expected a range");
        };
        let count = match bound {
            None => len.to_string(),
            Some(bound) => {
                format!(
                    "iron::extent({}, {}, {stride}, {len})",
                    self.scalar(*start, span)?,
                    self.scalar(*bound, span)?
                )
            }
        };
        Ok((*len, count))
    }

    /// Bytes of one row of packed weights.
    pub(super) fn packed_row_bytes(&mut self, param: u32) -> String {
        let kind = &self.kernel.params[param as usize].kind;
        let Some(Pointee::Packed(format)) = pointee(kind) else { return "0".to_owned() };
        let k = kind.shape().last().cloned().expect("weights have axes");
        let k = self.dim_expr(&k);
        format!("iron::i64({k} / {}) * {}", format.block(), format.block_bytes())
    }

    /// Address of the first block of a row of packed weights, which lie one after another.
    pub(super) fn packed_row(&mut self, param: u32, positions: &[String]) -> String {
        let shape = self.kernel.params[param as usize].kind.shape().to_vec();
        let mut row = String::new();
        for (axis, position) in positions.iter().enumerate() {
            if row.is_empty() {
                row = format!("iron::i64({position})");
            } else {
                let extent = self.dim_expr(&shape[axis]);
                row = format!("({row} * {extent} + {position})");
            }
        }
        let bytes = self.packed_row_bytes(param);
        format!("{} + {row} * ({bytes})", self.param(param))
    }
}

fn add_offset(base: &mut String, position: &str, stride: &str) {
    if position == "0" {
        return;
    }
    if stride == "1" {
        let _ = write!(base, " + {position}");
    } else {
        let _ = write!(base, " + {position} * {stride}");
    }
}
