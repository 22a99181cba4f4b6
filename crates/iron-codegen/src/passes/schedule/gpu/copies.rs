//! Makes every accumulated or carried tile updatable in place, by copying it where somebody still needs the old one.
//!
//! Afterwards the operands of each group that [`super::placement`] joins (an accumulator and its result; what enters a
//! loop, is carried and leaves it; the results of a branch) may share one buffer.

use std::collections::BTreeSet;

use iron_core::Span;
use iron_core::ir::{
    Block, Kernel, Map, MapInput, MapOutput, MapSchedule, Op, OpKind, Type, Value,
};
use iron_core::visit::Uses;

use super::is_identity;

/// Inserts the copies.
pub(super) fn insert(kernel: &mut Kernel) {
    let uses = kernel.uses();
    let body = std::mem::take(&mut kernel.body);
    let body = Copies { kernel, uses }.block(body);
    kernel.body = body;
}

struct Copies<'k> {
    kernel: &'k mut Kernel,
    uses: Uses,
}

impl Copies<'_> {
    fn is_tile(&self, value: Value) -> bool {
        !self.kernel.ty(value).is_scalar()
    }

    /// An identity map from `value`.
    fn copy(&mut self, value: Value, span: Span, ops: &mut Vec<Op>) -> Value {
        let ty = self.kernel.ty(value).clone();
        let scalar = Type::Scalar(ty.dtype().expect("tiles on a GPU are plain"));
        let space = ty.shape().to_vec();
        let axes: Vec<u32> = (0..space.len() as u32).collect();
        let mut args: Vec<Value> = axes
            .iter()
            .map(|_| self.kernel.new_value(Type::Scalar(iron_core::DType::I32), span))
            .collect();
        let element = self.kernel.new_value(scalar, span);
        args.push(element);
        let result = self.kernel.new_value_like(value);
        let map = Map {
            space,
            inputs: vec![MapInput { value, axes }],
            body: Block { args, ops: Vec::new(), yields: vec![element] },
            outputs: vec![MapOutput::Element],
            schedule: MapSchedule::default(),
        };
        ops.push(Op { kind: OpKind::Map(map), results: vec![result], span });
        result
    }

    fn block(&mut self, block: Block) -> Block {
        let mut local: BTreeSet<Value> = block.args.iter().copied().collect();
        let mut ops = Vec::with_capacity(block.ops.len());
        for mut op in block.ops {
            let span = op.span;
            match &mut op.kind {
                OpKind::DotTile { acc, .. } => self.own(acc, &local, span, &mut ops),
                OpKind::For { carried, body, .. } => {
                    for value in carried.iter_mut() {
                        if self.is_tile(*value) {
                            self.own(value, &local, span, &mut ops);
                        }
                    }
                    let mut inner = self.block(std::mem::take(body));
                    self.carry(&mut inner, span);
                    *body = inner;
                }
                OpKind::If { then, otherwise, .. } => {
                    for branch in [then, otherwise] {
                        let mut inner = self.block(std::mem::take(branch));
                        self.hand_on(&mut inner, span);
                        *branch = inner;
                    }
                }
                _ => {}
            }
            local.extend(op.results.iter().copied());
            ops.push(op);
        }
        Block { args: block.args, ops, yields: block.yields }
    }

    /// What is overwritten must be used nowhere else and be made anew whenever this operation runs.
    fn own(&mut self, value: &mut Value, local: &BTreeSet<Value>, span: Span, ops: &mut Vec<Op>) {
        if self.uses.of(*value) != 1 || !local.contains(value) {
            *value = self.copy(*value, span, ops);
        }
    }

    /// The next values of a loop's carried tiles replace the old ones at the end of an iteration.
    fn carry(&mut self, body: &mut Block, span: Span) {
        let slots = body.yields.len();
        let mut seen = BTreeSet::new();
        let mut copied = Vec::new();
        for slot in 0..slots {
            let (arg, next) = (body.args[slot + 1], body.yields[slot]);
            if !self.is_tile(arg) || next == arg {
                continue;
            }
            if !seen.insert(next) || !self.replaces(body, arg, next) {
                copied.push(slot);
            }
        }
        // Copies of other carried tiles go through temporaries: all reads before all writes.
        for slot in &copied {
            if body.args.contains(&body.yields[*slot]) {
                body.yields[*slot] = self.copy(body.yields[*slot], span, &mut body.ops);
            }
        }
        for slot in copied {
            body.yields[slot] = self.copy(body.yields[slot], span, &mut body.ops);
            let name = self.kernel.info(body.args[slot + 1]).name.clone();
            self.kernel.info_mut(body.yields[slot]).name = name;
        }
    }

    /// Whether `next` can be written over `arg`: nobody reads `arg` once `next` exists.
    fn replaces(&self, body: &Block, arg: Value, next: Value) -> bool {
        if body.yields.contains(&arg) {
            return false;
        }
        let Some((root, definition)) = origin(body, next) else { return false };
        if root == arg {
            return true;
        }
        let Some(definition) = definition else { return false };
        let last_use = body.ops.iter().rposition(|op| uses(op, arg));
        match last_use {
            None => true,
            Some(at) if at < definition => true,
            Some(at) if at == definition => {
                let OpKind::Map(map) = &body.ops[at].kind else { return false };
                let element = body.ops[at].results.iter().zip(&map.outputs);
                let is_element =
                    element.into_iter().any(|(r, o)| *r == root && *o == MapOutput::Element);
                is_element
                    && self.kernel.ty(arg) == self.kernel.ty(root)
                    && map.inputs.iter().all(|i| i.value != arg || is_identity(self.kernel, map, i))
            }
            Some(_) => false,
        }
    }

    /// A branch hands on only tiles of its own.
    fn hand_on(&mut self, branch: &mut Block, span: Span) {
        for slot in 0..branch.yields.len() {
            let value = branch.yields[slot];
            if self.is_tile(value)
                && (self.uses.of(value) != 1
                    || !matches!(origin(branch, value), Some((_, Some(_)))))
            {
                branch.yields[slot] = self.copy(value, span, &mut branch.ops);
            }
        }
    }
}

fn uses(op: &Op, value: Value) -> bool {
    let mut found = false;
    op.kind.for_each_operand(|operand| found |= operand == value);
    found || op.kind.blocks().any(|block| block.free_values().contains(&value))
}

/// Follows accumulators and carried tiles back to where their buffer begins: the value, and the operation of `block` that
/// defines it (none for an argument). `None` when that is outside the block.
fn origin(block: &Block, mut value: Value) -> Option<(Value, Option<usize>)> {
    loop {
        if block.args.contains(&value) {
            return Some((value, None));
        }
        let at = block.ops.iter().position(|op| op.results.contains(&value))?;
        match &block.ops[at].kind {
            OpKind::DotTile { acc, .. } => value = *acc,
            OpKind::For { carried, .. } => {
                let slot = block.ops[at].results.iter().position(|result| *result == value)?;
                value = carried[slot];
            }
            _ => return Some((value, Some(at))),
        }
    }
}
