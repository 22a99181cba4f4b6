//! Pass 6, Vectorize: maps run in vectors of the target's width, and multiply-adds round once.

use std::collections::HashMap;

use iron_core::DType;
use iron_core::ir::{BinaryOp, Block, Kernel, Op, OpKind, Type, UnaryOp, Value};
use iron_core::visit::Uses;

/// Runs the pass for vectors of `lanes` elements.
pub fn vectorize(kernel: &mut Kernel, lanes: u32) {
    let uses = kernel.uses();
    let mut body = std::mem::take(&mut kernel.body);
    fuse_multiply_add(kernel, &mut body, &uses);
    body.walk_mut(&mut |op| {
        if let OpKind::Map(map) = &mut op.kind {
            map.schedule.lanes = lanes;
        }
    });
    kernel.body = body;
    super::const_fold::drop_unused(kernel);
}

/// `a * b + c` becomes [`OpKind::Fma`] where the product has no other use.
fn fuse_multiply_add(kernel: &mut Kernel, block: &mut Block, uses: &Uses) {
    let mut products: HashMap<Value, (Value, Value)> = HashMap::new();
    let mut ops = Vec::with_capacity(block.ops.len());
    for mut op in std::mem::take(&mut block.ops) {
        for inner in op.kind.blocks_mut() {
            fuse_multiply_add(kernel, inner, uses);
        }
        let is_f32 =
            matches!(op.results[..], [result] if *kernel.ty(result) == Type::Scalar(DType::F32));
        match op.kind {
            OpKind::Binary(BinaryOp::Mul, a, b) if is_f32 && uses.of(op.results[0]) == 1 => {
                products.insert(op.results[0], (a, b));
            }
            OpKind::Binary(BinaryOp::Add, x, y) if is_f32 => {
                if let Some((a, b)) = products.get(&y).copied() {
                    op.kind = OpKind::Fma(a, b, x);
                } else if let Some((a, b)) = products.get(&x).copied() {
                    op.kind = OpKind::Fma(a, b, y);
                }
            }
            OpKind::Binary(BinaryOp::Sub, x, y) if is_f32 => {
                let mut negated = |value: Value, ops: &mut Vec<Op>| {
                    let result = kernel.new_value(Type::Scalar(DType::F32), op.span);
                    ops.push(Op {
                        kind: OpKind::Unary(UnaryOp::Neg, value),
                        results: vec![result],
                        span: op.span,
                    });
                    result
                };
                if let Some((a, b)) = products.get(&y).copied() {
                    let a = negated(a, &mut ops);
                    op.kind = OpKind::Fma(a, b, x);
                } else if let Some((a, b)) = products.get(&x).copied() {
                    let y = negated(y, &mut ops);
                    op.kind = OpKind::Fma(a, b, y);
                }
            }
            _ => {}
        }
        ops.push(op);
    }
    block.ops = ops;
}
