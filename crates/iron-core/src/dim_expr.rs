//! Arithmetic of [`DimExpr`]: evaluation, constants folded, text.

use std::fmt;

use crate::ir::{DimExpr, DimOp};

impl DimOp {
    /// The result, or `None` on overflow and division by zero.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        let rounded = |up: bool| {
            let quotient = a.checked_div(b)?;
            let exact = a % b == 0;
            let negative = (a < 0) != (b < 0);
            Some(match (exact, negative, up) {
                (false, true, false) => quotient - 1,
                (false, false, true) => quotient + 1,
                _ => quotient,
            })
        };
        match self {
            Self::Add => a.checked_add(b),
            Self::Sub => a.checked_sub(b),
            Self::Mul => a.checked_mul(b),
            Self::Div => rounded(false),
            Self::DivCeil => rounded(true),
            Self::Min => Some(a.min(b)),
            Self::Max => Some(a.max(b)),
        }
    }

    /// How tightly an infix operator binds; `None` for those written as methods.
    const fn precedence(self) -> Option<u8> {
        match self {
            Self::Add | Self::Sub => Some(1),
            Self::Mul | Self::Div => Some(2),
            Self::DivCeil | Self::Min | Self::Max => None,
        }
    }
}

impl DimExpr {
    /// The operation on two expressions.
    pub fn op(op: DimOp, a: DimExpr, b: DimExpr) -> Self {
        Self::Op(op, Box::new(a), Box::new(b))
    }

    /// The value for dimensions of these extents; `None` on overflow, division by zero or a missing dimension.
    pub fn eval(&self, dims: &[i64]) -> Option<i64> {
        match self {
            Self::Const(number) => Some(*number),
            Self::Dim(dim) => dims.get(*dim as usize).copied(),
            Self::Op(op, a, b) => op.apply(a.eval(dims)?, b.eval(dims)?),
        }
    }

    /// The number, when no dimension is involved and evaluation succeeds.
    pub fn as_const(&self) -> Option<i64> {
        self.eval(&[])
    }

    /// The same expression with constants folded and neutral operands dropped. What would overflow or divide by zero
    /// is left as it is.
    #[must_use]
    pub fn simplified(&self) -> Self {
        let Self::Op(op, a, b) = self else { return self.clone() };
        let (a, b) = (a.simplified(), b.simplified());
        if let (Self::Const(a), Self::Const(b)) = (&a, &b)
            && let Some(number) = op.apply(*a, *b)
        {
            return Self::Const(number);
        }
        match (op, &a, &b) {
            (DimOp::Add | DimOp::Sub, _, Self::Const(0))
            | (DimOp::Mul | DimOp::Div | DimOp::DivCeil, _, Self::Const(1)) => a,
            (DimOp::Add, Self::Const(0), _) | (DimOp::Mul, Self::Const(1), _) => b,
            (DimOp::Min | DimOp::Max, _, _) if a == b => a,
            _ => Self::op(*op, a, b),
        }
    }

    /// The text with dimension names, as it is written in kernel source.
    pub fn display<'a>(&'a self, dims: &'a [String]) -> impl fmt::Display + 'a {
        Named { expr: self, dims }
    }
}

struct Named<'a> {
    expr: &'a DimExpr,
    dims: &'a [String],
}

impl Named<'_> {
    fn write(&self, f: &mut fmt::Formatter<'_>, expr: &DimExpr, least: u8) -> fmt::Result {
        match expr {
            DimExpr::Const(number) if *number < 0 && least > 2 => write!(f, "({number})"),
            DimExpr::Const(number) => write!(f, "{number}"),
            DimExpr::Dim(dim) => match self.dims.get(*dim as usize) {
                Some(name) => f.write_str(name),
                None => write!(f, "?{dim}"),
            },
            DimExpr::Op(op, a, b) => {
                if let Some(precedence) = op.precedence() {
                    let parentheses = precedence < least;
                    if parentheses {
                        f.write_str("(")?;
                    }
                    self.write(f, a, precedence)?;
                    write!(f, " {op} ")?;
                    self.write(f, b, precedence + 1)?;
                    if parentheses {
                        f.write_str(")")?;
                    }
                    Ok(())
                } else {
                    self.write(f, a, 3)?;
                    write!(f, ".{op}(")?;
                    self.write(f, b, 0)?;
                    f.write_str(")")
                }
            }
        }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, self.expr, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n() -> DimExpr {
        DimExpr::Dim(0)
    }

    fn constant(number: i64) -> DimExpr {
        DimExpr::Const(number)
    }

    #[test]
    fn division_by_zero_and_overflow_have_no_value() {
        for op in [DimOp::Div, DimOp::DivCeil] {
            assert_eq!(DimExpr::op(op, n(), constant(0)).eval(&[4]), None);
            assert_eq!(DimExpr::op(op, constant(i64::MIN), constant(-1)).eval(&[]), None);
        }
        assert_eq!(DimExpr::op(DimOp::Mul, n(), n()).eval(&[i64::MAX]), None);
        assert_eq!(DimExpr::op(DimOp::Sub, constant(i64::MIN), n()).eval(&[1]), None);
        assert_eq!(n().eval(&[]), None);
    }

    #[test]
    fn division_rounds_down_and_div_ceil_up() {
        for (a, b) in [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3), (0, 5)] {
            let exact = a as f64 / b as f64;
            assert_eq!(DimOp::Div.apply(a, b), Some(exact.floor() as i64), "{a} / {b}");
            assert_eq!(DimOp::DivCeil.apply(a, b), Some(exact.ceil() as i64), "{a} / {b} up");
        }
    }

    #[test]
    fn constants_fold_and_neutral_operands_go() {
        let zero = DimExpr::op(DimOp::Sub, constant(2), constant(2));
        assert_eq!(DimExpr::op(DimOp::Add, n(), zero).simplified(), n());
        assert_eq!(DimExpr::op(DimOp::DivCeil, n(), constant(1)).simplified(), n());
        assert_eq!(DimExpr::op(DimOp::Max, n(), n()).simplified(), n());
        let undefined = DimExpr::op(DimOp::Div, constant(1), constant(0));
        assert_eq!(undefined.simplified(), undefined);
    }

    #[test]
    fn text_has_just_the_parentheses_that_it_needs() {
        let dims = ["n".to_owned(), "k".to_owned()];
        let k = DimExpr::Dim(1);
        let sum = DimExpr::op(DimOp::Add, n(), k.clone());
        let text = |expr: &DimExpr| expr.display(&dims).to_string();
        assert_eq!(text(&DimExpr::op(DimOp::Mul, sum.clone(), constant(2))), "(n + k) * 2");
        assert_eq!(text(&DimExpr::op(DimOp::Sub, n(), sum.clone())), "n - (n + k)");
        assert_eq!(text(&DimExpr::op(DimOp::Sub, sum.clone(), n())), "n + k - n");
        assert_eq!(
            text(&DimExpr::op(DimOp::DivCeil, sum.clone(), constant(64))),
            "(n + k).div_ceil(64)"
        );
        assert_eq!(text(&DimExpr::op(DimOp::Min, constant(-3), sum)), "(-3).min(n + k)");
        assert_eq!(text(&DimExpr::op(DimOp::Sub, n(), constant(-3))), "n - -3");
    }
}
