//! Identifiers: readable, unique, and no keyword of either language.

use std::collections::BTreeSet;

use iron_core::ir::Kernel;

use super::super::abi::Slot;

/// Words that a source variable may be called but C++, Metal, CUDA or our own prologue use.
const RESERVED: [&str; 72] = [
    "alignas",
    "and",
    "args",
    "asm",
    "auto",
    "bfloat",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "constant",
    "constexpr",
    "continue",
    "default",
    "delete",
    "device",
    "do",
    "double",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "half",
    "if",
    "inline",
    "int",
    "iron",
    "iron_shared",
    "kernel",
    "long",
    "metal",
    "mutable",
    "namespace",
    "new",
    "not",
    "operator",
    "or",
    "private",
    "program",
    "protected",
    "public",
    "register",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "thread",
    "thread_index",
    "threadgroup",
    "throw",
    "tid",
    "true",
    "try",
    "typedef",
    "union",
    "unsigned",
    "void",
    "xor",
];

pub(super) struct Names {
    taken: BTreeSet<String>,
    params: Vec<String>,
    dims: Vec<String>,
    /// Names made in each open scope, innermost last; they are free again when it closes.
    scopes: Vec<Vec<String>>,
}

impl Names {
    pub(super) fn new(kernel: &Kernel) -> Self {
        let taken = RESERVED.iter().map(|word| (*word).to_owned()).collect();
        let mut names = Self { taken, params: Vec::new(), dims: Vec::new(), scopes: Vec::new() };
        names.taken.insert(kernel.name.clone());
        for param in &kernel.params {
            let name = names.fresh(&param.name);
            for axis in 0..param.kind.shape().len() {
                names.taken.insert(format!("{name}_stride{axis}"));
            }
            names.params.push(name);
        }
        for dim in &kernel.dims {
            let name = names.fresh(dim);
            names.taken.insert(format!("dim_{name}"));
            names.dims.push(name);
        }
        names
    }

    /// A new name like `base`.
    pub(super) fn fresh(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut number = 1;
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{number}");
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(name.clone());
        }
        name
    }

    /// From here on names are local.
    pub(super) fn enter(&mut self) {
        self.scopes.push(Vec::new());
    }

    /// Ends the scope that was entered last.
    pub(super) fn leave(&mut self) {
        for name in self.scopes.pop().unwrap_or_default() {
            self.taken.remove(&name);
        }
    }

    pub(super) fn param(&self, param: u32) -> &str {
        &self.params[param as usize]
    }

    pub(super) fn stride(&self, param: u32, axis: u32) -> String {
        format!("{}_stride{axis}", self.param(param))
    }

    pub(super) fn dim(&self, dim: u32) -> &str {
        &self.dims[dim as usize]
    }

    /// The name of an argument.
    pub(super) fn slot(&self, slot: Slot) -> String {
        match slot {
            Slot::Pointer { param } | Slot::Scalar { param } => self.param(param).to_owned(),
            Slot::Stride { param, axis } => self.stride(param, axis),
            Slot::Dim { dim } => format!("dim_{}", self.dim(dim)),
        }
    }
}
