//! Pass 3, TileLowering: tile operations become maps and the primitives of the tile library.
//!
//! Elementwise operations, loads, stores and reductions turn into [`Map`]s. Broadcasts, transposes, positions and unit
//! axes are *views*: they cost nothing and are resolved where they are read. `dot` becomes [`OpKind::DotTile`], which
//! reads its operands from memory where they were loaded only for it.

use std::collections::HashMap;

use iron_core::ir::{
    ActivationKind, BinaryOp, Block, Const, DimExpr, DimOp, DotOperand, Element, Guard, Index,
    Kernel, Map, MapInput, MapOutput, MapSchedule, Op, OpKind, ParamKind, ReduceOp, TileRef, Type,
    Value,
};
use iron_core::visit::Uses;
use iron_core::{DType, Diagnostic, Span};

type Result<T> = std::result::Result<T, Diagnostic>;

/// Runs the pass.
pub fn tile_lowering(kernel: &mut Kernel) -> Result<()> {
    let body = std::mem::take(&mut kernel.body);
    let mut definitions = HashMap::new();
    let mut counters = HashMap::new();
    body.walk(&mut |op| {
        if let OpKind::For { lower, body, .. } = &op.kind {
            counters.insert(body.args[0], *lower);
        }
        if let [result] = op.results[..] {
            definitions.insert(result, op.kind.clone());
        }
    });
    kernel.body = body;
    let uses = kernel.uses();
    let body = std::mem::take(&mut kernel.body);
    let mut lowering = Lowering { kernel, definitions, uses, counters, out: vec![Vec::new()] };
    let body = lowering.block(body)?;
    kernel.body = body;
    super::const_fold::const_fold(kernel);
    Ok(())
}

struct Lowering<'k> {
    kernel: &'k mut Kernel,
    definitions: HashMap<Value, OpKind>,
    uses: Uses,
    /// Loop counters and where they begin.
    counters: HashMap<Value, Value>,
    /// Operations of the blocks being rewritten, innermost last.
    out: Vec<Vec<Op>>,
}

/// A map under construction.
struct Body {
    space: Vec<u32>,
    indices: Vec<Value>,
    inputs: Vec<(MapInput, Value)>,
    ops: Vec<Op>,
    span: Span,
}

impl Lowering<'_> {
    fn block(&mut self, block: Block) -> Result<Block> {
        self.out.push(Vec::new());
        for op in block.ops {
            self.op(op)?;
        }
        let mut yields = Vec::with_capacity(block.yields.len());
        for value in block.yields {
            yields.push(self.materialize(value)?);
        }
        let ops = self.out.pop().expect("pushed above");
        Ok(Block { args: block.args, ops, yields })
    }

    fn push(&mut self, kind: OpKind, results: Vec<Value>, span: Span) {
        self.out.last_mut().expect("a block is open").push(Op { kind, results, span });
    }

    fn emit(&mut self, kind: OpKind, ty: Type, span: Span) -> Value {
        let value = self.kernel.new_value(ty, span);
        self.push(kind, vec![value], span);
        value
    }

    fn i32(&mut self, value: i32, span: Span) -> Value {
        self.emit(OpKind::Const(Const::I32(value)), Type::Scalar(DType::I32), span)
    }

    fn dim_value(&mut self, expr: &DimExpr, span: Span) -> Value {
        let int = Type::Scalar(DType::I32);
        match expr {
            DimExpr::Const(value) => self.i32(*value as i32, span),
            DimExpr::Dim(index) => self.emit(OpKind::Dim(*index), int, span),
            DimExpr::Op(op, a, b) => {
                let (a, b) = (self.dim_value(a, span), self.dim_value(b, span));
                let op = match op {
                    DimOp::Add => BinaryOp::Add,
                    DimOp::Sub => BinaryOp::Sub,
                    DimOp::Mul => BinaryOp::Mul,
                    DimOp::Div => BinaryOp::Div,
                    DimOp::Min => BinaryOp::Min,
                    DimOp::Max => BinaryOp::Max,
                    DimOp::DivCeil => {
                        let one = self.i32(1, span);
                        let sum = self.emit(OpKind::Binary(BinaryOp::Add, a, b), int.clone(), span);
                        let sum =
                            self.emit(OpKind::Binary(BinaryOp::Sub, sum, one), int.clone(), span);
                        return self.emit(OpKind::Binary(BinaryOp::Div, sum, b), int, span);
                    }
                };
                self.emit(OpKind::Binary(op, a, b), int, span)
            }
        }
    }

    fn op(&mut self, op: Op) -> Result<()> {
        let Op { kind, results, span } = op;
        match kind {
            OpKind::For { lower, upper, step, carried, body } => {
                self.only_plain(&results, span)?;
                let mut entry = Vec::with_capacity(carried.len());
                for value in carried {
                    entry.push(self.materialize(value)?);
                }
                let body = self.block(body)?;
                self.push(OpKind::For { lower, upper, step, carried: entry, body }, results, span);
            }
            OpKind::If { condition, then, otherwise } => {
                self.only_plain(&results, span)?;
                let then = self.block(then)?;
                let otherwise = self.block(otherwise)?;
                self.push(OpKind::If { condition, then, otherwise }, results, span);
            }
            OpKind::Dot { a, b, acc } => {
                let k = self.kernel.ty(a).shape()[1];
                let (a, b) = (self.dot_operand(a)?, self.dot_operand(b)?);
                for operand in [&a, &b] {
                    if let DotOperand::Memory(tile) = operand {
                        self.begins_inside(tile.tensor, &tile.index, span)?;
                    }
                }
                let acc = self.materialize(acc)?;
                self.push(OpKind::DotTile { a, b, acc, k }, results, span);
            }
            OpKind::Reduce { op, value, axis } => self.reduce(op, value, axis, results, span)?,
            OpKind::Store { tensor, index, value }
                if !self.kernel.ty(value).is_scalar() || !all_at(&index) =>
            {
                self.store(tensor, index, value, span)?;
            }
            OpKind::Load { tensor, index, fill } if !all_at(&index) => {
                if !self.is_deferred_load(results[0]) {
                    self.load(tensor, &index, fill, results, span)?;
                }
            }
            OpKind::Cast(value)
                if matches!(
                    self.kernel.ty(value),
                    Type::Tile { element: Element::Packed(_), .. }
                ) =>
            {
                match self.definitions.get(&value) {
                    Some(OpKind::Load { tensor, index, .. }) => {
                        let kind = OpKind::DecodeRow { tensor: *tensor, index: index.clone() };
                        self.push(kind, results, span);
                    }
                    _ => {
                        return Err(Diagnostic::new(
                            span,
                            "only freshly loaded weights can be decoded",
                        )
                        .help("write `load(w[(row, j)]).f32()`"));
                    }
                }
            }
            kind if results.is_empty() || self.kernel.ty(results[0]).is_scalar() => {
                self.push(kind, results, span);
            }
            kind if is_view(&kind) => {}
            kind => self.elementwise(kind, results, span)?,
        }
        Ok(())
    }

    /// Tiles that are decoded where they are used are no values that a loop or branch could hand on.
    fn only_plain(&self, results: &[Value], span: Span) -> Result<()> {
        match results.iter().find(|result| self.kernel.ty(**result).dtype().is_none()) {
            None => Ok(()),
            Some(result) => {
                let name = self.kernel.info(*result).name.clone().unwrap_or_default();
                let ty = self.kernel.ty(*result);
                Err(Diagnostic::new(span, format!("`{name}` is {ty}, which no loop or branch can carry"))
                    .help("load it where it is used: weights and int8 activations are read in place by `dot`"))
            }
        }
    }

    /// Whether a scalar is certain not to be negative, as far as the operations that made it tell.
    fn is_natural(&self, value: Value) -> bool {
        if self.counters.get(&value).is_some_and(|lower| self.is_natural(*lower)) {
            return true;
        }
        match self.definitions.get(&value) {
            Some(OpKind::Const(Const::I32(constant))) => *constant >= 0,
            Some(OpKind::ProgramId(_) | OpKind::Dim(_)) => true,
            Some(OpKind::Binary(op, a, b)) => match op {
                BinaryOp::Max => self.is_natural(*a) || self.is_natural(*b),
                BinaryOp::Add | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Min => {
                    self.is_natural(*a) && self.is_natural(*b)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// What a primitive reads or writes in one piece must begin at a position that exists.
    fn begins_inside(&self, tensor: u32, index: &[Index], span: Span) -> Result<()> {
        let negative = index.iter().any(|entry| {
            let Index::Range { start, .. } = entry else { return false };
            match self.definitions.get(start) {
                Some(OpKind::Binary(BinaryOp::Sub, ..)) => true,
                Some(OpKind::Const(Const::I32(start))) => *start < 0,
                _ => false,
            }
        });
        if negative {
            let name = &self.kernel.params[tensor as usize].name;
            return Err(Diagnostic::new(span, format!("this range of `{name}` may begin before its first position"))
                .help("products and quantised tiles are read in one piece: write `span(start.max(0), LEN)`"));
        }
        Ok(())
    }

    /// Whether a load is read in place by the one operation that uses it.
    fn is_deferred_load(&self, value: Value) -> bool {
        let Some(OpKind::Load { tensor, fill, .. }) = self.definitions.get(&value) else {
            return false;
        };
        let packed =
            !matches!(self.kernel.ty(value), Type::Tile { element: Element::Plain(_), .. });
        if packed {
            return true;
        }
        // The primitives take 0 for what is masked, and read when they run.
        fill.is_none()
            && !self.kernel.params[*tensor as usize].kind.is_mutable()
            && self.used_only_by_dot(value)
    }

    fn used_only_by_dot(&self, value: Value) -> bool {
        let mut dots = 0;
        for (result, kind) in &self.definitions {
            match kind {
                OpKind::Dot { a, b, acc } => {
                    if *acc == value {
                        return false;
                    }
                    dots += u32::from(*a == value) + u32::from(*b == value);
                }
                OpKind::Transpose(source) if *source == value => {
                    if !self.used_only_by_dot(*result) {
                        return false;
                    }
                    dots += 1;
                }
                _ => {}
            }
        }
        dots > 0 && dots == self.uses.of(value)
    }

    fn dot_operand(&mut self, value: Value) -> Result<DotOperand> {
        let (source, transposed) = match self.definitions.get(&value) {
            Some(OpKind::Transpose(source)) => (*source, true),
            _ => (value, false),
        };
        if self.is_deferred_load(source)
            && let Some(OpKind::Load { tensor, index, .. }) = self.definitions.get(&source)
        {
            let (tensor, index) = (*tensor, index.clone());
            return Ok(DotOperand::Memory(TileRef { tensor, index, transposed }));
        }
        Ok(DotOperand::Tile(self.materialize(value)?))
    }

    /// `value` itself, or for a view a tile with its elements.
    fn materialize(&mut self, value: Value) -> Result<Value> {
        let needs_map =
            self.definitions.get(&value).is_some_and(is_view) && !self.kernel.ty(value).is_scalar();
        if !needs_map {
            return Ok(value);
        }
        let info = self.kernel.info(value).clone();
        let mut body = self.body(info.ty.shape().to_vec(), info.span);
        let axes: Vec<u32> = (0..body.space.len() as u32).collect();
        let element = self.element(&mut body, value, &axes)?;
        let result = self.kernel.new_value(info.ty, info.span);
        self.kernel.info_mut(result).name = info.name;
        self.finish(body, vec![element], vec![MapOutput::Element], vec![result]);
        Ok(result)
    }

    fn body(&mut self, space: Vec<u32>, span: Span) -> Body {
        let indices =
            space.iter().map(|_| self.kernel.new_value(Type::Scalar(DType::I32), span)).collect();
        Body { space, indices, inputs: Vec::new(), ops: Vec::new(), span }
    }

    fn finish(
        &mut self,
        body: Body,
        yields: Vec<Value>,
        outputs: Vec<MapOutput>,
        results: Vec<Value>,
    ) {
        let mut args = body.indices;
        let mut inputs = Vec::new();
        for (input, arg) in body.inputs {
            inputs.push(input);
            args.push(arg);
        }
        let map = Map {
            space: body.space,
            inputs,
            body: Block { args, ops: body.ops, yields },
            outputs,
            schedule: MapSchedule::default(),
        };
        self.push(OpKind::Map(map), results, body.span);
    }

    fn emit_in(&mut self, body: &mut Body, kind: OpKind, dtype: DType) -> Value {
        let value = self.kernel.new_value(Type::Scalar(dtype), body.span);
        body.ops.push(Op { kind, results: vec![value], span: body.span });
        value
    }

    /// The scalar that stands for `value` at a point of the map, its axis `i` being indexed by space axis `axes[i]`.
    fn element(&mut self, body: &mut Body, value: Value, axes: &[u32]) -> Result<Value> {
        let ty = self.kernel.ty(value).clone();
        if ty.is_scalar() {
            return Ok(value);
        }
        match self.definitions.get(&value).cloned() {
            Some(OpKind::Broadcast { value: source, axes: kept }) => {
                let axes: Vec<u32> = kept.iter().map(|axis| axes[*axis as usize]).collect();
                self.element(body, source, &axes)
            }
            Some(OpKind::Transpose(source)) => self.element(body, source, &[axes[1], axes[0]]),
            Some(OpKind::Reshape(source)) => {
                let axes = self.unit_axes(body, source, &ty, axes)?;
                self.element(body, source, &axes)
            }
            Some(OpKind::Iota { start, stride }) => {
                let mut position = body.indices[axes[0] as usize];
                if stride != 1 {
                    let factor = self.i32(stride as i32, body.span);
                    position = self.emit_in(
                        body,
                        OpKind::Binary(BinaryOp::Mul, position, factor),
                        DType::I32,
                    );
                }
                Ok(self.emit_in(body, OpKind::Binary(BinaryOp::Add, start, position), DType::I32))
            }
            _ => {
                let input = MapInput { value, axes: axes.to_vec() };
                if let Some((_, arg)) = body.inputs.iter().find(|(known, _)| *known == input) {
                    return Ok(*arg);
                }
                let dtype = ty.dtype().ok_or_else(|| {
                    Diagnostic::new(
                        body.span,
                        "packed weights and int8 activations have no elements",
                    )
                    .help("pass them to `dot`, or decode one row with `.f32()`")
                })?;
                let arg = self.kernel.new_value(Type::Scalar(dtype), body.span);
                body.inputs.push((input, arg));
                Ok(arg)
            }
        }
    }

    /// The axes of `source` when `reshaped` differs from it by axes of length 1 only.
    fn unit_axes(
        &self,
        body: &Body,
        source: Value,
        reshaped: &Type,
        axes: &[u32],
    ) -> Result<Vec<u32>> {
        let from = self.kernel.ty(source).shape();
        let mut wide = reshaped.shape().iter().zip(axes).filter(|(extent, _)| **extent != 1);
        let unit = reshaped
            .shape()
            .iter()
            .zip(axes)
            .find(|(extent, _)| **extent == 1)
            .map(|(_, axis)| *axis);
        let mapped: Option<Vec<u32>> = from
            .iter()
            .map(|extent| match *extent {
                1 => unit.or_else(|| {
                    body.space.iter().position(|extent| *extent == 1).map(|axis| axis as u32)
                }),
                extent => wide.next().filter(|(other, _)| **other == extent).map(|(_, axis)| *axis),
            })
            .collect();
        mapped.filter(|_| wide.next().is_none()).ok_or_else(|| {
            Diagnostic::new(
                body.span,
                format!("{from:?} does not become {:?} by axes of length 1", reshaped.shape()),
            )
            .help("use `.expand(axis)` where the tile is combined with others")
        })
    }

    fn elementwise(&mut self, kind: OpKind, results: Vec<Value>, span: Span) -> Result<()> {
        let ty = self.kernel.ty(results[0]).clone();
        let dtype = ty.dtype().expect("elementwise results are plain");
        let mut body = self.body(ty.shape().to_vec(), span);
        let axes: Vec<u32> = (0..body.space.len() as u32).collect();
        let operands: Vec<Value> = kind
            .operands()
            .into_iter()
            .map(|operand| self.element(&mut body, operand, &axes))
            .collect::<Result<_>>()?;
        let mut kind = kind;
        let mut operands = operands.into_iter();
        kind.map_operands(|_| operands.next().expect("as many as there were"));
        let element = self.emit_in(&mut body, kind, dtype);
        self.finish(body, vec![element], vec![MapOutput::Element], results);
        Ok(())
    }

    fn reduce(
        &mut self,
        op: ReduceOp,
        value: Value,
        axis: Option<u32>,
        results: Vec<Value>,
        span: Span,
    ) -> Result<()> {
        let shape = self.kernel.ty(value).shape().to_vec();
        let all: Vec<u32> = (0..shape.len() as u32).collect();
        let mut body = self.body(shape, span);
        let element = self.element(&mut body, value, &all)?;
        let axes = axis.map_or(all, |axis| vec![axis]);
        self.finish(body, vec![element], vec![MapOutput::Reduce { op, axes }], results);
        Ok(())
    }

    /// Scalar positions and guards of an access, in the body of a map whose leading axes are the tile's.
    fn positions(
        &mut self,
        body: &mut Body,
        tensor: u32,
        index: &[Index],
    ) -> Result<(Vec<Value>, Vec<Guard>)> {
        let (mut positions, mut guards) = (Vec::new(), Vec::new());
        let extents = self.kernel.params[tensor as usize].kind.shape().to_vec();
        let mut axis = 0_u32;
        for (entry, extent) in index.iter().zip(&extents) {
            match entry {
                Index::At(value) => positions.push(*value),
                Index::Range { start, stride, bound, .. } => {
                    let mut offset = body.indices[axis as usize];
                    if *stride != 1 {
                        let factor = self.i32(*stride as i32, body.span);
                        offset = self.emit_in(
                            body,
                            OpKind::Binary(BinaryOp::Mul, offset, factor),
                            DType::I32,
                        );
                    }
                    let position = self.emit_in(
                        body,
                        OpKind::Binary(BinaryOp::Add, *start, offset),
                        DType::I32,
                    );
                    let signed = !self.is_natural(*start);
                    if let Some(bound) = bound {
                        guards.push(Guard { index: position, bound: *bound, signed });
                    } else if signed {
                        let bound = self.dim_value(extent, body.span);
                        guards.push(Guard { index: position, bound, signed });
                    }
                    positions.push(position);
                    axis += 1;
                }
                Index::Gather(list) => {
                    let position = self.element(body, *list, &[axis])?;
                    let bound = self.dim_value(extent, body.span);
                    guards.push(Guard { index: position, bound, signed: true });
                    positions.push(position);
                    axis += 1;
                }
            }
        }
        Ok((positions, guards))
    }

    fn load(
        &mut self,
        tensor: u32,
        index: &[Index],
        fill: Option<Value>,
        results: Vec<Value>,
        span: Span,
    ) -> Result<()> {
        let ty = self.kernel.ty(results[0]).clone();
        let dtype = ty.dtype().expect("packed loads are deferred");
        let fill = match fill {
            Some(fill) => fill,
            None => {
                let zero = match dtype {
                    DType::F32 => Const::F32(0.0),
                    DType::U32 => Const::U32(0),
                    DType::Bool => Const::Bool(false),
                    _ => Const::I32(0),
                };
                self.emit(OpKind::Const(zero), Type::Scalar(zero.dtype()), span)
            }
        };
        let mut body = self.body(ty.shape().to_vec(), span);
        let (positions, guards) = self.positions(&mut body, tensor, index)?;
        let element = self.emit_in(
            &mut body,
            OpKind::ElementLoad { tensor, index: positions, guards, fill },
            dtype,
        );
        self.finish(body, vec![element], vec![MapOutput::Element], results);
        Ok(())
    }

    fn store(&mut self, tensor: u32, index: Vec<Index>, value: Value, span: Span) -> Result<()> {
        let int8 = matches!(
            self.kernel.params[tensor as usize].kind,
            ParamKind::Activations { kind: ActivationKind::Int8, .. }
        );
        if int8 {
            let value = self.materialize(value)?;
            let len = self.kernel.ty(value).shape().last().copied().unwrap_or(0);
            let whole = matches!(index.last(), Some(Index::Range { stride: 1, .. }));
            if !len.is_multiple_of(32) || !whole {
                return Err(Diagnostic::new(
                    span,
                    format!("int8 activations are stored in blocks of 32, this tile has {len}"),
                )
                .help("store ranges along k whose length is a multiple of 32"));
            }
            let row_fits = match &index[..] {
                [Index::At(_), _] => true,
                [Index::Range { stride, .. }, _] => *stride == 1,
                _ => false,
            };
            if !row_fits {
                return Err(Diagnostic::new(span, "int8 activations are stored row by row")
                    .help("index the rows with a scalar or a range, `out[(row, j)]`; gathered rows need a loop"));
            }
            self.begins_inside(tensor, &index, span)?;
            self.push(OpKind::QuantizeStore { tensor, index, value }, Vec::new(), span);
            return Ok(());
        }
        let shape = index
            .iter()
            .filter_map(|entry| match entry {
                Index::At(_) => None,
                Index::Range { len, .. } => Some(*len),
                Index::Gather(list) => Some(self.kernel.ty(*list).shape()[0]),
            })
            .collect();
        let mut body = self.body(shape, span);
        let axes: Vec<u32> = (0..body.space.len() as u32).collect();
        let element = self.element(&mut body, value, &axes)?;
        let (positions, guards) = self.positions(&mut body, tensor, &index)?;
        body.ops.push(Op {
            kind: OpKind::ElementStore { tensor, index: positions, guards, value: element },
            results: Vec::new(),
            span,
        });
        self.finish(body, Vec::new(), Vec::new(), Vec::new());
        Ok(())
    }
}

fn all_at(index: &[Index]) -> bool {
    index.iter().all(|entry| matches!(entry, Index::At(_)))
}

/// Whether an operation only renames elements.
fn is_view(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Broadcast { .. } | OpKind::Transpose(_) | OpKind::Reshape(_) | OpKind::Iota { .. }
    )
}
