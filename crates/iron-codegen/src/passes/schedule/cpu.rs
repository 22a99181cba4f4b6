//! Scheduling for the CPU: small tiles live in vector registers, the rest in stack memory that stays in L1, updated in
//! place.

use std::collections::{BTreeMap, BTreeSet};

use iron_core::DType;
use iron_core::ir::{
    Block, DotOperand, Kernel, Map, MapInput, MapOutput, MapSchedule, Op, OpKind, Storage, Type,
    Value,
};

use crate::target::cpu::dot::keeps_registers;

/// Lanes of a logical vector on every CPU.
pub const LANES: u32 = 16;

/// Tiles of up to this many vectors may live in registers. AVX-512 has 32.
const MAX_VECTORS: u32 = 16;

/// Vectors along the last axis of a map over registers that are written out instead of looped over.
const MAX_UNROLL: u32 = 8;

/// The same for a reduction over memory.
const MAX_FOLD_UNROLL: u32 = 4;

/// Runs the pass.
pub fn schedule(kernel: &mut Kernel) {
    kernel.launch.threads = 1;
    place(kernel, true);
    let mut body = std::mem::take(&mut kernel.body);
    body.walk_mut(&mut |op| {
        if let OpKind::Map(map) = &mut op.kind {
            let vectors = map.space.last().copied().unwrap_or(1).div_ceil(LANES);
            // Written out where indices must be literals or sums run side by side; loops over memory stay loops.
            let tiles =
                map.inputs.iter().map(|input| input.value).chain(op.results.iter().copied());
            let in_registers =
                tiles.into_iter().any(|tile| kernel.info(tile).storage == Some(Storage::Vectors));
            let folds = map.outputs.iter().any(|output| *output != MapOutput::Element);
            let limit = if in_registers {
                MAX_UNROLL.max(vectors)
            } else if folds {
                MAX_FOLD_UNROLL
            } else {
                1
            };
            map.schedule.unroll = vectors.min(limit);
        }
    });
    kernel.body = body;
}

/// What is left without the pass: every tile in memory of its own, every loop rolled.
pub fn unscheduled(kernel: &mut Kernel) {
    kernel.launch.threads = 1;
    place(kernel, false);
}

fn place(kernel: &mut Kernel, registers: bool) {
    let groups = Groups::of(kernel);
    let mut in_memory: BTreeSet<u32> = BTreeSet::new();
    for (index, info) in kernel.values.iter().enumerate() {
        let in_registers = registers && fits_registers(&info.ty);
        if !info.ty.is_scalar() && !in_registers {
            in_memory.insert(groups.find(Value(index as u32)));
        }
    }
    let body = std::mem::take(&mut kernel.body);
    body.walk(&mut |op| {
        memory_uses(kernel, op, &mut |value| {
            in_memory.insert(groups.find(value));
        });
    });
    for index in 0..kernel.values.len() {
        let value = Value(index as u32);
        if !kernel.values[index].ty.is_scalar() {
            let memory = in_memory.contains(&groups.find(value));
            kernel.values[index].storage =
                Some(if memory { Storage::Memory } else { Storage::Vectors });
        }
    }
    kernel.body = body;
    Buffers::assign(kernel, registers);
    let mut body = std::mem::take(&mut kernel.body);
    let mut next =
        kernel.values.iter().filter_map(|info| info.buffer).max().map_or(0, |last| last + 1);
    copy_before_overwriting(kernel, &mut body, &mut next);
    kernel.body = body;
}

/// A loop hands its carried tiles on one after the other. One that lies in the buffer of another carried tile, which
/// would be overwritten first (`(a, b) = (b, a)`), is copied out before.
fn copy_before_overwriting(kernel: &mut Kernel, block: &mut Block, next: &mut u32) {
    for op in &mut block.ops {
        let span = op.span;
        for inner in op.kind.blocks_mut() {
            copy_before_overwriting(kernel, inner, next);
        }
        let OpKind::For { body, .. } = &mut op.kind else { continue };
        let carried: Vec<Option<u32>> =
            body.args[1..].iter().map(|arg| kernel.info(*arg).buffer).collect();
        for slot in 0..body.yields.len() {
            let value = body.yields[slot];
            let buffer = kernel.info(value).buffer;
            let overwritten = (0..slot).any(|earlier| {
                let stays = kernel.info(body.yields[earlier]).buffer == carried[earlier];
                buffer.is_some() && carried[earlier] == buffer && !stays
            });
            if !overwritten {
                continue;
            }
            let (ty, rank) = (kernel.ty(value).clone(), kernel.ty(value).shape().len() as u32);
            let mut args: Vec<Value> =
                (0..rank).map(|_| kernel.new_value(Type::Scalar(DType::I32), span)).collect();
            let element = kernel.new_value(Type::Scalar(ty.dtype().unwrap_or(DType::F32)), span);
            args.push(element);
            let copy = kernel.new_value_like(value);
            kernel.info_mut(copy).buffer = Some(*next);
            *next += 1;
            let map = Map {
                space: ty.shape().to_vec(),
                inputs: vec![MapInput { value, axes: (0..rank).collect() }],
                body: Block { args, ops: Vec::new(), yields: vec![element] },
                outputs: vec![MapOutput::Element],
                schedule: MapSchedule::default(),
            };
            body.ops.push(Op { kind: OpKind::Map(map), results: vec![copy], span });
            body.yields[slot] = copy;
        }
    }
}

fn fits_registers(ty: &Type) -> bool {
    let shape = ty.shape();
    let plain = ty.dtype().is_some_and(|dtype| dtype != DType::Bool);
    let (Some(last), rank) = (shape.last(), shape.len()) else { return false };
    plain
        && rank <= 2
        && last.is_multiple_of(LANES)
        && shape.iter().product::<u32>() / LANES <= MAX_VECTORS
}

/// Reports the tiles that `op` can only use in memory.
fn memory_uses(kernel: &Kernel, op: &Op, report: &mut dyn FnMut(Value)) {
    match &op.kind {
        OpKind::Map(map) => {
            let unrolled = is_unrolled(map);
            for input in &map.inputs {
                let lanes = map.space.len() as u32 - 1;
                let aligned = input.axes.last() == Some(&lanes)
                    && !input.axes[..input.axes.len() - 1].contains(&lanes);
                if !aligned || !unrolled {
                    report(input.value);
                }
            }
            for (output, result) in map.outputs.iter().zip(&op.results) {
                if !kernel.ty(*result).is_scalar() && (*output != MapOutput::Element || !unrolled) {
                    report(*result);
                }
            }
        }
        OpKind::DotTile { a, b, acc, .. } => {
            for operand in [a, b] {
                if let DotOperand::Tile(value) = operand {
                    report(*value);
                }
            }
            if !keeps_registers(kernel, a, b) {
                report(*acc);
            }
        }
        OpKind::QuantizeStore { value, .. } if kernel.ty(*value).shape().len() != 1 => {
            report(*value);
        }
        _ => {}
    }
}

/// Whether a map is short enough to be written out vector by vector.
pub fn is_unrolled(map: &Map) -> bool {
    let Some(last) = map.space.last() else { return false };
    let outer: u32 = map.space[..map.space.len() - 1].iter().product();
    outer * last.div_ceil(LANES) <= MAX_VECTORS
}

/// Tiles that must live in the same kind of place: what enters a loop, is carried by it and leaves it.
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

/// Gives tiles in memory their buffers. Two values share one when the second replaces the first and nobody reads the
/// first afterwards; where that is not so, the emitter copies.
struct Buffers<'k> {
    kernel: &'k mut Kernel,
    next: u32,
    in_place: bool,
    uses: BTreeMap<Value, u32>,
}

impl Buffers<'_> {
    fn assign(kernel: &mut Kernel, in_place: bool) {
        let mut uses = BTreeMap::new();
        kernel.body.for_each_use(&mut |value| *uses.entry(value).or_insert(0) += 1);
        let body = std::mem::take(&mut kernel.body);
        let mut buffers = Buffers { kernel, next: 0, in_place, uses };
        buffers.block(&body);
        kernel.body = body;
    }

    fn is_memory(&self, value: Value) -> bool {
        self.kernel.info(value).storage == Some(Storage::Memory)
    }

    fn fresh(&mut self, value: Value) {
        if self.is_memory(value) && self.kernel.info(value).buffer.is_none() {
            self.kernel.info_mut(value).buffer = Some(self.next);
            self.next += 1;
        }
    }

    fn share(&mut self, value: Value, with: Value) {
        self.kernel.info_mut(value).buffer = self.kernel.info(with).buffer;
    }

    fn block(&mut self, block: &Block) {
        let mut local: BTreeSet<Value> = block.args.iter().copied().collect();
        for op in &block.ops {
            match &op.kind {
                OpKind::For { carried, body, .. } => {
                    for (slot, start) in carried.iter().enumerate() {
                        if !self.is_memory(*start) {
                            continue;
                        }
                        let arg = body.args[slot + 1];
                        let only_here = self.uses.get(start) == Some(&1) && local.contains(start);
                        if only_here && self.in_place {
                            self.share(arg, *start);
                        } else {
                            self.fresh(arg);
                        }
                        self.share(op.results[slot], arg);
                    }
                    self.block(body);
                }
                OpKind::If { then, otherwise, .. } => {
                    for result in &op.results {
                        self.fresh(*result);
                    }
                    self.block(then);
                    self.block(otherwise);
                }
                OpKind::Map(map) => {
                    let mut taken = BTreeSet::new();
                    for (result, output) in op.results.iter().zip(&map.outputs) {
                        if !self.is_memory(*result) {
                            continue;
                        }
                        let identity: Vec<u32> = (0..map.space.len() as u32).collect();
                        let replaced = map.inputs.iter().find(|input| {
                            self.in_place
                                && *output == MapOutput::Element
                                && input.axes == identity
                                && self.is_memory(input.value)
                                && self.kernel.ty(input.value) == self.kernel.ty(*result)
                                && self.uses.get(&input.value) == Some(&1)
                                && local.contains(&input.value)
                                && !taken.contains(&input.value)
                        });
                        match replaced {
                            Some(input) => {
                                taken.insert(input.value);
                                self.share(*result, input.value);
                            }
                            None => self.fresh(*result),
                        }
                    }
                }
                OpKind::DotTile { acc, .. } => {
                    let result = op.results[0];
                    if self.is_memory(result) {
                        if self.in_place && self.uses.get(acc) == Some(&1) && local.contains(acc) {
                            self.share(result, *acc);
                        } else {
                            self.fresh(result);
                        }
                    }
                }
                _ => {
                    for result in &op.results {
                        self.fresh(*result);
                    }
                }
            }
            local.extend(op.results.iter().copied());
        }
    }
}
