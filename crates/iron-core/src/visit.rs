//! Walking and rewriting: operands, uses, blocks, substitution and copies with fresh values.

use std::collections::{BTreeSet, HashMap};

use crate::Span;
use crate::ir::{Block, DotOperand, Index, Kernel, Op, OpKind, ParamKind, Type, Value, ValueInfo};

/// Visits every operand in the order of the IR text; expands alike for `&OpKind` and `&mut OpKind`.
macro_rules! each_operand {
    ($kind:expr, $visit:ident) => {{
        macro_rules! each_index {
            ($index:expr) => {
                for entry in $index {
                    match entry {
                        Index::At(value) | Index::Gather(value) => $visit(value),
                        Index::Range { start, bound, .. } => {
                            $visit(start);
                            if let Some(bound) = bound {
                                $visit(bound);
                            }
                        }
                    }
                }
            };
        }
        macro_rules! each_guard {
            ($guards:expr) => {
                for guard in $guards {
                    let crate::ir::Guard { index, bound, .. } = guard;
                    $visit(index);
                    $visit(bound);
                }
            };
        }
        match $kind {
            OpKind::Const(_)
            | OpKind::ProgramId(_)
            | OpKind::Dim(_)
            | OpKind::Param(_)
            | OpKind::Barrier => {}
            OpKind::Unary(_, value)
            | OpKind::Cast(value)
            | OpKind::Bitcast(value)
            | OpKind::Reshape(value)
            | OpKind::Transpose(value)
            | OpKind::Broadcast { value, .. }
            | OpKind::Reduce { value, .. }
            | OpKind::Iota { start: value, .. }
            | OpKind::If { condition: value, .. } => $visit(value),
            OpKind::Binary(_, a, b) | OpKind::Compare(_, a, b) => {
                $visit(a);
                $visit(b);
            }
            OpKind::Fma(a, b, c) | OpKind::Select(a, b, c) | OpKind::Dot { a, b, acc: c } => {
                $visit(a);
                $visit(b);
                $visit(c);
            }
            OpKind::Load { index, fill, .. } => {
                each_index!(index);
                if let Some(fill) = fill {
                    $visit(fill);
                }
            }
            OpKind::Store { index, value, .. } | OpKind::QuantizeStore { index, value, .. } => {
                each_index!(index);
                $visit(value);
            }
            OpKind::DecodeRow { index, .. } => each_index!(index),
            OpKind::For { lower, upper, carried, .. } => {
                $visit(lower);
                $visit(upper);
                for value in carried {
                    $visit(value);
                }
            }
            OpKind::Map(map) => {
                let crate::ir::Map { inputs, .. } = map;
                for input in inputs {
                    let crate::ir::MapInput { value, .. } = input;
                    $visit(value);
                }
            }
            OpKind::DotTile { a, b, acc, .. } => {
                for operand in [a, b] {
                    match operand {
                        DotOperand::Tile(value) => $visit(value),
                        DotOperand::Memory(tile) => {
                            let crate::ir::TileRef { index, .. } = tile;
                            each_index!(index);
                        }
                    }
                }
                $visit(acc);
            }
            OpKind::ElementLoad { index, guards, fill, .. } => {
                for value in index {
                    $visit(value);
                }
                each_guard!(guards);
                $visit(fill);
            }
            OpKind::ElementStore { index, guards, value, .. } => {
                for value in index {
                    $visit(value);
                }
                each_guard!(guards);
                $visit(value);
            }
        }
    }};
}

/// How an operation touches a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// It reads elements.
    Read,
    /// It writes elements.
    Write,
}

impl OpKind {
    /// Visits the operands in the order of the IR text; those of nested blocks are not included.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Value)) {
        let mut visit = |value: &Value| visit(*value);
        each_operand!(self, visit);
    }

    /// Visits the operands mutably, in the same order.
    pub fn for_each_operand_mut(&mut self, mut visit: impl FnMut(&mut Value)) {
        each_operand!(self, visit);
    }

    /// Replaces each operand by `map` of it; nested blocks are left alone (see [`Block::map_uses`]).
    pub fn map_operands(&mut self, mut map: impl FnMut(Value) -> Value) {
        self.for_each_operand_mut(|value| *value = map(*value));
    }

    /// The operands in the order of the IR text.
    pub fn operands(&self) -> Vec<Value> {
        let mut operands = Vec::new();
        self.for_each_operand(|value| operands.push(value));
        operands
    }

    /// The nested blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let (first, second) = match self {
            Self::For { body, .. } => (Some(body), None),
            Self::If { then, otherwise, .. } => (Some(then), Some(otherwise)),
            Self::Map(map) => (Some(&map.body), None),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The nested blocks, mutably.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        let (first, second) = match self {
            Self::For { body, .. } => (Some(body), None),
            Self::If { then, otherwise, .. } => (Some(then), Some(otherwise)),
            Self::Map(map) => (Some(&mut map.body), None),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The parameters that this operation itself touches (not those of its nested blocks).
    pub fn accesses(&self) -> Vec<(u32, Access)> {
        match self {
            Self::Load { tensor, .. }
            | Self::ElementLoad { tensor, .. }
            | Self::DecodeRow { tensor, .. } => vec![(*tensor, Access::Read)],
            Self::Store { tensor, .. }
            | Self::ElementStore { tensor, .. }
            | Self::QuantizeStore { tensor, .. } => vec![(*tensor, Access::Write)],
            Self::DotTile { a, b, .. } => [a, b]
                .into_iter()
                .filter_map(|operand| match operand {
                    DotOperand::Memory(tile) => Some((tile.tensor, Access::Read)),
                    DotOperand::Tile(_) => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The parameters that this operation or anything inside it touches.
    pub fn nested_accesses(&self) -> BTreeSet<(u32, Access)> {
        let mut accesses: BTreeSet<_> = self.accesses().into_iter().collect();
        for block in self.blocks() {
            block.walk(&mut |op| accesses.extend(op.kind.accesses()));
        }
        accesses
    }

    /// Whether this operation or anything inside it writes memory; what does not may be dropped when unused.
    pub fn writes(&self) -> bool {
        self.nested_accesses().iter().any(|(_, access)| *access == Access::Write)
    }

    /// Whether this operation or anything inside it reads memory.
    pub fn reads(&self) -> bool {
        self.nested_accesses().iter().any(|(_, access)| *access == Access::Read)
    }
}

impl Block {
    /// Visits every operation, outer before inner.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Op)) {
        for op in &self.ops {
            visit(op);
            for block in op.kind.blocks() {
                block.walk(visit);
            }
        }
    }

    /// Visits every operation mutably, outer before inner.
    pub fn walk_mut(&mut self, visit: &mut dyn FnMut(&mut Op)) {
        for op in &mut self.ops {
            visit(op);
            for block in op.kind.blocks_mut() {
                block.walk_mut(visit);
            }
        }
    }

    /// Visits this block and those inside it, outer before inner.
    pub fn walk_blocks<'a>(&'a self, visit: &mut dyn FnMut(&'a Block)) {
        visit(self);
        for op in &self.ops {
            for block in op.kind.blocks() {
                block.walk_blocks(visit);
            }
        }
    }

    /// Visits this block and those inside it mutably, inner before outer.
    pub fn walk_blocks_mut(&mut self, visit: &mut dyn FnMut(&mut Block)) {
        for op in &mut self.ops {
            for block in op.kind.blocks_mut() {
                block.walk_blocks_mut(visit);
            }
        }
        visit(self);
    }

    /// Visits every use of a value: operands and yields, here and inside.
    pub fn for_each_use(&self, visit: &mut dyn FnMut(Value)) {
        self.walk_blocks(&mut |block| {
            for op in &block.ops {
                op.kind.for_each_operand(&mut *visit);
            }
            for value in &block.yields {
                visit(*value);
            }
        });
    }

    /// Replaces every use of a value, operands and yields, here and inside.
    pub fn map_uses(&mut self, map: &mut dyn FnMut(Value) -> Value) {
        self.walk_blocks_mut(&mut |block| {
            for op in &mut block.ops {
                op.kind.map_operands(&mut *map);
            }
            for value in &mut block.yields {
                *value = map(*value);
            }
        });
    }

    /// Visits every definition: block arguments and results, here and inside.
    pub fn for_each_definition(&self, visit: &mut dyn FnMut(Value)) {
        self.walk_blocks(&mut |block| {
            block.args.iter().for_each(|value| visit(*value));
            block.ops.iter().flat_map(|op| &op.results).for_each(|value| visit(*value));
        });
    }

    /// The values defined here or inside.
    pub fn defined_values(&self) -> BTreeSet<Value> {
        let mut defined = BTreeSet::new();
        self.for_each_definition(&mut |value| {
            defined.insert(value);
        });
        defined
    }

    /// The values used here or inside that come from outside.
    pub fn free_values(&self) -> BTreeSet<Value> {
        let defined = self.defined_values();
        let mut free = BTreeSet::new();
        self.for_each_use(&mut |value| {
            if !defined.contains(&value) {
                free.insert(value);
            }
        });
        free
    }
}

/// How often each value is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses(Vec<u32>);

impl Uses {
    /// Uses of `value`, counting yields.
    pub fn of(&self, value: Value) -> u32 {
        self.0.get(value.0 as usize).copied().unwrap_or(0)
    }
}

/// A replacement of values by others; chains are followed.
#[derive(Clone, Debug, Default)]
pub struct Substitution(HashMap<Value, Value>);

impl Substitution {
    /// Replaces nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on `old` stands for `new`.
    ///
    /// # Panics
    /// When that would make a circle.
    pub fn insert(&mut self, old: Value, new: Value) {
        let new = self.resolve(new);
        assert_ne!(old, new, "%{} would be replaced by itself", old.0);
        self.0.insert(old, new);
    }

    /// What `value` stands for.
    pub fn resolve(&self, mut value: Value) -> Value {
        while let Some(next) = self.0.get(&value) {
            value = *next;
        }
        value
    }

    /// Whether nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rewrites every use in `block` and inside it.
    pub fn apply(&self, block: &mut Block) {
        if !self.is_empty() {
            block.map_uses(&mut |value| self.resolve(value));
        }
    }
}

impl FromIterator<(Value, Value)> for Substitution {
    fn from_iter<I: IntoIterator<Item = (Value, Value)>>(pairs: I) -> Self {
        let mut substitution = Self::new();
        for (old, new) in pairs {
            substitution.insert(old, new);
        }
        substitution
    }
}

impl Kernel {
    /// The type of a value.
    ///
    /// # Panics
    /// When the value does not exist.
    pub fn ty(&self, value: Value) -> &Type {
        &self.info(value).ty
    }

    /// What is known of a value.
    pub fn info(&self, value: Value) -> &ValueInfo {
        &self.values[value.0 as usize]
    }

    /// What is known of a value, to be changed.
    pub fn info_mut(&mut self, value: Value) -> &mut ValueInfo {
        &mut self.values[value.0 as usize]
    }

    /// A value that nothing defines yet.
    pub fn new_value(&mut self, ty: Type, span: Span) -> Value {
        self.values.push(ValueInfo { ty, span, name: None, storage: None, buffer: None });
        Value(self.values.len() as u32 - 1)
    }

    /// A value like `value`: same type, name, span and storage, nothing defines it yet.
    pub fn new_value_like(&mut self, value: Value) -> Value {
        self.values.push(self.info(value).clone());
        Value(self.values.len() as u32 - 1)
    }

    /// How often each value is used in the body.
    pub fn uses(&self) -> Uses {
        let mut counts = vec![0; self.values.len()];
        self.body.for_each_use(&mut |value| {
            if let Some(count) = counts.get_mut(value.0 as usize) {
                *count += 1;
            }
        });
        Uses(counts)
    }

    /// A copy of `block` in which everything defined inside, its arguments too, is a fresh value.
    ///
    /// Uses of outer values go through `substitution`, which afterwards also maps each old definition to its copy.
    pub fn clone_block(&mut self, block: &Block, substitution: &mut Substitution) -> Block {
        let args = block.args.iter().map(|arg| self.clone_definition(*arg, substitution)).collect();
        let (ops, yields) = self.clone_contents(block, substitution);
        Block { args, ops, yields }
    }

    /// The operations and yields of `block` as copies with fresh values, with `args` in place of its arguments.
    ///
    /// # Panics
    /// When the number of arguments differs.
    pub fn inline_block(
        &mut self,
        block: &Block,
        args: &[Value],
        substitution: &mut Substitution,
    ) -> (Vec<Op>, Vec<Value>) {
        assert_eq!(block.args.len(), args.len(), "arguments of an inlined block");
        for (arg, value) in block.args.iter().zip(args) {
            substitution.insert(*arg, *value);
        }
        self.clone_contents(block, substitution)
    }

    fn clone_contents(
        &mut self,
        block: &Block,
        substitution: &mut Substitution,
    ) -> (Vec<Op>, Vec<Value>) {
        let ops = block.ops.iter().map(|op| self.clone_op(op, substitution)).collect();
        let yields = block.yields.iter().map(|value| substitution.resolve(*value)).collect();
        (ops, yields)
    }

    /// A copy of `op` with fresh results; see [`Kernel::clone_block`].
    pub fn clone_op(&mut self, op: &Op, substitution: &mut Substitution) -> Op {
        let mut kind = op.kind.clone();
        kind.map_operands(|value| substitution.resolve(value));
        for block in kind.blocks_mut() {
            *block = self.clone_block(block, substitution);
        }
        let results =
            op.results.iter().map(|value| self.clone_definition(*value, substitution)).collect();
        Op { kind, results, span: op.span }
    }

    fn clone_definition(&mut self, value: Value, substitution: &mut Substitution) -> Value {
        let fresh = self.new_value_like(value);
        substitution.insert(value, fresh);
        fresh
    }

    /// Renumbers the values in order of definition and forgets those that nothing defines.
    ///
    /// # Panics
    /// When an undefined value is used.
    pub fn compact(&mut self) {
        let mut order = HashMap::new();
        let mut values = Vec::new();
        collect_in_text_order(&self.body, &mut |value| {
            order.entry(value).or_insert_with(|| {
                values.push(self.values[value.0 as usize].clone());
                Value(values.len() as u32 - 1)
            });
        });
        self.values = values;
        self.body.map_uses(&mut |value| order[&value]);
        self.body.walk_blocks_mut(&mut |block| {
            let results = block.ops.iter_mut().flat_map(|op| &mut op.results);
            for value in block.args.iter_mut().chain(results) {
                *value = order[value];
            }
        });
    }
}

fn collect_in_text_order(block: &Block, visit: &mut dyn FnMut(Value)) {
    block.args.iter().for_each(|value| visit(*value));
    for op in &block.ops {
        op.results.iter().for_each(|value| visit(*value));
        for inner in op.kind.blocks() {
            collect_in_text_order(inner, visit);
        }
    }
}

impl ParamKind {
    /// Whether the kernel may store to it.
    pub const fn is_mutable(&self) -> bool {
        match self {
            Self::Tensor { mutable, .. } | Self::Activations { mutable, .. } => *mutable,
            Self::Quantized { .. } | Self::Scalar(_) => false,
        }
    }
}
