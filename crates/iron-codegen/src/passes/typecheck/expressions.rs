//! Expressions: names, literals, arithmetic with broadcasting, conversions.

use iron_core::ir::{CompareOp, Const, Element, OpKind, Type, UnaryOp, Value};
use iron_core::syntax::{BinaryOp, Expr, ExprKind};
use iron_core::{DType, Diagnostic, Span};

use super::scope::{Item, RangeItem};
use super::statements::describe_type;
use super::{Checker, Result};

impl Checker<'_> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Result<Item> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Int(value) => Ok(Item::Int(*value)),
            ExprKind::Float(value) => Ok(Item::Float(*value)),
            ExprKind::Bool(value) => Ok(Item::Bool(*value)),
            ExprKind::Name(name) => self.name(name, span),
            ExprKind::Unary(op, operand) => {
                let item = self.expr(operand)?;
                self.unary(*op, &item, span)
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                self.binary(*op, &a, &b, span)
            }
            ExprKind::Compare(op, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                self.compare(*op, &a, &b, span)
            }
            ExprKind::Tuple(items) => {
                Ok(Item::Tuple(items.iter().map(|item| self.expr(item)).collect::<Result<_>>()?))
            }
            ExprKind::Call { function, generics, args } => {
                self.call(function, generics, args, span)
            }
            ExprKind::Method { receiver, name, generics, args } => {
                self.method(receiver, name, generics, args, span)
            }
            ExprKind::If { condition, then, otherwise } => {
                let item = self.branch(span, condition, then, otherwise.as_ref())?;
                Ok(item)
            }
            ExprKind::Block(block) => self.block(block),
            ExprKind::Index { tensor, .. } => {
                Err(Diagnostic::new(span, format!("`{tensor}[..]` names a place, not a value"))
                    .help(format!("write `load({tensor}[..])` to read it")))
            }
            ExprKind::Range(..) => Err(Diagnostic::new(span, "a range is only for `for`")
                .help("write `for i in a..b { .. }`")),
        }
    }

    fn name(&mut self, name: &str, span: Span) -> Result<Item> {
        if let Some(variable) = self.scopes.get(name) {
            return Ok(variable.item.clone());
        }
        if let Some(constant) = self.constant(name) {
            return Ok(Item::Int(constant));
        }
        if let Some(index) = self.kernel.dims.iter().position(|dim| dim == name) {
            return Ok(Item::Value(self.dim_values[index]));
        }
        match name {
            "INFINITY" => Ok(Item::Float(f64::INFINITY)),
            "NEG_INFINITY" => Ok(Item::Float(f64::NEG_INFINITY)),
            _ => Err(self.unknown_name(name, span)),
        }
    }

    pub(super) fn unknown_name(&self, name: &str, span: Span) -> Diagnostic {
        let diagnostic = Diagnostic::new(span, format!("unknown name `{name}`"));
        if self.kernel.params.iter().any(|param| param.name == name) {
            return diagnostic
                .help(format!("`{name}` is a tensor; read it with `load({name}[..])`"));
        }
        if name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()) {
            return diagnostic.help(
                "give it a value in the kernel's schedule (tuning file) or in `variants(..)`",
            );
        }
        let mut known: Vec<String> = self.scopes.names().into_iter().map(str::to_owned).collect();
        known.extend(self.kernel.dims.iter().cloned());
        let nearest = nearest(name, known.iter().map(String::as_str));
        diagnostic.help(match nearest {
            Some(nearest) => format!("did you mean `{nearest}`? In scope: {}", known.join(", ")),
            None => format!("in scope: {}", known.join(", ")),
        })
    }

    /// A scalar or tile; literals take i32, f32 or bool.
    pub(super) fn value_of(&mut self, item: &Item, span: Span) -> Result<Value> {
        match item {
            Item::Value(value) => Ok(*value),
            Item::Int(_) => self.coerce(item, DType::I32, span),
            Item::Float(_) => self.coerce(item, DType::F32, span),
            Item::Bool(_) => self.coerce(item, DType::Bool, span),
            other => Err(Diagnostic::new(
                span,
                format!("expected a scalar or tile, found {}", self.describe(other)),
            )
            .help(
                "use `.index()` for the positions of a range, `load(..)` for the elements at them",
            )),
        }
    }

    /// A value of number type `dtype`; literals adapt.
    pub(super) fn coerce(&mut self, item: &Item, dtype: DType, span: Span) -> Result<Value> {
        let constant = match (item, dtype) {
            (Item::Int(value), DType::I32) => return self.i32(*value, span),
            (Item::Int(value), DType::U32) => Const::U32(u32::try_from(*value).map_err(|_| {
                Diagnostic::new(span, format!("{value} does not fit u32"))
                    .help("use a non-negative literal below 2^32")
            })?),
            (Item::Float(value), DType::F32) => Const::F32(*value as f32),
            (Item::Bool(value), DType::Bool) => Const::Bool(*value),
            (Item::Int(value), DType::F32) => {
                return Err(Diagnostic::new(
                    span,
                    format!("expected f32, found the integer {value}"),
                )
                .help(format!("write `{value}.0`, or `.f32()` after a constant")));
            }
            (Item::Value(value), dtype) => {
                let ty = self.ty(*value);
                if ty.dtype() != Some(dtype) {
                    return Err(Diagnostic::new(
                        span,
                        format!("expected {dtype}, found {}", describe_type(ty)),
                    )
                    .help(match dtype {
                        DType::Bool => "compare it: `x > 0.0`".to_owned(),
                        dtype => format!("convert it with `.{dtype}()`"),
                    }));
                }
                return Ok(*value);
            }
            (other, dtype) => {
                return Err(Diagnostic::new(
                    span,
                    format!("expected {dtype}, found {}", self.describe(other)),
                )
                .help(match other {
                    Item::Range(_) => {
                        "use `.index()` for the positions of a range as a tile".to_owned()
                    }
                    Item::Float(_) => {
                        "write an integer, or convert the other side with `.f32()`".to_owned()
                    }
                    _ => format!("give a value of type {dtype}"),
                }));
            }
        };
        Ok(self.emit(OpKind::Const(constant), Type::Scalar(dtype), span))
    }

    /// A compile-time integer argument.
    pub(super) fn const_u32(&mut self, expr: &Expr, what: &str) -> Result<u32> {
        match self.expr(expr)? {
            Item::Int(value) if (1..=1 << 20).contains(&value) => Ok(value as u32),
            Item::Int(value) => Err(Diagnostic::new(expr.span, format!("{what} is {value}"))
                .help("it must lie between 1 and 1,048,576")),
            other => Err(Diagnostic::new(
                expr.span,
                format!("{what} must be known at compile time, found {}", self.describe(&other)),
            )
            .help("use a literal, a variant or a schedule constant")),
        }
    }

    pub(super) fn unary(&mut self, op: UnaryOp, item: &Item, span: Span) -> Result<Item> {
        match (op, item) {
            (UnaryOp::Neg, Item::Int(value)) => return Ok(Item::Int(-value)),
            (UnaryOp::Neg, Item::Float(value)) => return Ok(Item::Float(-value)),
            (UnaryOp::Not, Item::Bool(value)) => return Ok(Item::Bool(!value)),
            _ => {}
        }
        let value = self.value_of(item, span)?;
        let ty = self.ty(value).clone();
        let fits = match (op, ty.dtype()) {
            (_, None) => false,
            (UnaryOp::Not, Some(dtype)) => !dtype.is_float(),
            (UnaryOp::Neg | UnaryOp::Abs, Some(dtype)) => matches!(dtype, DType::F32 | DType::I32),
            (_, Some(dtype)) => dtype == DType::F32,
        };
        if !fits {
            return Err(Diagnostic::new(
                span,
                format!("`{op}` does not apply to {}", describe_type(&ty)),
            )
            .help("convert with `.f32()` first"));
        }
        Ok(Item::Value(self.emit(OpKind::Unary(op, value), ty, span)))
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: &Item, b: &Item, span: Span) -> Result<Item> {
        if let (Item::Int(a), Item::Int(b)) = (a, b) {
            return fold_int(op, *a, *b).map(Item::Int).ok_or_else(|| {
                Diagnostic::new(span, format!("`{a} {} {b}` has no value", symbol(op)))
                    .help("check the constants of the schedule")
            });
        }
        if let (Item::Float(a), Item::Float(b)) = (a, b) {
            let value = match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a * b,
                BinaryOp::Div => a / b,
                BinaryOp::Min => a.min(*b),
                BinaryOp::Max => a.max(*b),
                _ => {
                    return Err(Diagnostic::new(
                        span,
                        format!("`{}` does not apply to floats", symbol(op)),
                    )
                    .help("floats take + - * / and .min() .max()"));
                }
            };
            return Ok(Item::Float(value));
        }
        if let Item::Range(range) = a {
            return self.range_arithmetic(op, *range, b, span);
        }
        let (a, b) = self.operands(a, b, span)?;
        let ty = self.ty(a).clone();
        let fits = match (op, ty.dtype()) {
            (_, None) => false,
            (BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, Some(dtype)) => !dtype.is_float(),
            (BinaryOp::Shl | BinaryOp::Shr | BinaryOp::Rem, Some(dtype)) => dtype.is_int(),
            (_, Some(dtype)) => dtype != DType::Bool,
        };
        if !fits {
            return Err(Diagnostic::new(
                span,
                format!("`{}` does not apply to {}", symbol(op), describe_type(&ty)),
            )
            .help("decode weights with `.f32()`, convert numbers with `.i32()` or `.f32()`"));
        }
        Ok(Item::Value(self.emit(OpKind::Binary(op, a, b), ty, span)))
    }

    fn compare(&mut self, op: CompareOp, a: &Item, b: &Item, span: Span) -> Result<Item> {
        if let (Item::Int(a), Item::Int(b)) = (a, b) {
            return Ok(Item::Bool(match op {
                CompareOp::Eq => a == b,
                CompareOp::Ne => a != b,
                CompareOp::Lt => a < b,
                CompareOp::Le => a <= b,
                CompareOp::Gt => a > b,
                CompareOp::Ge => a >= b,
            }));
        }
        let (a, b) = self.operands(a, b, span)?;
        let ty = self.ty(a).clone();
        if ty.dtype().is_none() {
            return Err(Diagnostic::new(
                span,
                format!("{} cannot be compared", describe_type(&ty)),
            )
            .help("decode it with `.f32()` first"));
        }
        let ty = ty.with_dtype(DType::Bool);
        Ok(Item::Value(self.emit(OpKind::Compare(op, a, b), ty, span)))
    }

    /// Both operands as values of one type and shape: literals adapt, scalars and unit axes repeat.
    pub(super) fn operands(&mut self, a: &Item, b: &Item, span: Span) -> Result<(Value, Value)> {
        let (a, b) = match (a, b) {
            (Item::Value(a), Item::Value(b))
                if self.number_type(*a, span)? != self.number_type(*b, span)? =>
            {
                let (a, b) = (self.ty(*a), self.ty(*b));
                let float = a.dtype() == Some(DType::F32) || b.dtype() == Some(DType::F32);
                let help = if float {
                    "convert the other with `.f32()`"
                } else {
                    "convert one with `.i32()` or `.u32()`"
                };
                let message = format!("{} and {} do not mix", describe_type(a), describe_type(b));
                return Err(Diagnostic::new(span, message).help(help));
            }
            (Item::Value(a), b) => {
                let dtype = self.number_type(*a, span)?;
                (*a, self.coerce(b, dtype, span)?)
            }
            (a, Item::Value(b)) => {
                let dtype = self.number_type(*b, span)?;
                (self.coerce(a, dtype, span)?, *b)
            }
            (a, b) => (self.value_of(a, span)?, self.value_of(b, span)?),
        };
        let shape = self.joint_shape(a, b, span)?;
        Ok((self.broadcast(a, &shape, span)?, self.broadcast(b, &shape, span)?))
    }

    fn number_type(&self, value: Value, span: Span) -> Result<DType> {
        self.ty(value).dtype().ok_or_else(|| {
            Diagnostic::new(span, format!("{} takes no arithmetic", describe_type(self.ty(value))))
                .help("pass it to `dot`, or decode it with `.f32()`")
        })
    }

    pub(super) fn joint_shape(&self, a: Value, b: Value, span: Span) -> Result<Vec<u32>> {
        let (a, b) = (self.ty(a).shape(), self.ty(b).shape());
        if a.is_empty() || a == b {
            return Ok(b.to_vec());
        }
        if b.is_empty() {
            return Ok(a.to_vec());
        }
        let joined = (a.len() == b.len())
            .then(|| {
                a.iter()
                    .zip(b)
                    .map(|(a, b)| match (a, b) {
                        (a, b) if a == b => Some(*a),
                        (1, b) => Some(*b),
                        (a, 1) => Some(*a),
                        _ => None,
                    })
                    .collect::<Option<Vec<u32>>>()
            })
            .flatten();
        joined.ok_or_else(|| {
            Diagnostic::new(span, format!("tiles of shapes {a:?} and {b:?} do not combine"))
                .help("insert an axis of length 1 with `.expand(axis)`; axes of length 1 repeat")
        })
    }

    /// `value` repeated to `shape`.
    pub(super) fn broadcast(&mut self, value: Value, shape: &[u32], span: Span) -> Result<Value> {
        let ty = self.ty(value).clone();
        if ty.shape() == shape {
            return Ok(value);
        }
        let Some(dtype) = ty.dtype() else {
            return Err(Diagnostic::new(span, format!("{} does not repeat", describe_type(&ty)))
                .help("decode it with `.f32()` first"));
        };
        let result = Type::tile(dtype, shape.to_vec());
        if ty.is_scalar() {
            return Ok(self.emit(OpKind::Broadcast { value, axes: Vec::new() }, result, span));
        }
        if let Some((source, axes)) = self.expanded.get(&value).cloned() {
            let extents_fit = axes
                .iter()
                .zip(self.ty(source).shape())
                .all(|(axis, extent)| shape[*axis as usize] == *extent);
            if extents_fit {
                return Ok(self.emit(OpKind::Broadcast { value: source, axes }, result, span));
            }
        }
        let kept: Vec<u32> =
            (0..ty.shape().len() as u32).filter(|axis| ty.shape()[*axis as usize] != 1).collect();
        let squeezed: Vec<u32> = kept.iter().map(|axis| ty.shape()[*axis as usize]).collect();
        let fits = ty.shape().len() == shape.len()
            && kept.iter().all(|axis| shape[*axis as usize] == ty.shape()[*axis as usize]);
        if !fits {
            return Err(Diagnostic::new(
                span,
                format!("a tile of shape {:?} does not repeat to {shape:?}", ty.shape()),
            )
            .help("only axes of length 1 repeat"));
        }
        let source = self.emit(OpKind::Reshape(value), Type::tile(dtype, squeezed), span);
        Ok(self.emit(OpKind::Broadcast { value: source, axes: kept }, result, span))
    }

    fn range_arithmetic(
        &mut self,
        op: BinaryOp,
        range: RangeItem,
        operand: &Item,
        span: Span,
    ) -> Result<Item> {
        match (op, operand) {
            (BinaryOp::Add | BinaryOp::Sub, operand) => {
                let amount = self.coerce(operand, DType::I32, span)?;
                let shift = |value: Value, this: &mut Self| this.emit(OpKind::Binary(op, value, amount), Type::Scalar(DType::I32), span);
                let start = shift(range.start, self);
                let bound = range.bound.map(|bound| shift(bound, self));
                let known_end = match (range.known_end, operand) {
                    (Some(end), Item::Int(amount)) => Some(if op == BinaryOp::Add { end + amount } else { end - amount }),
                    _ => None,
                };
                Ok(Item::Range(RangeItem { start, known_end, bound, ..range }))
            }
            (BinaryOp::Mul, Item::Int(factor)) if *factor > 0 => {
                let amount = self.i32(*factor, span)?;
                let scale = |value: Value, this: &mut Self| {
                    this.emit(OpKind::Binary(BinaryOp::Mul, value, amount), Type::Scalar(DType::I32), span)
                };
                let start = scale(range.start, self);
                let bound = range.bound.map(|bound| scale(bound, self));
                let stride = u32::try_from(i64::from(range.stride) * factor)
                    .map_err(|_| Diagnostic::new(span, "the stride does not fit 32 bits").help("use a smaller factor"))?;
                Ok(Item::Range(RangeItem { start, known_end: range.known_end.map(|end| end * factor), bound, stride, ..range }))
            }
            _ => Err(Diagnostic::new(span, format!("`{}` does not apply to a range", symbol(op)))
                .help("ranges shift by `+` and `-` and stretch by `*` with a constant; `.index()` gives the positions as a tile")),
        }
    }

    /// Elementwise choice.
    pub(super) fn select(
        &mut self,
        condition: &Item,
        a: &Item,
        b: &Item,
        span: Span,
    ) -> Result<Item> {
        let condition = self.coerce(condition, DType::Bool, span)?;
        let (a, b) = self.operands(a, b, span)?;
        let shape = self.joint_shape(condition, a, span)?;
        let condition = self.broadcast(condition, &shape, span)?;
        let (a, b) = (self.broadcast(a, &shape, span)?, self.broadcast(b, &shape, span)?);
        let ty = self.ty(a).clone();
        Ok(Item::Value(self.emit(OpKind::Select(condition, a, b), ty, span)))
    }

    /// Number conversion.
    pub(super) fn convert(&mut self, item: &Item, dtype: DType, span: Span) -> Result<Item> {
        match (item, dtype) {
            (Item::Int(value), DType::F32) => return Ok(Item::Float(*value as f64)),
            (Item::Int(_) | Item::Float(_), _) => {
                return Ok(Item::Value(self.coerce(item, dtype, span)?));
            }
            _ => {}
        }
        let value = self.value_of(item, span)?;
        let ty = self.ty(value).clone();
        match &ty {
            Type::Tile { element: Element::Packed(_), shape } if dtype == DType::F32 => {
                if shape.len() != 1 {
                    return Err(Diagnostic::new(span, format!("{} cannot be decoded here", describe_type(&ty)))
                        .help("decode one row at a time: `load(w[(row, j)]).f32()`; `dot` takes the tile as it is"));
                }
                let shape = shape.clone();
                return Ok(Item::Value(self.emit(
                    OpKind::Cast(value),
                    Type::tile(DType::F32, shape),
                    span,
                )));
            }
            Type::Tile { element: Element::Packed(_) | Element::Int8, .. } => {
                return Err(Diagnostic::new(
                    span,
                    format!("{} does not convert", describe_type(&ty)),
                )
                .help("pass it to `dot`"));
            }
            _ => {}
        }
        if ty.dtype() == Some(dtype) {
            return Ok(Item::Value(value));
        }
        let ty = ty.with_dtype(dtype);
        Ok(Item::Value(self.emit(OpKind::Cast(value), ty, span)))
    }

    /// An item in words.
    pub(super) fn describe(&self, item: &Item) -> String {
        match item {
            Item::Value(value) => describe_type(self.ty(*value)),
            Item::Range(range) => format!("a range of {} positions", range.len),
            Item::Int(value) => format!("the integer {value}"),
            Item::Float(value) => format!("the float {value}"),
            Item::Bool(value) => format!("the constant {value}"),
            Item::Tuple(items) => format!("a tuple of {}", items.len()),
            Item::Unit => "nothing".to_owned(),
        }
    }
}

fn fold_int(op: BinaryOp, a: i64, b: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Sub => a.checked_sub(b),
        BinaryOp::Mul => a.checked_mul(b),
        BinaryOp::Div => a.checked_div(b),
        BinaryOp::Rem => a.checked_rem(b),
        BinaryOp::Min => Some(a.min(b)),
        BinaryOp::Max => Some(a.max(b)),
        BinaryOp::And => Some(a & b),
        BinaryOp::Or => Some(a | b),
        BinaryOp::Xor => Some(a ^ b),
        BinaryOp::Shl => u32::try_from(b).ok().and_then(|b| a.checked_shl(b)),
        BinaryOp::Shr => u32::try_from(b).ok().and_then(|b| a.checked_shr(b)),
    }
}

/// How an operation is written in kernel source.
pub(super) const fn symbol(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => "%",
        BinaryOp::Min => "min",
        BinaryOp::Max => "max",
        BinaryOp::And => "&",
        BinaryOp::Or => "|",
        BinaryOp::Xor => "^",
        BinaryOp::Shl => "<<",
        BinaryOp::Shr => ">>",
    }
}

/// The known name that `name` is likely a misspelling of: at most two letters changed, added, dropped or swapped.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = if name.len() < 4 { 1 } else { 2 };
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
