//! Walking, substituting and copying IR.

mod common;

use std::collections::BTreeSet;

use common::{every_op, random_kernel};
use iron_core::ir::{BinaryOp, Block, Index, Kernel, OpKind, Value};
use iron_core::visit::{Access, Substitution};
use iron_core::{Builder, DType, verify};

fn sound(kernel: &Kernel) {
    verify(kernel).unwrap_or_else(|faults| panic!("{faults:?}\n{kernel}"));
}

/// `for i in 0..n { total += x[i] }`, then `total` doubled.
fn sum() -> Kernel {
    let mut b = Builder::new("sum");
    let x = b.tensor("x", DType::F32, &["n"], false);
    let one = iron_core::ir::DimExpr::Const(1);
    b.grid(vec![one]);
    let (zero, n, start) = (b.i32(0), b.dim("n"), b.f32(0.0));
    let total = b.for_loop((zero, n), 1, &[start], |b, i, carried| {
        let element = b.load(x, vec![Index::At(i)], None);
        vec![b.add(carried[0], element)]
    });
    b.add(total[0], total[0]);
    b.finish()
}

fn loop_body(kernel: &Kernel) -> Block {
    let found = kernel.body.ops.iter().find_map(|op| match &op.kind {
        OpKind::For { body, .. } => Some(body.clone()),
        _ => None,
    });
    found.expect("a loop")
}

#[test]
fn operands_are_those_of_the_text_in_its_order() {
    let kernel = every_op();
    kernel.body.walk(&mut |op| {
        let text = kernel.op_text(op);
        let head = text.split(" {\n").next().unwrap_or_default();
        let head = head.split_once(" = ").map_or(head, |(_, operation)| operation);
        let arguments = op.kind.blocks().next().map_or(0, |block| block.args.len());
        let named = head.matches('%').count() - arguments;
        assert_eq!(op.kind.operands().len(), named, "{text}");
    });
}

#[test]
fn mapped_operands_are_all_replaced() {
    let mut kernel = every_op();
    let offset = kernel.values.len() as u32;
    kernel.body.walk_mut(&mut |op| {
        let before = op.kind.operands();
        op.kind.map_operands(|value| Value(value.0 + offset));
        let expected: Vec<_> = before.iter().map(|value| Value(value.0 + offset)).collect();
        assert_eq!(op.kind.operands(), expected);
    });
}

#[test]
fn uses_count_operands_and_yields() {
    let kernel = sum();
    let uses = kernel.uses();
    let result = kernel.body.ops[3].results[0];
    assert_eq!(uses.of(result), 2);
    let next = loop_body(&kernel).yields[0];
    assert_eq!(uses.of(next), 1);
    assert_eq!(uses.of(Value(999)), 0);
}

#[test]
fn free_values_come_from_outside() {
    let kernel = every_op();
    assert!(kernel.body.free_values().is_empty());
    let body = loop_body(&kernel);
    let free: Vec<String> =
        body.free_values().into_iter().map(|value| kernel.value_text(value)).collect();
    assert_eq!(free.len(), 1, "the loop uses one outer value, eps: {free:?}");
}

#[test]
fn accesses_reach_into_blocks() {
    let kernel = every_op();
    let map = kernel.body.ops.last().expect("the map");
    let expected = BTreeSet::from([(0, Access::Read), (1, Access::Write), (2, Access::Read)]);
    assert_eq!(map.kind.nested_accesses(), expected);
    assert!(map.kind.accesses().is_empty());
    assert!(map.kind.writes() && map.kind.reads());
    assert!(!sum().body.ops.iter().any(|op| op.kind.writes()));
}

#[test]
fn substitution_follows_chains() {
    let [a, b, c] = [Value(0), Value(1), Value(2)];
    let substitution: Substitution = [(a, b), (b, c)].into_iter().collect();
    assert_eq!(substitution.resolve(a), c);
    let mut block = Block { yields: vec![a, c], ..Block::default() };
    substitution.apply(&mut block);
    assert_eq!(block.yields, [c, c]);
}

#[test]
#[should_panic(expected = "replaced by itself")]
fn substitution_refuses_circles() {
    let _: Substitution = [(Value(0), Value(1)), (Value(1), Value(0))].into_iter().collect();
}

#[test]
fn a_copy_defines_fresh_values_only() {
    for seed in 0..50 {
        let mut kernel = random_kernel(seed);
        let body = kernel.body.clone();
        let copy = kernel.clone_block(&body, &mut Substitution::new());
        assert!(copy.defined_values().is_disjoint(&body.defined_values()));
        kernel.body.ops.extend(copy.ops);
        sound(&kernel);
    }
}

#[test]
fn one_substitution_serves_several_copies() {
    let mut kernel = random_kernel(3);
    let body = kernel.body.clone();
    let mut substitution = Substitution::new();
    for _ in 0..3 {
        let copy = kernel.clone_block(&body, &mut substitution);
        kernel.body.ops.extend(copy.ops);
    }
    sound(&kernel);
}

#[test]
fn an_inlined_body_unrolls_a_loop() {
    let (mut builder, old) = Builder::rewrite(sum());
    for op in old.ops {
        let OpKind::For { body, carried, .. } = &op.kind else {
            builder.push(op);
            continue;
        };
        let mut carried = carried.clone();
        for iteration in 0..3 {
            let counter = builder.i32(iteration);
            let args: Vec<_> = [counter].into_iter().chain(carried).collect();
            let mut substitution = Substitution::new();
            let (ops, yields) = builder.kernel_mut().inline_block(body, &args, &mut substitution);
            for op in ops {
                builder.push(op);
            }
            carried = yields;
        }
        builder.emit(OpKind::Binary(BinaryOp::Add, carried[0], carried[0]), None);
        break;
    }
    let kernel = builder.finish();
    sound(&kernel);
    let loads = kernel.body.ops.iter().filter(|op| matches!(op.kind, OpKind::Load { .. }));
    assert_eq!(loads.count(), 3);
}
