//! Chooses where each tile lives and which tiles share memory.

use std::collections::{BTreeMap, BTreeSet};

use iron_core::DType;
use iron_core::ir::{Block, DotOperand, Index, Kernel, MapOutput, OpKind, Storage, Value};

use super::is_identity;

/// Sets `storage` and `buffer` of every tile.
pub(super) fn place(kernel: &mut Kernel) {
    let groups = Groups::of(kernel);
    let storage = storage(kernel, &groups);
    let buffers = buffers(kernel, &groups, &storage);
    for number in 0..kernel.values.len() as u32 {
        let value = Value(number);
        if kernel.ty(value).is_scalar() {
            continue;
        }
        let group = groups.find(value);
        let info = kernel.info_mut(value);
        info.storage = storage.get(&group).copied();
        info.buffer = buffers.get(&group).copied();
    }
}

/// Tiles that share one buffer: what enters a loop, is carried by it and leaves it; an accumulator and its result.
struct Groups(Vec<u32>);

impl Groups {
    fn of(kernel: &Kernel) -> Self {
        let mut groups = Self((0..kernel.values.len() as u32).collect());
        kernel.body.walk(&mut |op| match &op.kind {
            OpKind::For { carried, body, .. } => {
                for (slot, start) in carried.iter().enumerate() {
                    groups.join(*start, body.args[slot + 1]);
                    groups.join(*start, body.yields[slot]);
                    groups.join(*start, op.results[slot]);
                }
            }
            OpKind::If { then, otherwise, .. } => {
                for (slot, result) in op.results.iter().enumerate() {
                    groups.join(*result, then.yields[slot]);
                    groups.join(*result, otherwise.yields[slot]);
                }
            }
            OpKind::DotTile { acc, .. } => groups.join(*acc, op.results[0]),
            _ => {}
        });
        groups
    }

    fn find(&self, value: Value) -> u32 {
        let mut root = value.0;
        while self.0[root as usize] != root {
            root = self.0[root as usize];
        }
        root
    }

    fn join(&mut self, a: Value, b: Value) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

fn gathers<'a>(indices: impl Iterator<Item = &'a Vec<Index>>, shared: &mut impl FnMut(Value)) {
    for entry in indices.flatten() {
        if let Index::Gather(list) = entry {
            shared(*list);
        }
    }
}

fn storage(kernel: &Kernel, groups: &Groups) -> BTreeMap<u32, Storage> {
    let mut shared = BTreeSet::new();
    let mut accumulators = BTreeSet::new();
    // Groups that a map reads or writes at the point it stands at: they share a domain.
    let mut together: Vec<Vec<u32>> = Vec::new();
    let mut tiles = BTreeSet::new();
    kernel.body.walk(&mut |op| {
        let mut share = |value: Value| {
            shared.insert(groups.find(value));
        };
        match &op.kind {
            OpKind::Map(map) => {
                let mut own = Vec::new();
                for input in &map.inputs {
                    if is_identity(kernel, map, input) {
                        own.push(groups.find(input.value));
                    } else {
                        share(input.value);
                    }
                }
                for (output, result) in map.outputs.iter().zip(&op.results) {
                    match output {
                        MapOutput::Element => own.push(groups.find(*result)),
                        MapOutput::Reduce { .. } if !kernel.ty(*result).is_scalar() => {
                            share(*result);
                        }
                        MapOutput::Reduce { .. } => {}
                    }
                }
                together.push(own);
            }
            OpKind::DotTile { a, b, acc, .. } => {
                accumulators.insert(groups.find(*acc));
                for operand in [a, b] {
                    if let DotOperand::Memory(tile) = operand {
                        gathers([&tile.index].into_iter(), &mut share);
                    }
                }
            }
            OpKind::DecodeRow { index, .. } | OpKind::Load { index, .. } => {
                gathers([index].into_iter(), &mut share);
            }
            _ => {}
        }
        for value in op.results.iter().chain(op.kind.blocks().flat_map(|block| &block.args)) {
            if !kernel.ty(*value).is_scalar() {
                tiles.insert(groups.find(*value));
            }
        }
    });
    let mut storage: BTreeMap<u32, Storage> = BTreeMap::new();
    for group in tiles {
        let place = if shared.contains(&group) {
            Storage::Shared
        } else if accumulators.contains(&group) {
            Storage::Fragment
        } else {
            Storage::Blocked
        };
        storage.insert(group, place);
    }
    // What meets an accumulator point by point takes its layout.
    loop {
        let mut changed = false;
        for own in &together {
            if !own.iter().any(|group| storage.get(group) == Some(&Storage::Fragment)) {
                continue;
            }
            for group in own {
                if storage.get(group) == Some(&Storage::Blocked) {
                    storage.insert(*group, Storage::Fragment);
                    changed = true;
                }
            }
        }
        if !changed {
            return storage;
        }
    }
}

/// Registers: a buffer per group. Shared memory: groups whose lives do not overlap take the same buffer.
fn buffers(
    kernel: &Kernel,
    groups: &Groups,
    storage: &BTreeMap<u32, Storage>,
) -> BTreeMap<u32, u32> {
    let lives = Lives::of(kernel, groups);
    let mut buffers = BTreeMap::new();
    let mut next = 0;
    for group in storage.keys() {
        if storage[group] != Storage::Shared {
            buffers.insert(*group, next);
            next += 1;
        }
    }
    let mut order: Vec<u32> =
        storage.keys().copied().filter(|group| storage[group] == Storage::Shared).collect();
    order.sort_by_key(|group| lives.0.get(group).copied());
    // (buffer, bytes, last use)
    let mut taken: Vec<(u32, u32, u32)> = Vec::new();
    for group in order {
        let info = kernel.info(Value(group));
        let bytes =
            info.ty.shape().iter().product::<u32>() * info.ty.dtype().map_or(4, DType::size) as u32;
        let (start, end) = lives.0.get(&group).copied().unwrap_or((0, u32::MAX));
        let free = taken
            .iter_mut()
            .filter(|(_, size, last)| *last < start && *size >= bytes)
            .min_by_key(|(_, size, _)| *size);
        let buffer = if let Some((buffer, _, last)) = free {
            *last = end;
            *buffer
        } else {
            taken.push((next, bytes, end));
            next += 1;
            next - 1
        };
        buffers.insert(group, buffer);
    }
    buffers
}

/// First definition and last use of each group, in positions of the program text; a use inside a loop of what was made
/// outside lasts as long as the loop.
struct Lives(BTreeMap<u32, (u32, u32)>);

impl Lives {
    fn of(kernel: &Kernel, groups: &Groups) -> Self {
        let mut walk =
            Walk { groups, position: 0, defined: BTreeMap::new(), lives: BTreeMap::new() };
        walk.block(&kernel.body, &mut Vec::new());
        Self(walk.lives)
    }
}

struct Walk<'a> {
    groups: &'a Groups,
    position: u32,
    defined: BTreeMap<Value, u32>,
    lives: BTreeMap<u32, (u32, u32)>,
}

impl Walk<'_> {
    fn touch(&mut self, value: Value, at: u32) {
        let life = self.lives.entry(self.groups.find(value)).or_insert((at, at));
        *life = (life.0.min(at), life.1.max(at));
    }

    fn define(&mut self, value: Value) {
        self.defined.insert(value, self.position);
        self.touch(value, self.position);
    }

    /// `loops` lists, for each enclosing loop, its start and the values used in it, to be extended to its end.
    fn used(&mut self, value: Value, loops: &mut [(u32, BTreeSet<Value>)]) {
        self.touch(value, self.position);
        let made = self.defined.get(&value).copied().unwrap_or(0);
        for (start, outer) in loops {
            if made < *start {
                outer.insert(value);
            }
        }
    }

    fn block(&mut self, block: &Block, loops: &mut Vec<(u32, BTreeSet<Value>)>) {
        for op in &block.ops {
            self.position += 1;
            let mut operands = Vec::new();
            op.kind.for_each_operand(|value| operands.push(value));
            for value in operands {
                self.used(value, loops);
            }
            match &op.kind {
                OpKind::For { body, .. } => {
                    self.position += 1;
                    loops.push((self.position, BTreeSet::new()));
                    for arg in &body.args {
                        self.define(*arg);
                    }
                    self.block(body, loops);
                    self.position += 1;
                    for value in &body.yields {
                        self.used(*value, loops);
                    }
                    let (_, outer) = loops.pop().expect("pushed above");
                    for value in outer {
                        self.touch(value, self.position);
                    }
                }
                OpKind::If { then, otherwise, .. } => {
                    for branch in [then, otherwise] {
                        self.block(branch, loops);
                        self.position += 1;
                        for value in &branch.yields {
                            self.used(*value, loops);
                        }
                    }
                }
                _ => {}
            }
            // A result is made while the operands are still read, except by control flow.
            self.position += u32::from(matches!(op.kind, OpKind::For { .. } | OpKind::If { .. }));
            for result in &op.results {
                self.define(*result);
            }
        }
    }
}
