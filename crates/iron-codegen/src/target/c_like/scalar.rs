//! Scalar operations as expressions.

use iron_core::ir::{BinaryOp, CompareOp, Const, OpKind, UnaryOp, Value};
use iron_core::{DType, Span};

use super::{Printer, Result, type_name};

/// Longest expression that is written in place.
const MAX_INLINE: usize = 60;

fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(super) fn literal(constant: Const) -> String {
    match constant {
        Const::F32(x) if x.is_nan() => "iron::nan()".to_owned(),
        Const::F32(x) if x.is_infinite() => {
            if x > 0.0 { "iron::infinity()" } else { "-iron::infinity()" }.to_owned()
        }
        Const::F32(x) => format!("{x:?}f"),
        Const::I32(i32::MIN) => "(-2147483647 - 1)".to_owned(),
        Const::I32(x) => x.to_string(),
        Const::U32(x) => format!("{x}u"),
        Const::Bool(x) => x.to_string(),
    }
}

impl Printer<'_> {
    /// Defines `result` as a scalar operation says.
    pub(super) fn scalar_op(&mut self, kind: &OpKind, result: Value, span: Span) -> Result<()> {
        match kind {
            OpKind::Const(constant) => {
                let text = literal(*constant);
                let text = if text.starts_with('-') { format!("({text})") } else { text };
                self.scalars.insert(result, text);
                return Ok(());
            }
            OpKind::Dim(dim) => {
                let name = self.dim(*dim);
                self.scalars.insert(result, name);
                return Ok(());
            }
            OpKind::Param(param) => {
                let name = self.param(*param);
                self.scalars.insert(result, name);
                return Ok(());
            }
            // A broadcast of a scalar to a scalar, and anything else that only renames.
            OpKind::Reshape(value) => {
                let text = self.scalar(*value, span)?;
                self.scalars.insert(result, text);
                return Ok(());
            }
            _ => {}
        }
        let expression = self.expression(kind, result, span)?;
        self.define(result, &expression);
        Ok(())
    }

    /// As [`Self::scalar_op`] inside a map, where an unnamed value that is used once becomes part of the expression that
    /// uses it: nothing is reassigned between the two.
    pub(super) fn map_op(&mut self, kind: &OpKind, result: Value, span: Span) -> Result<()> {
        let pure = matches!(
            kind,
            OpKind::Unary(..)
                | OpKind::Binary(..)
                | OpKind::Fma(..)
                | OpKind::Compare(..)
                | OpKind::Select(..)
                | OpKind::Cast(_)
                | OpKind::Bitcast(_)
        );
        if pure && self.uses.of(result) == 1 && self.kernel.info(result).name.is_none() {
            let expression = self.expression(kind, result, span)?;
            if expression.len() <= MAX_INLINE {
                let call = matches!(kind, OpKind::Cast(_) | OpKind::Bitcast(_) | OpKind::Fma(..))
                    && expression.ends_with(')');
                let text = if call || is_name(&expression) {
                    expression
                } else {
                    format!("({expression})")
                };
                self.scalars.insert(result, text);
                return Ok(());
            }
        }
        self.scalar_op(kind, result, span)
    }

    fn expression(&mut self, kind: &OpKind, result: Value, span: Span) -> Result<String> {
        let dtype =
            |printer: &Self, value: Value| printer.kernel.ty(value).dtype().unwrap_or(DType::F32);
        Ok(match kind {
            OpKind::ProgramId(axis) => {
                let axis = ["x", "y", "z"][usize::from(*axis)];
                match self.dialect {
                    super::Dialect::Cuda => format!("iron::i32(blockIdx.{axis})"),
                    super::Dialect::Metal => format!("iron::i32(program.{axis})"),
                }
            }
            OpKind::Unary(op, value) => {
                unary(*op, &self.scalar(*value, span)?, dtype(self, *value))
            }
            OpKind::Binary(op, a, b) => {
                binary(*op, &self.scalar(*a, span)?, &self.scalar(*b, span)?, dtype(self, *a))
            }
            OpKind::Fma(a, b, c) => {
                let (a, b, c) =
                    (self.scalar(*a, span)?, self.scalar(*b, span)?, self.scalar(*c, span)?);
                if dtype(self, result).is_float() {
                    format!("iron::fma({a}, {b}, {c})")
                } else {
                    format!("{a} * {b} + {c}")
                }
            }
            OpKind::Compare(op, a, b) => {
                let op = match op {
                    CompareOp::Eq => "==",
                    CompareOp::Ne => "!=",
                    CompareOp::Lt => "<",
                    CompareOp::Le => "<=",
                    CompareOp::Gt => ">",
                    CompareOp::Ge => ">=",
                };
                format!("{} {op} {}", self.scalar(*a, span)?, self.scalar(*b, span)?)
            }
            OpKind::Select(condition, a, b) => {
                format!(
                    "{} ? {} : {}",
                    self.scalar(*condition, span)?,
                    self.scalar(*a, span)?,
                    self.scalar(*b, span)?
                )
            }
            OpKind::Cast(value) => {
                cast(&self.scalar(*value, span)?, dtype(self, *value), dtype(self, result))
            }
            OpKind::Bitcast(value) => {
                let (from, to) = (dtype(self, *value), dtype(self, result));
                let value = self.scalar(*value, span)?;
                if from == to {
                    value
                } else {
                    format!("iron::bitcast<{}>({value})", type_name(to))
                }
            }
            OpKind::ElementLoad { tensor, index, guards, fill } => {
                let positions = index
                    .iter()
                    .map(|value| self.scalar(*value, span))
                    .collect::<Result<Vec<_>>>()?;
                let address = self.address(*tensor, &positions);
                match self.guards(guards, span)? {
                    None => format!("iron::load({address})"),
                    Some(condition) => format!(
                        "{condition} ? iron::load({address}) : {}",
                        self.scalar(*fill, span)?
                    ),
                }
            }
            other => return self.fail(span, format!("{other:?} is no scalar operation")),
        })
    }

    /// The condition under which an access happens.
    pub(super) fn guards(
        &self,
        guards: &[iron_core::ir::Guard],
        span: Span,
    ) -> Result<Option<String>> {
        let mut conditions = Vec::new();
        for guard in guards {
            let (index, bound) = (self.scalar(guard.index, span)?, self.scalar(guard.bound, span)?);
            if guard.signed {
                conditions.push(format!("{index} >= 0"));
            }
            conditions.push(format!("{index} < {bound}"));
        }
        Ok((!conditions.is_empty()).then(|| conditions.join(" && ")))
    }
}

fn unary(op: UnaryOp, x: &str, dtype: DType) -> String {
    let function = match op {
        UnaryOp::Neg => return format!("-{x}"),
        UnaryOp::Not if dtype == DType::Bool => return format!("!{x}"),
        UnaryOp::Not => return format!("~{x}"),
        UnaryOp::Abs => "abs",
        UnaryOp::Exp => "exp",
        UnaryOp::Ln => "ln",
        UnaryOp::Sqrt => "sqrt",
        UnaryOp::Rsqrt => "rsqrt",
        UnaryOp::Tanh => "tanh",
        UnaryOp::Sigmoid => "sigmoid",
        UnaryOp::Erf => "erf",
        UnaryOp::Sin => "sin",
        UnaryOp::Cos => "cos",
        UnaryOp::Floor => "floor",
        UnaryOp::Round => "round",
    };
    format!("iron::{function}({x})")
}

fn binary(op: BinaryOp, a: &str, b: &str, dtype: DType) -> String {
    let logical = dtype == DType::Bool;
    let infix = match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => "%",
        BinaryOp::Min => return format!("iron::min({a}, {b})"),
        BinaryOp::Max => return format!("iron::max({a}, {b})"),
        BinaryOp::And if logical => "&&",
        BinaryOp::And => "&",
        BinaryOp::Or if logical => "||",
        BinaryOp::Or => "|",
        BinaryOp::Xor if logical => "!=",
        BinaryOp::Xor => "^",
        BinaryOp::Shl => "<<",
        BinaryOp::Shr => ">>",
    };
    format!("{a} {infix} {b}")
}

pub(super) fn cast(x: &str, from: DType, to: DType) -> String {
    if from == to {
        return x.to_owned();
    }
    // Storage types compute in their wider type first.
    let wide = match from {
        DType::F16 | DType::BF16 => format!("iron::to_f32({x})"),
        DType::I8 | DType::U8 => format!("iron::i32({x})"),
        _ => x.to_owned(),
    };
    match to {
        DType::F32 => format!("iron::to_f32({wide})"),
        DType::F16 => format!("iron::to_f16(iron::to_f32({wide}))"),
        DType::BF16 => format!("iron::to_bf16(iron::to_f32({wide}))"),
        DType::I32 => format!("iron::to_i32({wide})"),
        DType::U32 => format!("iron::to_u32({wide})"),
        DType::I8 => format!("iron::i8(iron::to_i32({wide}))"),
        DType::U8 => format!("iron::u8(iron::to_i32({wide}))"),
        DType::Bool => format!("{wide} != 0"),
    }
}
