//! Pass 2, ConstFold: literals are evaluated, equal expressions computed once, unused ones dropped.

use std::collections::HashMap;

use iron_core::DType;
use iron_core::ir::{BinaryOp, Block, CompareOp, Const, Kernel, Op, OpKind, Type, UnaryOp, Value};
use iron_core::visit::Substitution;

/// Runs the pass.
pub fn const_fold(kernel: &mut Kernel) {
    let mut folder = Folder { constants: HashMap::new(), replaced: Substitution::new() };
    let mut body = std::mem::take(&mut kernel.body);
    folder.block(kernel, &mut body, &mut Vec::new());
    kernel.body = body;
    drop_unused(kernel);
}

/// Removes operations whose results nobody uses and that write nothing.
pub fn drop_unused(kernel: &mut Kernel) {
    loop {
        let uses = kernel.uses();
        let mut dropped = false;
        kernel.body.walk_blocks_mut(&mut |block| {
            let before = block.ops.len();
            block.ops.retain(|op| {
                op.kind.writes() || op.results.iter().any(|result| uses.of(*result) > 0)
            });
            dropped |= block.ops.len() != before;
        });
        if !dropped {
            return;
        }
    }
}

struct Folder {
    constants: HashMap<Value, Const>,
    replaced: Substitution,
}

/// Expressions already computed, by operation and result type; one map per enclosing block.
type Seen = Vec<HashMap<String, Vec<Value>>>;

impl Folder {
    fn block(&mut self, kernel: &mut Kernel, block: &mut Block, seen: &mut Seen) {
        seen.push(HashMap::new());
        let mut kept = Vec::with_capacity(block.ops.len());
        for mut op in std::mem::take(&mut block.ops) {
            op.kind.map_operands(|value| self.replaced.resolve(value));
            if let Some(folded) = self.fold(kernel, &op) {
                match folded {
                    Folded::Constant(constant) => op.kind = OpKind::Const(constant),
                    Folded::Value(value) => {
                        self.replaced.insert(op.results[0], value);
                        continue;
                    }
                }
            }
            if let OpKind::If { condition, then, otherwise } = &op.kind
                && let Some(Const::Bool(known)) = self.constants.get(condition).copied()
            {
                let mut taken = if known { then.clone() } else { otherwise.clone() };
                self.block(kernel, &mut taken, seen);
                kept.append(&mut taken.ops);
                for (result, value) in op.results.iter().zip(&taken.yields) {
                    self.replaced.insert(*result, *value);
                }
                continue;
            }
            if let OpKind::Const(constant) = op.kind {
                self.constants.insert(op.results[0], constant);
            }
            if let Some(key) = Self::key(kernel, &op) {
                if let Some(known) = seen.iter().rev().find_map(|map| map.get(&key)) {
                    for (result, known) in op.results.iter().zip(known.clone()) {
                        self.replaced.insert(*result, known);
                    }
                    continue;
                }
                seen.last_mut().expect("pushed above").insert(key, op.results.clone());
            }
            for inner in op.kind.blocks_mut() {
                self.block(kernel, inner, seen);
            }
            if let OpKind::For { carried, body, .. } = &op.kind {
                // A carried value that never changes is the value it started with.
                for (slot, start) in carried.iter().enumerate() {
                    if self.replaced.resolve(body.yields[slot]) == body.args[slot + 1] {
                        self.replaced.insert(op.results[slot], *start);
                    }
                }
            }
            kept.push(op);
        }
        block.ops = kept;
        for value in &mut block.yields {
            *value = self.replaced.resolve(*value);
        }
        seen.pop();
    }

    /// What identifies an operation that may be shared; `None` when each occurrence counts.
    fn key(kernel: &Kernel, op: &Op) -> Option<String> {
        let shareable = match &op.kind {
            OpKind::For { .. } | OpKind::If { .. } | OpKind::Map(_) | OpKind::DotTile { .. } => {
                false
            }
            kind if kind.writes() => false,
            OpKind::Load { tensor, .. }
            | OpKind::ElementLoad { tensor, .. }
            | OpKind::DecodeRow { tensor, .. } => {
                !kernel.params[*tensor as usize].kind.is_mutable()
            }
            _ => true,
        };
        // The type is part of the key: casts of one value to two types differ only there.
        shareable.then(|| {
            format!(
                "{:?} : {:?}",
                op.kind,
                op.results.iter().map(|value| kernel.ty(*value)).collect::<Vec<_>>()
            )
        })
    }

    fn fold(&self, kernel: &Kernel, op: &Op) -> Option<Folded> {
        let constant = |value: Value| self.constants.get(&value).copied();
        match op.kind {
            OpKind::Unary(operation, a) => {
                fold_unary(operation, constant(a)?).map(Folded::Constant)
            }
            OpKind::Binary(operation, a, b) => match (constant(a), constant(b)) {
                (Some(a), Some(b)) => fold_binary(operation, a, b).map(Folded::Constant),
                (a_const, b_const) => simplify(operation, (a, a_const), (b, b_const)),
            },
            OpKind::Compare(operation, a, b) => fold_compare(operation, constant(a)?, constant(b)?)
                .map(|truth| Folded::Constant(Const::Bool(truth))),
            OpKind::Select(condition, a, b) => match constant(condition)? {
                Const::Bool(true) => Some(Folded::Value(a)),
                Const::Bool(false) => Some(Folded::Value(b)),
                _ => None,
            },
            OpKind::Cast(a) => {
                let Type::Scalar(to) = kernel.ty(op.results[0]) else { return None };
                fold_cast(constant(a)?, *to).map(Folded::Constant)
            }
            OpKind::Reshape(a) | OpKind::Broadcast { value: a, .. }
                if kernel.ty(a) == kernel.ty(op.results[0]) =>
            {
                Some(Folded::Value(a))
            }
            _ => None,
        }
    }
}

enum Folded {
    Constant(Const),
    Value(Value),
}

/// `x + 0`, `x * 1` and the like; only rules that hold for every value of `x`.
fn simplify(
    op: BinaryOp,
    (a, a_const): (Value, Option<Const>),
    (b, b_const): (Value, Option<Const>),
) -> Option<Folded> {
    let is_zero = |constant: Option<Const>| matches!(constant, Some(Const::I32(0) | Const::U32(0)));
    let is_one = |constant: Option<Const>| match constant {
        Some(Const::I32(1) | Const::U32(1)) => true,
        Some(Const::F32(value)) => value.to_bits() == 1.0_f32.to_bits(),
        _ => false,
    };
    match op {
        BinaryOp::Add if is_zero(a_const) => Some(Folded::Value(b)),
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Shl | BinaryOp::Shr if is_zero(b_const) => {
            Some(Folded::Value(a))
        }
        BinaryOp::Mul | BinaryOp::Div if is_one(b_const) => Some(Folded::Value(a)),
        BinaryOp::Mul if is_one(a_const) => Some(Folded::Value(b)),
        BinaryOp::Mul if is_zero(a_const) => Some(Folded::Value(a)),
        BinaryOp::Mul if is_zero(b_const) => Some(Folded::Value(b)),
        BinaryOp::And | BinaryOp::Min | BinaryOp::Max if a == b => Some(Folded::Value(a)),
        BinaryOp::And if b_const == Some(Const::Bool(true)) => Some(Folded::Value(a)),
        BinaryOp::And if a_const == Some(Const::Bool(true)) => Some(Folded::Value(b)),
        _ => None,
    }
}

fn fold_unary(op: UnaryOp, a: Const) -> Option<Const> {
    Some(match (op, a) {
        (UnaryOp::Neg, Const::F32(a)) => Const::F32(-a),
        (UnaryOp::Neg, Const::I32(a)) => Const::I32(a.wrapping_neg()),
        (UnaryOp::Abs, Const::F32(a)) => Const::F32(a.abs()),
        (UnaryOp::Not, Const::Bool(a)) => Const::Bool(!a),
        (UnaryOp::Sqrt, Const::F32(a)) => Const::F32(a.sqrt()),
        _ => return None,
    })
}

fn fold_binary(op: BinaryOp, a: Const, b: Const) -> Option<Const> {
    Some(match (a, b) {
        (Const::F32(a), Const::F32(b)) => Const::F32(match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            _ => return None,
        }),
        (Const::I32(a), Const::I32(b)) => Const::I32(match op {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Sub => a.wrapping_sub(b),
            BinaryOp::Mul => a.wrapping_mul(b),
            BinaryOp::Div => a.checked_div(b)?,
            BinaryOp::Rem => a.checked_rem(b)?,
            BinaryOp::Min => a.min(b),
            BinaryOp::Max => a.max(b),
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            BinaryOp::Shl => a.checked_shl(b.try_into().ok()?)?,
            BinaryOp::Shr => a.checked_shr(b.try_into().ok()?)?,
        }),
        (Const::U32(a), Const::U32(b)) => Const::U32(match op {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Sub => a.wrapping_sub(b),
            BinaryOp::Mul => a.wrapping_mul(b),
            BinaryOp::Div => a.checked_div(b)?,
            BinaryOp::Rem => a.checked_rem(b)?,
            BinaryOp::Min => a.min(b),
            BinaryOp::Max => a.max(b),
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            BinaryOp::Shl => a.checked_shl(b)?,
            BinaryOp::Shr => a.checked_shr(b)?,
        }),
        (Const::Bool(a), Const::Bool(b)) => Const::Bool(match op {
            BinaryOp::And => a && b,
            BinaryOp::Or => a || b,
            BinaryOp::Xor => a != b,
            _ => return None,
        }),
        _ => return None,
    })
}

fn fold_compare(op: CompareOp, a: Const, b: Const) -> Option<bool> {
    let ordering = match (a, b) {
        (Const::F32(a), Const::F32(b)) => a.partial_cmp(&b)?,
        (Const::I32(a), Const::I32(b)) => a.cmp(&b),
        (Const::U32(a), Const::U32(b)) => a.cmp(&b),
        _ => return None,
    };
    Some(match op {
        CompareOp::Eq => ordering.is_eq(),
        CompareOp::Ne => ordering.is_ne(),
        CompareOp::Lt => ordering.is_lt(),
        CompareOp::Le => ordering.is_le(),
        CompareOp::Gt => ordering.is_gt(),
        CompareOp::Ge => ordering.is_ge(),
    })
}

fn fold_cast(a: Const, to: DType) -> Option<Const> {
    Some(match (a, to) {
        (Const::I32(a), DType::F32) => Const::F32(a as f32),
        (Const::I32(a), DType::U32) => Const::U32(a as u32),
        (Const::U32(a), DType::I32) => Const::I32(a as i32),
        (Const::U32(a), DType::F32) => Const::F32(a as f32),
        _ => return None,
    })
}
