//! Calls and methods: the operations of the language, and helpers inlined by name.

use iron_core::ir::{Element, Index, Op, OpKind, ParamKind, ReduceOp, Type, UnaryOp, Value};
use iron_core::syntax::{BinaryOp, Expr, ExprKind, Function, ParamType};
use iron_core::{DType, Diagnostic, Span};

use super::expressions::nearest;
use super::scope::{Item, RangeItem};
use super::statements::describe_type;
use super::{Checker, MAX_INLINE_DEPTH, Result};

/// Elementwise functions of one value, callable as `f(x)` and `x.f()`.
const UNARY: [(&str, UnaryOp); 11] = [
    ("exp", UnaryOp::Exp),
    ("ln", UnaryOp::Ln),
    ("sqrt", UnaryOp::Sqrt),
    ("rsqrt", UnaryOp::Rsqrt),
    ("tanh", UnaryOp::Tanh),
    ("sigmoid", UnaryOp::Sigmoid),
    ("erf", UnaryOp::Erf),
    ("sin", UnaryOp::Sin),
    ("cos", UnaryOp::Cos),
    ("abs", UnaryOp::Abs),
    ("floor", UnaryOp::Floor),
];

/// Every function and how it is called.
const FUNCTIONS: [(&str, &str); 28] = [
    ("load", "load(x[(i, j)])"),
    ("load_or", "load_or(x[(i, j)], fill)"),
    ("store", "store(out[(i, j)], value)"),
    ("zeros", "zeros::<f32>((BM, BN))"),
    ("full", "full::<f32>((BM, BN), value)"),
    ("dot", "dot(a, b, acc)"),
    ("select", "select(condition, a, b)"),
    ("fma", "fma(a, b, c)"),
    ("sum", "sum(tile)` or `sum(tile, axis)"),
    ("max", "max(tile)` or `max(tile, axis)"),
    ("min", "min(tile)` or `min(tile, axis)"),
    ("any", "any(tile)` or `any(tile, axis)"),
    ("exp", "exp(x)"),
    ("ln", "ln(x)"),
    ("sqrt", "sqrt(x)"),
    ("rsqrt", "rsqrt(x)"),
    ("tanh", "tanh(x)"),
    ("sigmoid", "sigmoid(x)"),
    ("erf", "erf(x)"),
    ("sin", "sin(x)"),
    ("cos", "cos(x)"),
    ("abs", "abs(x)"),
    ("floor", "floor(x)"),
    ("round", "round(x)"),
    ("program_id", "program_id(0)"),
    ("tile_id", "tile_id(0, BLOCK)"),
    ("all", "all(LEN)"),
    ("span", "span(start, LEN)"),
];

const REDUCTIONS: [(&str, ReduceOp); 4] = [
    ("sum", ReduceOp::Sum),
    ("max", ReduceOp::Max),
    ("min", ReduceOp::Min),
    ("any", ReduceOp::Any),
];

fn unary_named(name: &str) -> Option<UnaryOp> {
    if name == "round" {
        return Some(UnaryOp::Round);
    }
    UNARY.iter().find(|(known, _)| *known == name).map(|(_, op)| *op)
}

impl Checker<'_> {
    pub(super) fn call(
        &mut self,
        function: &str,
        generics: &[&str],
        args: &[Expr],
        span: Span,
    ) -> Result<Item> {
        if let (Some(op), [operand]) = (unary_named(function), args) {
            let item = self.expr(operand)?;
            return self.unary(op, &item, span);
        }
        if let (Some((_, op)), [value, axis @ ..]) =
            (REDUCTIONS.iter().find(|(name, _)| *name == function), args)
            && axis.len() <= 1
        {
            return self.reduce(*op, value, axis.first(), span);
        }
        match (function, args) {
            ("program_id", [axis]) => Ok(Item::Value(self.program_id(axis)?)),
            ("tile_id", [axis, len]) => {
                let program = self.program_id(axis)?;
                let len = self.const_u32(len, "a tile's length")?;
                let factor = self.i32(i64::from(len), span)?;
                let start = self.emit(
                    OpKind::Binary(BinaryOp::Mul, program, factor),
                    Type::Scalar(DType::I32),
                    span,
                );
                Ok(Item::Range(RangeItem { start, known_end: None, len, stride: 1, bound: None }))
            }
            ("all", [len]) => {
                let len = self.const_u32(len, "a tile's length")?;
                let start = self.i32(0, span)?;
                Ok(Item::Range(RangeItem {
                    start,
                    known_end: Some(i64::from(len)),
                    len,
                    stride: 1,
                    bound: None,
                }))
            }
            ("span", [start, len]) => {
                let start = self.expr(start)?;
                let len = self.const_u32(len, "a tile's length")?;
                let known_end =
                    if let Item::Int(start) = start { Some(start + i64::from(len)) } else { None };
                let start = self.coerce(&start, DType::I32, span)?;
                Ok(Item::Range(RangeItem { start, known_end, len, stride: 1, bound: None }))
            }
            ("load", [place]) => self.load(place, None),
            ("load_or", [place, fill]) => self.load(place, Some(fill)),
            ("store", [place, value]) => self.store(place, value, span),
            ("zeros", [shape]) => {
                let dtype = self.one_type(generics, span)?;
                let zero = match dtype {
                    DType::F32 => Item::Float(0.0),
                    DType::Bool => Item::Bool(false),
                    _ => Item::Int(0),
                };
                self.full(&zero, dtype, shape, span)
            }
            ("full", [shape, value]) => {
                let dtype = self.one_type(generics, span)?;
                let value = self.expr(value)?;
                self.full(&value, dtype, shape, span)
            }
            ("dot", [a, b, acc]) => self.dot(a, b, acc, span),
            ("select", [condition, a, b]) => {
                let (condition, a, b) = (self.expr(condition)?, self.expr(a)?, self.expr(b)?);
                self.select(&condition, &a, &b, span)
            }
            ("fma", [a, b, c]) => {
                let (a, b, c) = (self.expr(a)?, self.expr(b)?, self.expr(c)?);
                let (a, b) = self.operands(&a, &b, span)?;
                let (a, c) = self.operands(&Item::Value(a), &c, span)?;
                let (b, c) = self.operands(&Item::Value(b), &Item::Value(c), span)?;
                let a = self.coerce(&Item::Value(a), DType::F32, span)?;
                let ty = self.ty(a).clone();
                Ok(Item::Value(self.emit(OpKind::Fma(a, b, c), ty, span)))
            }
            _ => match self.library.get(function).copied() {
                Some(helper) => self.inline(helper, args, span),
                None => Err(self.unknown_function(function, args.len(), span)),
            },
        }
    }

    fn unknown_function(&self, function: &str, args: usize, span: Span) -> Diagnostic {
        if let Some((name, signature)) = FUNCTIONS.iter().find(|(name, _)| *name == function) {
            return Diagnostic::new(span, format!("`{name}` does not take {args} arguments"))
                .help(format!("write `{signature}`"));
        }
        let mut known: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        let helpers = self.library.values().filter(|it| it.grid.is_empty()).map(|it| it.name);
        known.extend(helpers);
        let list = FUNCTIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let diagnostic = Diagnostic::new(span, format!("unknown function `{function}`"));
        diagnostic.help(match nearest(function, known.into_iter()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("functions: {list}; helpers are `#[kernel]` functions without a grid"),
        })
    }

    pub(super) fn method(
        &mut self,
        receiver: &Expr,
        name: &str,
        generics: &[&str],
        args: &[Expr],
        span: Span,
    ) -> Result<Item> {
        let item = self.expr(receiver)?;
        if let (Some(op), []) = (unary_named(name), args) {
            return self.unary(op, &item, span);
        }
        match (name, args) {
            ("f32", []) => self.convert(&item, DType::F32, span),
            ("i32", []) => self.convert(&item, DType::I32, span),
            ("u32", []) => self.convert(&item, DType::U32, span),
            // `store` converts to the tensor's type, so a cast without a type changes nothing.
            ("cast", []) if generics.is_empty() => Ok(item),
            ("cast", []) => {
                let dtype = self.one_type(generics, span)?;
                self.convert(&item, dtype, span)
            }
            ("bitcast", []) => {
                let dtype = self.one_type(generics, span)?;
                let value = self.value_of(&item, span)?;
                let ty = self.ty(value).clone();
                if dtype == DType::Bool || ty.dtype().is_none_or(|from| from == DType::Bool) {
                    return Err(Diagnostic::new(span, format!("{} has no bits of type {dtype}", describe_type(&ty)))
                        .help("bitcast between f32, i32 and u32"));
                }
                let ty = ty.with_dtype(dtype);
                Ok(Item::Value(self.emit(OpKind::Bitcast(value), ty, span)))
            }
            ("min" | "max", [other]) => {
                let other = self.expr(other)?;
                let op = if name == "min" { BinaryOp::Min } else { BinaryOp::Max };
                self.binary(op, &item, &other, span)
            }
            ("div_ceil", [divisor]) => {
                let divisor = self.expr(divisor)?;
                if let (Item::Int(a), Item::Int(b)) = (&item, &divisor)
                    && *b > 0
                {
                    return Ok(Item::Int((a + b - 1) / b));
                }
                let sum = self.binary(BinaryOp::Add, &item, &divisor, span)?;
                let sum = self.binary(BinaryOp::Sub, &sum, &Item::Int(1), span)?;
                self.binary(BinaryOp::Div, &sum, &divisor, span)
            }
            ("t", []) => {
                let value = self.value_of(&item, span)?;
                match self.ty(value).clone() {
                    Type::Tile { element, shape } if shape.len() == 2 => {
                        let ty = Type::Tile { element, shape: vec![shape[1], shape[0]] };
                        Ok(Item::Value(self.emit(OpKind::Transpose(value), ty, span)))
                    }
                    ty => Err(Diagnostic::new(span, format!("{} has no transpose", describe_type(&ty))).help("`.t()` takes a tile of two axes")),
                }
            }
            ("expand", [axis]) => self.expand(&item, axis, span),
            ("index", []) => match item {
                Item::Range(range) => {
                    let ty = Type::tile(DType::I32, vec![range.len]);
                    Ok(Item::Value(self.emit(OpKind::Iota { start: range.start, stride: range.stride }, ty, span)))
                }
                other => Err(Diagnostic::new(span, format!("{} has no positions", self.describe(&other))).help("`.index()` takes a range")),
            },
            ("start", []) => match item {
                Item::Range(range) => Ok(Item::Value(range.start)),
                other => Err(Diagnostic::new(span, format!("{} has no start", self.describe(&other))).help("`.start()` takes a range")),
            },
            _ => Err(Diagnostic::new(span, format!("unknown method `{name}`"))
                .help("methods: f32, i32, u32, cast, bitcast, min, max, div_ceil, t, expand, index, start, and the elementwise functions")),
        }
    }

    fn one_type(&self, generics: &[&str], span: Span) -> Result<DType> {
        match generics {
            [name] => self.dtype_named(name, span),
            _ => Err(Diagnostic::new(span, "one type is needed here")
                .help("write `zeros::<f32>((BLOCK,))`")),
        }
    }

    fn program_id(&mut self, axis: &Expr) -> Result<Value> {
        match self.expr(axis)? {
            Item::Int(index) if (0..self.kernel.grid.len() as i64).contains(&index) => {
                Ok(self.emit(OpKind::ProgramId(index as u8), Type::Scalar(DType::I32), axis.span))
            }
            item => {
                let axes = self.kernel.grid.len();
                let known = if axes == 1 {
                    "one axis, 0".to_owned()
                } else {
                    format!("axes 0 to {}", axes - 1)
                };
                Err(Diagnostic::new(
                    axis.span,
                    format!("expected an axis of the grid, found {}", self.describe(&item)),
                )
                .help(format!(
                    "this grid has {known}; others are added in `#[kernel(grid = (..))]`"
                )))
            }
        }
    }

    fn full(&mut self, item: &Item, dtype: DType, shape: &Expr, span: Span) -> Result<Item> {
        let extents = match &shape.kind {
            ExprKind::Tuple(items) => items
                .iter()
                .map(|item| self.const_u32(item, "a tile's extent"))
                .collect::<Result<Vec<_>>>()?,
            _ => vec![self.const_u32(shape, "a tile's extent")?],
        };
        let value = self.coerce(item, dtype, span)?;
        Ok(Item::Value(self.broadcast(value, &extents, span)?))
    }

    fn expand(&mut self, item: &Item, axis: &Expr, span: Span) -> Result<Item> {
        let value = self.value_of(item, span)?;
        let ty = self.ty(value).clone();
        let rank = ty.shape().len();
        let at = match self.expr(axis)? {
            Item::Int(at) if rank > 0 && (0..=rank as i64).contains(&at) => at as usize,
            _ => {
                return Err(Diagnostic::new(
                    axis.span,
                    format!("{} takes a new axis at 0 to {rank}", describe_type(&ty)),
                )
                .help("write `.expand(0)` or `.expand(1)`"));
            }
        };
        let Some(dtype) = ty.dtype() else {
            return Err(Diagnostic::new(span, format!("{} takes no new axis", describe_type(&ty)))
                .help("decode it with `.f32()` first"));
        };
        let mut shape = ty.shape().to_vec();
        shape.insert(at, 1);
        let axes = (0..=rank as u32).filter(|axis| *axis as usize != at).collect();
        let result = self.emit(OpKind::Reshape(value), Type::tile(dtype, shape), span);
        self.expanded.insert(result, (value, axes));
        Ok(Item::Value(result))
    }

    fn reduce(
        &mut self,
        op: ReduceOp,
        value: &Expr,
        axis: Option<&Expr>,
        span: Span,
    ) -> Result<Item> {
        let item = self.expr(value)?;
        let value = self.value_of(&item, span)?;
        let ty = self.ty(value).clone();
        let shape = ty.shape().to_vec();
        let fits = match (op, ty.dtype()) {
            (ReduceOp::Any, Some(dtype)) => dtype == DType::Bool,
            (_, Some(dtype)) => dtype != DType::Bool,
            (_, None) => false,
        };
        if shape.is_empty() || !fits {
            return Err(Diagnostic::new(span, format!("`{op}` does not fold {}", describe_type(&ty)))
                .help("sum, max and min fold tiles of numbers, any folds tiles of bool; elementwise: `a.max(b)`"));
        }
        let dtype = ty.dtype().expect("checked above");
        let axis = match axis {
            None => None,
            Some(expr) => match self.expr(expr)? {
                Item::Int(axis) if (0..shape.len() as i64).contains(&axis) => Some(axis as u32),
                _ => {
                    return Err(Diagnostic::new(
                        expr.span,
                        format!("the tile has axes 0 to {}", shape.len() - 1),
                    )
                    .help("name one of them, or none to fold all"));
                }
            },
        };
        let result = match axis {
            Some(axis) if shape.len() > 1 => {
                let mut rest = shape;
                rest.remove(axis as usize);
                Type::tile(dtype, rest)
            }
            _ => Type::Scalar(dtype),
        };
        let axis = if result.is_scalar() { None } else { axis };
        Ok(Item::Value(self.emit(OpKind::Reduce { op, value, axis }, result, span)))
    }

    fn dot(&mut self, a: &Expr, b: &Expr, acc: &Expr, span: Span) -> Result<Item> {
        let (a, b, acc) = (self.expr(a)?, self.expr(b)?, self.expr(acc)?);
        let (a, b, acc) =
            (self.value_of(&a, span)?, self.value_of(&b, span)?, self.value_of(&acc, span)?);
        let (ta, tb, tacc) = (self.ty(a).clone(), self.ty(b).clone(), self.ty(acc).clone());
        let shapes = match (ta.shape(), tb.shape(), tacc.shape()) {
            ([m, k], [n, k2], [m2, n2]) => m == m2 && n == n2 && k == k2,
            _ => false,
        };
        if !shapes {
            let found = format!(
                "found {}, {} and {}",
                describe_type(&ta),
                describe_type(&tb),
                describe_type(&tacc)
            );
            let help = match (ta.shape(), tb.shape()) {
                ([_, k], [k2, _]) if k == k2 => "b has its k axis first: write `.t()` after it",
                ([_, k], [_, k2]) if k != k2 => {
                    "a and b must have the same extent along k, their last axis"
                }
                _ => "`.t()` swaps the axes of a tile, `.expand(0)` makes a row of it",
            };
            return Err(Diagnostic::new(
                span,
                format!("dot takes a [m, k], b [n, k] and acc [m, n], {found}"),
            )
            .help(help));
        }
        let elements = |ty: &Type| match ty {
            Type::Tile { element, .. } => *element,
            Type::Scalar(dtype) => Element::Plain(*dtype),
        };
        let fits = matches!(
            (elements(&ta), elements(&tb)),
            (Element::Plain(DType::F32), Element::Plain(DType::F32) | Element::Packed(_))
                | (Element::Int8, Element::Packed(_))
        ) && tacc.dtype() == Some(DType::F32);
        if !fits {
            return Err(Diagnostic::new(
                span,
                format!("dot of {} and {} into {}", describe_type(&ta), describe_type(&tb), describe_type(&tacc)),
            )
            .help("int8 activations go with quantised weights, floats with either; the accumulator is f32"));
        }
        Ok(Item::Value(self.emit(OpKind::Dot { a, b, acc }, tacc, span)))
    }

    fn place<'e>(&self, place: &'e Expr) -> Result<(u32, &'e [Expr])> {
        let ExprKind::Index { tensor, index } = &place.kind else {
            return Err(Diagnostic::new(place.span, "this is no place in a tensor")
                .help("write `x[(i, j)]` with one entry per axis"));
        };
        let at =
            self.kernel.params.iter().position(|param| param.name == *tensor).ok_or_else(|| {
                let names: Vec<&str> =
                    self.kernel.params.iter().map(|param| param.name.as_str()).collect();
                Diagnostic::new(place.span, format!("`{tensor}` is no parameter"))
                    .help(format!("parameters: {}", names.join(", ")))
            })?;
        let rank = self.kernel.params[at].kind.shape().len();
        if rank != index.len() {
            return Err(Diagnostic::new(
                place.span,
                format!("`{tensor}` has {rank} axes, the index has {}", index.len()),
            )
            .help("give one entry per axis; `all(LEN)` takes a whole axis"));
        }
        Ok((at as u32, index))
    }

    fn index(&mut self, tensor: u32, index: &[Expr]) -> Result<(Vec<Index>, Vec<u32>)> {
        let extents = self.kernel.params[tensor as usize].kind.shape().to_vec();
        let (mut indices, mut shape) = (Vec::new(), Vec::new());
        for (expr, extent) in index.iter().zip(&extents) {
            match self.expr(expr)? {
                Item::Range(range) => {
                    shape.push(range.len);
                    let bound = self.guard(range, extent, expr.span)?;
                    indices.push(Index::Range {
                        start: range.start,
                        len: range.len,
                        stride: range.stride,
                        bound,
                    });
                }
                item => {
                    let value = self.coerce(&item, DType::I32, expr.span)?;
                    match self.ty(value).shape() {
                        [] => indices.push(Index::At(value)),
                        [len] => {
                            shape.push(*len);
                            indices.push(Index::Gather(value));
                        }
                        _ => {
                            return Err(Diagnostic::new(
                                expr.span,
                                format!("an index is {}", describe_type(self.ty(value))),
                            )
                            .help("index with a scalar, a range or a 1-D tile of i32"));
                        }
                    }
                }
            }
        }
        Ok((indices, shape))
    }

    /// The bound that masks a range on an axis, or `None` when the range is known to be inside.
    fn guard(
        &mut self,
        range: RangeItem,
        extent: &iron_core::ir::DimExpr,
        span: Span,
    ) -> Result<Option<Value>> {
        use iron_core::ir::DimExpr;
        if let (None, Some(end), DimExpr::Const(extent)) = (range.bound, range.known_end, extent)
            && end <= *extent
        {
            return Ok(None);
        }
        let axis_end = self.dim_value(extent, span)?;
        Ok(Some(match range.bound {
            None => axis_end,
            Some(bound) if bound == axis_end => bound,
            Some(bound) => self.emit(
                OpKind::Binary(BinaryOp::Min, bound, axis_end),
                Type::Scalar(DType::I32),
                span,
            ),
        }))
    }

    fn load(&mut self, place: &Expr, fill: Option<&Expr>) -> Result<Item> {
        let (tensor, index) = self.place(place)?;
        let (index, shape) = self.index(tensor, index)?;
        let param = &self.kernel.params[tensor as usize];
        let element = param.kind.element();
        if element == Element::Int8 && param.kind.is_mutable() {
            return Err(Diagnostic::new(place.span, format!("`{}` is written as int8 blocks here", param.name))
                .help("int8 activations are read by another kernel than the one that writes them; keep the tile in a variable"));
        }
        let fill = match (fill, element) {
            (None, _) => None,
            (Some(fill), Element::Plain(dtype)) => {
                let item = self.expr(fill)?;
                Some(self.coerce(&item, dtype, fill.span)?)
            }
            (Some(fill), _) => {
                return Err(Diagnostic::new(fill.span, "quantised tiles are masked with zeros")
                    .help("write `load(..)`"));
            }
        };
        let ty = match (shape.is_empty(), element) {
            (true, Element::Plain(dtype)) => Type::Scalar(dtype),
            (true, _) => {
                return Err(Diagnostic::new(
                    place.span,
                    "quantised elements are not read one by one",
                )
                .help("load a range along the last axis"));
            }
            (false, element) => Type::Tile { element, shape },
        };
        Ok(Item::Value(self.emit(OpKind::Load { tensor, index, fill }, ty, place.span)))
    }

    fn store(&mut self, place: &Expr, value: &Expr, span: Span) -> Result<Item> {
        let (tensor, index) = self.place(place)?;
        let param = self.kernel.params[tensor as usize].clone();
        let mutable = match &param.kind {
            ParamKind::Tensor { mutable, .. } | ParamKind::Activations { mutable, .. } => *mutable,
            ParamKind::Quantized { .. } | ParamKind::Scalar(_) => false,
        };
        if !mutable {
            return Err(Diagnostic::new(place.span, format!("`{}` is read-only", param.name))
                .help("declare it TensorMut or ActivationsMut"));
        }
        let (index, shape) = self.index(tensor, index)?;
        let len = shape.last().copied().unwrap_or(1);
        if param.kind.element() == Element::Int8 && !len.is_multiple_of(32) {
            return Err(Diagnostic::new(
                place.span,
                format!(
                    "int8 activations are stored in blocks of 32, this place has {len} along k"
                ),
            )
            .help("store ranges along k whose length is a multiple of 32"));
        }
        let item = self.expr(value)?;
        let dtype = match param.kind.element() {
            Element::Plain(dtype) => dtype,
            Element::Int8 | Element::Packed(_) => DType::F32,
        };
        let value = self.coerce(&item, dtype, value.span)?;
        let found = self.ty(value).shape().to_vec();
        let value = if found.is_empty() && !shape.is_empty() {
            self.broadcast(value, &shape, span)?
        } else if found == shape {
            value
        } else {
            return Err(Diagnostic::new(
                span,
                format!("the place has shape {shape:?}, the value {found:?}"),
            )
            .help("store a tile of the place's shape, or a scalar"));
        };
        self.push(Op { kind: OpKind::Store { tensor, index, value }, results: Vec::new(), span });
        Ok(Item::Unit)
    }

    fn inline(&mut self, helper: &'static Function, args: &[Expr], span: Span) -> Result<Item> {
        if !helper.grid.is_empty() {
            return Err(Diagnostic::new(
                span,
                format!("`{}` is launched on a grid of its own", helper.name),
            )
            .help("call helpers: `#[kernel]` functions without a grid"));
        }
        if helper.params.len() != args.len() {
            return Err(Diagnostic::new(
                span,
                format!(
                    "`{}` takes {} arguments, found {}",
                    helper.name,
                    helper.params.len(),
                    args.len()
                ),
            )
            .help(format!(
                "write `{}({})`",
                helper.name,
                helper.params.iter().map(|param| param.name).collect::<Vec<_>>().join(", ")
            )));
        }
        if self.inline_depth == MAX_INLINE_DEPTH {
            return Err(Diagnostic::new(
                span,
                format!("`{}` nests deeper than {MAX_INLINE_DEPTH} calls", helper.name),
            )
            .help("helpers are inlined, so they cannot call themselves; write a loop"));
        }
        let mut items = Vec::new();
        for (param, arg) in helper.params.iter().zip(args) {
            let item = self.expr(arg)?;
            let item = match &param.ty {
                ParamType::Value => item,
                ParamType::Scalar(name) => {
                    let dtype = self.dtype_named(name, param.span)?;
                    Item::Value(self.coerce(&item, dtype, arg.span)?)
                }
                _ => {
                    return Err(Diagnostic::new(
                        param.span,
                        format!("`{}` cannot be passed to a helper", param.name),
                    )
                    .help("helpers take `Value` and scalars; load in the kernel"));
                }
            };
            items.push(item);
        }
        self.inline_depth += 1;
        self.scopes.enter_function();
        for (param, item) in helper.params.iter().zip(items) {
            self.scopes.declare(param.name, item, false);
        }
        let result = self.block_statements(&helper.body);
        self.scopes.leave_function();
        self.inline_depth -= 1;
        result
    }
}
