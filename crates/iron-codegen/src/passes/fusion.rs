//! Pass 4, Fusion: maps over one index space become one map, and what a loop does not change leaves it.

use std::collections::{BTreeMap, BTreeSet};

use iron_core::ir::{Block, Const, Kernel, Map, MapInput, MapOutput, Op, OpKind, Value};
use iron_core::visit::{Access, Substitution};

/// Runs the pass.
pub fn fusion(kernel: &mut Kernel) {
    let mut integers = BTreeMap::new();
    kernel.body.walk(&mut |op| {
        if let OpKind::Const(Const::I32(value)) = op.kind {
            integers.insert(op.results[0], value);
        }
    });
    hoist_from_loops(&mut kernel.body, &integers);
    loop {
        let mut body = std::mem::take(&mut kernel.body);
        let outside = yields_outside(&body);
        let changed = merge_maps(&mut body, &outside);
        kernel.body = body;
        super::const_fold::const_fold(kernel);
        if !changed {
            return;
        }
    }
}

/// Values that blocks hand on: they must stay results.
fn yields_outside(body: &Block) -> BTreeSet<Value> {
    let mut yields = BTreeSet::new();
    body.walk_blocks(&mut |block| yields.extend(block.yields.iter().copied()));
    yields
}

/// Moves operations that depend on nothing inside a loop out of it, innermost loops first.
///
/// What reads memory leaves a loop only when the loop is known to run: its place may exist for nobody else.
fn hoist_from_loops(block: &mut Block, integers: &BTreeMap<Value, i32>) {
    let mut ops = Vec::with_capacity(block.ops.len());
    for mut op in std::mem::take(&mut block.ops) {
        for inner in op.kind.blocks_mut() {
            hoist_from_loops(inner, integers);
        }
        if let OpKind::For { lower, upper, body, .. } = &mut op.kind {
            let runs = matches!(
                (integers.get(lower), integers.get(upper)),
                (Some(lower), Some(upper)) if lower < upper
            );
            let written: BTreeSet<u32> = body_accesses(body)
                .into_iter()
                .filter(|(_, access)| *access == Access::Write)
                .map(|(tensor, _)| tensor)
                .collect();
            let mut inside = body.defined_values();
            let mut kept = Vec::with_capacity(body.ops.len());
            for inner in std::mem::take(&mut body.ops) {
                if (runs || !inner.kind.reads()) && is_hoistable(&inner, &inside, &written) {
                    for result in &inner.results {
                        inside.remove(result);
                    }
                    ops.push(inner);
                } else {
                    kept.push(inner);
                }
            }
            body.ops = kept;
        }
        ops.push(op);
    }
    block.ops = ops;
}

fn body_accesses(block: &Block) -> BTreeSet<(u32, Access)> {
    block.ops.iter().flat_map(|op| op.kind.nested_accesses()).collect()
}

fn is_hoistable(op: &Op, inside: &BTreeSet<Value>, written: &BTreeSet<u32>) -> bool {
    if op.kind.writes()
        || matches!(op.kind, OpKind::For { .. } | OpKind::If { .. } | OpKind::DotTile { .. })
    {
        return false;
    }
    // A tile that is read only to be overwritten in place (an accumulator's zeros) stays where it starts.
    if matches!(&op.kind, OpKind::Map(map) if map.inputs.is_empty()) && !op.kind.reads() {
        return false;
    }
    let reads_written =
        op.kind.nested_accesses().iter().any(|(tensor, _)| written.contains(tensor));
    let mut used = BTreeSet::new();
    op.kind.for_each_operand(|value| {
        used.insert(value);
    });
    for inner in op.kind.blocks() {
        used.extend(inner.free_values());
    }
    !reads_written && used.is_disjoint(inside)
}

/// Merges pairs of maps in `block` and inside it until none is left; returns whether it merged any.
fn merge_maps(block: &mut Block, outside: &BTreeSet<Value>) -> bool {
    let mut changed = false;
    for op in &mut block.ops {
        if matches!(op.kind, OpKind::Map(_)) {
            continue;
        }
        for inner in op.kind.blocks_mut() {
            changed |= merge_maps(inner, outside);
        }
    }
    let mut consumer = 1;
    while consumer < block.ops.len() {
        let merged = matches!(block.ops[consumer].kind, OpKind::Map(_))
            .then(|| {
                (0..consumer).rev().find_map(|producer| {
                    merge(block, producer, consumer, outside).map(|op| (producer, op))
                })
            })
            .flatten();
        match merged {
            Some((producer, op)) => {
                block.ops[consumer] = op;
                block.ops.remove(producer);
                changed = true;
            }
            None => consumer += 1,
        }
    }
    changed
}

fn merge(block: &Block, producer: usize, consumer: usize, outside: &BTreeSet<Value>) -> Option<Op> {
    let (first, second) = (&block.ops[producer], &block.ops[consumer]);
    let (OpKind::Map(x), OpKind::Map(y)) = (&first.kind, &second.kind) else { return None };
    if x.space != y.space {
        return None;
    }
    // The first map moves down to the second: nothing between may use its results or touch its memory.
    let between = &block.ops[producer + 1..consumer];
    let results: BTreeSet<Value> = first.results.iter().copied().collect();
    if between.iter().any(|op| uses_any(op, &results)) || conflicts(first, between) {
        return None;
    }
    if hazard(x, y) {
        return None;
    }
    // Every use by the second map must be of an element at the same point.
    let identity: Vec<u32> = (0..x.space.len() as u32).collect();
    let mut body_uses = y.body.free_values();
    body_uses.retain(|value| results.contains(value));
    if !body_uses.is_empty() {
        return None;
    }
    for input in &y.inputs {
        if let Some(at) = first.results.iter().position(|result| *result == input.value)
            && (input.axes != identity || x.outputs[at] != MapOutput::Element)
        {
            return None;
        }
    }
    let rank = x.space.len();
    let mut substitution = Substitution::new();
    for (mine, theirs) in y.body.args[..rank].iter().zip(&x.body.args[..rank]) {
        substitution.insert(*mine, *theirs);
    }
    let mut inputs: Vec<MapInput> = x.inputs.clone();
    let mut args: Vec<Value> = x.body.args.clone();
    for (input, arg) in y.inputs.iter().zip(&y.body.args[rank..]) {
        if let Some(at) = first.results.iter().position(|result| *result == input.value) {
            substitution.insert(*arg, x.body.yields[at]);
        } else if let Some(at) = inputs.iter().position(|known| known == input) {
            substitution.insert(*arg, args[rank + at]);
        } else {
            inputs.push(input.clone());
            args.push(*arg);
        }
    }
    let mut tail = y.body.clone();
    substitution.apply(&mut tail);
    let mut ops = x.body.ops.clone();
    ops.append(&mut tail.ops);

    let (mut outputs, mut yields, mut merged_results) = (Vec::new(), Vec::new(), Vec::new());
    for (at, result) in first.results.iter().enumerate() {
        let used_after =
            block.ops[consumer + 1..].iter().any(|op| uses_any(op, &BTreeSet::from([*result])));
        if used_after || outside.contains(result) {
            outputs.push(x.outputs[at].clone());
            yields.push(x.body.yields[at]);
            merged_results.push(*result);
        }
    }
    for (at, result) in second.results.iter().enumerate() {
        outputs.push(y.outputs[at].clone());
        yields.push(tail.yields[at]);
        merged_results.push(*result);
    }
    let map = Map {
        space: x.space.clone(),
        inputs,
        body: Block { args, ops, yields },
        outputs,
        schedule: y.schedule,
    };
    Some(Op { kind: OpKind::Map(map), results: merged_results, span: second.span })
}

fn uses_any(op: &Op, values: &BTreeSet<Value>) -> bool {
    let mut found = false;
    op.kind.for_each_operand(|value| found |= values.contains(&value));
    found || op.kind.blocks().any(|block| !block.free_values().is_disjoint(values))
}

/// Whether moving `op` past `between` could change what either reads.
fn conflicts(op: &Op, between: &[Op]) -> bool {
    let mine = op.kind.nested_accesses();
    between.iter().flat_map(|op| op.kind.nested_accesses()).any(|(tensor, theirs)| {
        mine.iter().any(|(other, access)| {
            *other == tensor && (*access == Access::Write || theirs == Access::Write)
        })
    })
}

/// Whether running the maps point by point could let one point's store be seen by another point's load, or survive
/// another point's store that came later.
fn hazard(x: &Map, y: &Map) -> bool {
    let accesses = |map: &Map| -> BTreeSet<(u32, Access)> {
        map.body.ops.iter().flat_map(|op| op.kind.accesses()).collect()
    };
    let (x, y) = (accesses(x), accesses(y));
    x.iter().any(|(tensor, mine)| {
        y.iter().any(|(other, theirs)| {
            tensor == other && (*mine == Access::Write || *theirs == Access::Write)
        })
    })
}
