//! Puts a barrier wherever one thread may touch what another wrote, or overwrite what another may still read.
//!
//! A thread needs no barrier for what it wrote itself: two maps over the same points in the same layout pass each other
//! elements in shared memory freely. Everything else conservatively waits.

use std::collections::BTreeMap;

use iron_core::DType;
use iron_core::ir::{Block, DotOperand, Index, Kernel, MapOutput, Op, OpKind, Storage, Value};
use iron_core::visit::Access;

use super::{Domain, Machine, domain, is_identity, scratch_bytes};

/// Inserts the barriers.
pub(super) fn insert(kernel: &mut Kernel, machine: Machine) {
    let body = std::mem::take(&mut kernel.body);
    let barriers = Barriers { kernel, machine, tracked: tracked(kernel, &body) };
    let mut state = State::default();
    let body = barriers.block(&body, &mut state);
    kernel.body = body;
}

/// Parameters that are written and also touched otherwise; the others cannot be raced on.
fn tracked(kernel: &Kernel, body: &Block) -> Vec<bool> {
    let mut counts: BTreeMap<(u32, Access), u32> = BTreeMap::new();
    body.walk(&mut |op| {
        for access in op.kind.accesses() {
            *counts.entry(access).or_default() += 1;
        }
    });
    (0..kernel.params.len() as u32)
        .map(|param| {
            let of = |access| counts.get(&(param, access)).copied().unwrap_or(0);
            of(Access::Write) > 0 && of(Access::Write) + of(Access::Read) > 1
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Buffer(u32),
    Scratch,
    Param(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Touch {
    object: Object,
    write: bool,
    /// Each thread touches only the points it owns in this domain, elements of so many bytes; `None`: anybody touches
    /// anything.
    domain: Option<(Domain, usize)>,
}

/// What was touched since the last barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State(Vec<Touch>);

impl State {
    fn add(&mut self, touches: Vec<Touch>) {
        for touch in touches {
            if !self.0.contains(&touch) {
                self.0.push(touch);
            }
        }
    }

    fn join(&mut self, other: &Self) -> bool {
        let before = self.0.len();
        self.add(other.0.clone());
        self.0.len() != before
    }

    fn conflicts(&self, touches: &[Touch]) -> bool {
        touches.iter().any(|new| {
            self.0.iter().any(|old| {
                let ordered = new.domain.is_some() && new.domain == old.domain;
                old.object == new.object && (old.write || new.write) && !ordered
            })
        })
    }
}

struct Barriers<'k> {
    kernel: &'k Kernel,
    machine: Machine,
    tracked: Vec<bool>,
}

impl Barriers<'_> {
    fn block(&self, block: &Block, state: &mut State) -> Block {
        let mut ops = Vec::with_capacity(block.ops.len());
        for op in &block.ops {
            ops.extend(self.op(op, state));
        }
        Block { args: block.args.clone(), ops, yields: block.yields.clone() }
    }

    /// The operation, with a barrier before it where it needs one.
    fn op(&self, op: &Op, state: &mut State) -> Vec<Op> {
        let mut op = op.clone();
        match &mut op.kind {
            OpKind::For { body, .. } => {
                let mut entry = state.clone();
                loop {
                    let mut end = entry.clone();
                    let done = self.block(body, &mut end);
                    if !entry.join(&end) {
                        *body = done;
                        break;
                    }
                }
                // The loop may also not run at all; `entry` covers both.
                *state = entry;
                vec![op]
            }
            OpKind::If { then, otherwise, .. } => {
                let mut end = state.clone();
                *then = self.block(then, &mut end);
                *otherwise = self.block(otherwise, state);
                state.join(&end);
                vec![op]
            }
            _ => {
                let (before, after) = self.touches(&op);
                let mut out = Vec::new();
                if state.conflicts(&before) {
                    out.push(Op { kind: OpKind::Barrier, results: Vec::new(), span: op.span });
                    state.0.clear();
                }
                state.add(before);
                if let Some(after) = after {
                    state.0.clear();
                    state.add(after);
                }
                out.push(op);
                out
            }
        }
    }

    fn shared(&self, value: Value, write: bool, domain: Option<Domain>, to: &mut Vec<Touch>) {
        let info = self.kernel.info(value);
        if let (Some(Storage::Shared), Some(buffer)) = (info.storage, info.buffer) {
            let size = info.ty.dtype().map_or(4, DType::size);
            to.push(Touch {
                object: Object::Buffer(buffer),
                write,
                domain: domain.map(|domain| (domain, size)),
            });
        }
    }

    /// What an operation touches before and after the barrier inside its primitive; `None` when it has none.
    fn touches(&self, op: &Op) -> (Vec<Touch>, Option<Vec<Touch>>) {
        let mut before = Vec::new();
        let mut after = Vec::new();
        for (param, access) in op.kind.nested_accesses() {
            if self.tracked[param as usize] {
                let write = access == Access::Write;
                before.push(Touch { object: Object::Param(param), write, domain: None });
            }
        }
        let scratch = scratch_bytes(self.kernel, op, self.machine) > 0;
        match &op.kind {
            OpKind::Map(map) => {
                let here = domain(self.kernel, map, &op.results);
                for input in &map.inputs {
                    let own = is_identity(self.kernel, map, input).then(|| here.clone());
                    self.shared(input.value, false, own, &mut before);
                }
                for (output, result) in map.outputs.iter().zip(&op.results) {
                    match output {
                        MapOutput::Element => {
                            self.shared(*result, true, Some(here.clone()), &mut before);
                        }
                        MapOutput::Reduce { .. } => self.shared(*result, true, None, &mut after),
                    }
                }
            }
            OpKind::DotTile { a, b, acc, .. } => {
                for operand in [a, b] {
                    match operand {
                        DotOperand::Tile(value) => self.shared(*value, false, None, &mut before),
                        DotOperand::Memory(tile) => self.gathers(&tile.index, &mut before),
                    }
                }
                let here = Domain::Fragment(self.kernel.ty(*acc).shape().to_vec());
                self.shared(*acc, true, Some(here), &mut after);
            }
            OpKind::DecodeRow { .. } => {
                let here = Domain::Blocked(self.kernel.ty(op.results[0]).shape().to_vec());
                self.shared(op.results[0], true, Some(here), &mut before);
            }
            OpKind::Load { index, .. } | OpKind::Store { index, .. } => {
                self.gathers(index, &mut before);
            }
            _ => {}
        }
        if !scratch {
            return (before, None);
        }
        before.push(Touch { object: Object::Scratch, write: true, domain: None });
        after.push(Touch { object: Object::Scratch, write: false, domain: None });
        (before, Some(after))
    }

    fn gathers(&self, index: &[Index], to: &mut Vec<Touch>) {
        for entry in index {
            if let Index::Gather(list) = entry {
                self.shared(*list, false, None, to);
            }
        }
    }
}
