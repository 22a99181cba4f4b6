//! Scalar and vector forms of the elementwise operations.

use iron_core::DType;
use iron_core::ir::{BinaryOp, CompareOp, OpKind, UnaryOp};

/// The Rust expression of an elementwise operation on scalars; `None` when there is none.
pub(super) fn expression(
    kind: &OpKind,
    operands: &[String],
    from: Option<DType>,
    to: Option<DType>,
) -> Option<String> {
    let float = from == Some(DType::F32);
    let bool = from == Some(DType::Bool);
    Some(match (kind, operands) {
        (OpKind::Unary(op, _), [a]) => match op {
            UnaryOp::Neg if float => format!("-({a})"),
            UnaryOp::Neg => format!("({a}).wrapping_neg()"),
            UnaryOp::Not => format!("!({a})"),
            UnaryOp::Abs if float => format!("({a}).abs()"),
            UnaryOp::Abs => format!("({a}).wrapping_abs()"),
            UnaryOp::Sqrt => format!("({a}).sqrt()"),
            UnaryOp::Floor => format!("({a}).floor()"),
            UnaryOp::Round => format!("({a}).round_ties_even()"),
            op => format!("tile::math::scalar::{}({a})", math_name(*op)?),
        },
        (OpKind::Binary(op, ..), [a, b]) => match (op, float) {
            (BinaryOp::Add, true) => format!("({a} + {b})"),
            (BinaryOp::Sub, true) => format!("({a} - {b})"),
            (BinaryOp::Mul, true) => format!("({a} * {b})"),
            (BinaryOp::Div, true) => format!("({a} / {b})"),
            (BinaryOp::Min, true) => format!("tile::min_value({a}, {b})"),
            (BinaryOp::Max, true) => format!("tile::max_value({a}, {b})"),
            (BinaryOp::Add, false) => format!("({a}).wrapping_add({b})"),
            (BinaryOp::Sub, false) => format!("({a}).wrapping_sub({b})"),
            (BinaryOp::Mul, false) => format!("({a}).wrapping_mul({b})"),
            (BinaryOp::Div, false) if from == Some(DType::U32) => {
                format!("({a}).checked_div({b}).unwrap_or(0)")
            }
            (BinaryOp::Rem, false) if from == Some(DType::U32) => {
                format!("({a}).checked_rem({b}).unwrap_or(0)")
            }
            (BinaryOp::Div, false) => format!("tile::div_i({a}, {b})"),
            (BinaryOp::Rem, false) => format!("tile::rem_i({a}, {b})"),
            (BinaryOp::Min, false) => format!("({a}).min({b})"),
            (BinaryOp::Max, false) => format!("({a}).max({b})"),
            (BinaryOp::And, false) => format!("({a} & {b})"),
            (BinaryOp::Or, false) => format!("({a} | {b})"),
            (BinaryOp::Xor, false) => format!("({a} ^ {b})"),
            (BinaryOp::Shl, false) if !bool => format!("({a}).wrapping_shl({b} as u32)"),
            (BinaryOp::Shr, false) if !bool => format!("({a}).wrapping_shr({b} as u32)"),
            _ => return None,
        },
        (OpKind::Fma(..), [a, b, c]) => format!("({a}).mul_add({b}, {c})"),
        (OpKind::Compare(op, ..), [a, b]) => {
            let op = match op {
                CompareOp::Eq => "==",
                CompareOp::Ne => "!=",
                CompareOp::Lt => "<",
                CompareOp::Le => "<=",
                CompareOp::Gt => ">",
                CompareOp::Ge => ">=",
            };
            format!("({a} {op} {b})")
        }
        (OpKind::Select(..), [c, a, b]) => format!("(if {c} {{ {a} }} else {{ {b} }})"),
        (OpKind::Cast(_), [a]) => match to? {
            DType::F32 if bool => format!("f32::from(u8::from({a}))"),
            DType::F32 => format!("({a}) as f32"),
            DType::I32 => format!("({a}) as i32"),
            DType::U32 if float => format!("({a}) as i32 as u32"),
            DType::U32 => format!("({a}) as u32"),
            _ => return None,
        },
        (OpKind::Bitcast(_), [a]) => match (from?, to?) {
            (DType::F32, DType::U32) => format!("({a}).to_bits()"),
            (DType::F32, DType::I32) => format!("({a}).to_bits() as i32"),
            (DType::U32, DType::F32) => format!("f32::from_bits({a})"),
            (DType::I32, DType::F32) => format!("f32::from_bits(({a}) as u32)"),
            (_, DType::I32) => format!("({a}) as i32"),
            (_, DType::U32) => format!("({a}) as u32"),
            _ => return None,
        },
        _ => return None,
    })
}

/// The expression of an elementwise operation on vectors of the tile library.
pub(super) fn vector_expression(
    kind: &OpKind,
    operands: &[String],
    from: Option<DType>,
    to: Option<DType>,
) -> Option<String> {
    let float = from == Some(DType::F32);
    let unsigned = from == Some(DType::U32);
    let bool = from == Some(DType::Bool);
    Some(match (kind, operands) {
        (OpKind::Unary(op, _), [a]) => match op {
            UnaryOp::Neg if float => format!("I::neg_f({a})"),
            UnaryOp::Neg => format!("I::sub_i(I::splat_i(0), {a})"),
            UnaryOp::Not if bool => format!("I::not_m({a})"),
            UnaryOp::Not => format!("I::xor_i({a}, I::splat_i(-1))"),
            UnaryOp::Abs if float => format!("I::abs_f({a})"),
            UnaryOp::Abs => format!("I::max_i({a}, I::sub_i(I::splat_i(0), {a}))"),
            UnaryOp::Sqrt => format!("I::sqrt_f({a})"),
            UnaryOp::Floor => format!("I::floor_f({a})"),
            UnaryOp::Round => format!("I::round_f({a})"),
            op => format!("tile::math::{}::<I>({a})", math_name(*op)?),
        },
        (OpKind::Binary(op, ..), [a, b]) => {
            let name = match op {
                BinaryOp::Add => "add",
                BinaryOp::Sub => "sub",
                BinaryOp::Mul => "mul",
                BinaryOp::Div => "div",
                BinaryOp::Rem => "rem",
                BinaryOp::Min => "min",
                BinaryOp::Max => "max",
                BinaryOp::And => "and",
                BinaryOp::Or => "or",
                BinaryOp::Xor => "xor",
                BinaryOp::Shl => "shl",
                BinaryOp::Shr => "shr",
            };
            match op {
                BinaryOp::Div | BinaryOp::Rem if !float => {
                    let sign = if unsigned { "u" } else { "i" };
                    format!("tile::{name}_lanes_{sign}::<I>({a}, {b})")
                }
                BinaryOp::Min if unsigned => format!("I::select_i(I::lt_u({a}, {b}), {a}, {b})"),
                BinaryOp::Max if unsigned => format!("I::select_i(I::lt_u({a}, {b}), {b}, {a})"),
                BinaryOp::Xor if bool => {
                    format!("I::or_m(I::and_m({a}, I::not_m({b})), I::and_m({b}, I::not_m({a})))")
                }
                BinaryOp::Shr if unsigned => format!("I::shr_u({a}, {b})"),
                _ => format!(
                    "I::{name}_{}({a}, {b})",
                    if float {
                        "f"
                    } else if bool {
                        "m"
                    } else {
                        "i"
                    }
                ),
            }
        }
        (OpKind::Fma(..), [a, b, c]) => format!("I::fma_f({a}, {b}, {c})"),
        (OpKind::Compare(op, ..), [a, b]) => {
            let kind = if float {
                "f"
            } else if unsigned {
                "u"
            } else {
                "i"
            };
            let equal = if float { "f" } else { "i" };
            if bool {
                return None;
            }
            match op {
                CompareOp::Eq => format!("I::eq_{equal}({a}, {b})"),
                CompareOp::Ne => format!("I::not_m(I::eq_{equal}({a}, {b}))"),
                CompareOp::Lt => format!("I::lt_{kind}({a}, {b})"),
                CompareOp::Le => format!("I::le_{kind}({a}, {b})"),
                CompareOp::Gt => format!("I::lt_{kind}({b}, {a})"),
                CompareOp::Ge => format!("I::le_{kind}({b}, {a})"),
            }
        }
        (OpKind::Select(..), [c, a, b]) => match to? {
            DType::F32 => format!("I::select_f({c}, {a}, {b})"),
            DType::Bool => format!("I::select_m({c}, {a}, {b})"),
            _ => format!("I::select_i({c}, {a}, {b})"),
        },
        (OpKind::Cast(_), [a]) => match (from?, to?) {
            (DType::Bool, DType::F32) => {
                format!("I::select_f({a}, I::splat_f(1.0), I::splat_f(0.0))")
            }
            (DType::Bool, DType::I32 | DType::U32) => {
                format!("I::select_i({a}, I::splat_i(1), I::splat_i(0))")
            }
            (DType::U32, DType::F32) => format!("I::f_from_u({a})"),
            (DType::I32, DType::F32) => format!("I::f_from_i({a})"),
            (DType::F32, DType::I32 | DType::U32) => format!("I::i_from_f({a})"),
            (DType::I32 | DType::U32, DType::I32 | DType::U32) => a.clone(),
            _ => return None,
        },
        (OpKind::Bitcast(_), [a]) => match (from?, to?) {
            (DType::F32, DType::I32 | DType::U32) => format!("I::bits_i({a})"),
            (DType::I32 | DType::U32, DType::F32) => format!("I::bits_f({a})"),
            (DType::I32 | DType::U32, DType::I32 | DType::U32) => a.clone(),
            _ => return None,
        },
        _ => return None,
    })
}

fn math_name(op: UnaryOp) -> Option<&'static str> {
    Some(match op {
        UnaryOp::Exp => "exp",
        UnaryOp::Ln => "ln",
        UnaryOp::Rsqrt => "rsqrt",
        UnaryOp::Tanh => "tanh",
        UnaryOp::Sigmoid => "sigmoid",
        UnaryOp::Erf => "erf",
        UnaryOp::Sin => "sin",
        UnaryOp::Cos => "cos",
        _ => return None,
    })
}
