//! Variables in scope and what they stand for.

use std::collections::HashMap;

use iron_core::ir::Value;

/// What a name or an expression stands for while a kernel is checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// A scalar or tile.
    Value(Value),
    /// Positions `start + i * stride` along an axis, with the first position that does not exist.
    Range(RangeItem),
    /// An integer known at compile time; takes the type of what it meets.
    Int(i64),
    /// A float literal.
    Float(f64),
    /// A truth value known at compile time.
    Bool(bool),
    /// Several items.
    Tuple(Vec<Item>),
    /// Nothing: the value of a statement.
    Unit,
}

/// A strided run of positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RangeItem {
    pub(super) start: Value,
    /// A compile-time number that every position is below, when there is one.
    pub(super) known_end: Option<i64>,
    pub(super) len: u32,
    pub(super) stride: u32,
    /// The first position that does not exist, beside the extent of the axis.
    pub(super) bound: Option<Value>,
}

#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) item: Item,
    pub(super) mutable: bool,
}

/// Lexical scopes, innermost last. A helper's body sees only its own ([`Scopes::enter_function`]).
#[derive(Default)]
pub(super) struct Scopes {
    frames: Vec<HashMap<String, Variable>>,
    /// Frames below this index are invisible.
    floors: Vec<usize>,
}

impl Scopes {
    pub(super) fn enter(&mut self) {
        if self.frames.is_empty() {
            self.frames.push(HashMap::new());
        }
        self.frames.push(HashMap::new());
    }

    pub(super) fn leave(&mut self) {
        self.frames.pop();
    }

    pub(super) fn enter_function(&mut self) {
        self.enter();
        self.floors.push(self.frames.len() - 1);
    }

    pub(super) fn leave_function(&mut self) {
        self.floors.pop();
        self.leave();
    }

    pub(super) fn declare(&mut self, name: impl Into<String>, item: Item, mutable: bool) {
        if self.frames.is_empty() {
            self.frames.push(HashMap::new());
        }
        let frame = self.frames.last_mut().expect("a frame was just ensured");
        frame.insert(name.into(), Variable { item, mutable });
    }

    pub(super) fn get(&self, name: &str) -> Option<&Variable> {
        let floor = self.floors.last().copied().unwrap_or(0);
        self.frames[floor.min(self.frames.len())..].iter().rev().find_map(|frame| frame.get(name))
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Variable> {
        let floor = self.floors.last().copied().unwrap_or(0).min(self.frames.len());
        self.frames[floor..].iter_mut().rev().find_map(|frame| frame.get_mut(name))
    }

    /// Names visible here, for "did you mean" messages.
    pub(super) fn names(&self) -> Vec<&str> {
        let floor = self.floors.last().copied().unwrap_or(0).min(self.frames.len());
        let mut names: Vec<&str> = self.frames[floor..]
            .iter()
            .flat_map(|frame| frame.keys().map(String::as_str))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
