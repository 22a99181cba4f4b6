//! The verifier: what every pass may rely on.
//!
//! It runs after each pass in debug builds and tests. Each message names the operation, the value, what was found and
//! what was expected, and points at the source line that the operation came from.

use std::collections::HashSet;

use crate::infer::{result_types, type_exists};
use crate::ir::{Block, DimExpr, Kernel, Op, OpKind, ParamKind, Type, Value};
use crate::{Diagnostic, Span};

/// Checks that `kernel` is well formed; on failure every fault is reported, in the order of the text.
pub fn verify(kernel: &Kernel) -> Result<(), Vec<Diagnostic>> {
    let mut verifier = Verifier {
        kernel,
        defined: vec![false; kernel.values.len()],
        visible: vec![false; kernel.values.len()],
        faults: Vec::new(),
    };
    verifier.signature();
    verifier.types();
    if !kernel.body.args.is_empty() || !kernel.body.yields.is_empty() {
        verifier.fault(Span::NONE, "the kernel body has arguments or yields, expected none");
    }
    verifier.block(&kernel.body, false);
    if verifier.faults.is_empty() { Ok(()) } else { Err(verifier.faults) }
}

struct Verifier<'a> {
    kernel: &'a Kernel,
    /// Values whose definition has been seen.
    defined: Vec<bool>,
    /// Values that may be used here.
    visible: Vec<bool>,
    faults: Vec<Diagnostic>,
}

impl Verifier<'_> {
    fn fault(&mut self, span: Span, message: impl Into<String>) {
        let mut diagnostic = Diagnostic::new(span, message);
        diagnostic.kernel.clone_from(&self.kernel.name);
        self.faults.push(diagnostic);
    }

    fn signature(&mut self) {
        let kernel = self.kernel;
        let axes = kernel.grid.len();
        if !(1..=3).contains(&axes) {
            self.fault(Span::NONE, format!("the grid has {axes} axes, expected 1 to 3"));
        }
        for expr in &kernel.grid {
            self.dim_expr(expr, "the grid", Span::NONE);
        }
        let mut names = HashSet::new();
        for dim in &kernel.dims {
            if !is_identifier(dim) || !names.insert(dim) {
                self.fault(
                    Span::NONE,
                    format!("dimension `{dim}`, expected a name that occurs once"),
                );
            }
        }
        names.clear();
        for param in &kernel.params {
            if !is_identifier(&param.name) || !names.insert(&param.name) {
                let message =
                    format!("parameter `{}`, expected a name that occurs once", param.name);
                self.fault(param.span, message);
            }
            let rank = param.kind.shape().len();
            let matrix =
                matches!(param.kind, ParamKind::Quantized { .. } | ParamKind::Activations { .. });
            let tensor = matches!(param.kind, ParamKind::Tensor { .. });
            if matrix && rank < 2 || tensor && rank < 1 {
                let least = if matrix { 2 } else { 1 };
                let message = format!(
                    "parameter `{}` has {rank} axes, expected at least {least}",
                    param.name
                );
                self.fault(param.span, message);
            }
            for expr in param.kind.shape() {
                self.dim_expr(expr, &format!("parameter `{}`", param.name), param.span);
            }
        }
    }

    fn dim_expr(&mut self, expr: &DimExpr, place: &str, span: Span) {
        match expr {
            DimExpr::Const(_) => {}
            DimExpr::Dim(dim) => {
                let dims = self.kernel.dims.len();
                if *dim as usize >= dims {
                    self.fault(
                        span,
                        format!("{place} names dimension {dim} of a kernel that has {dims}"),
                    );
                }
            }
            DimExpr::Op(_, a, b) => {
                self.dim_expr(a, place, span);
                self.dim_expr(b, place, span);
            }
        }
    }

    fn types(&mut self) {
        for (number, info) in self.kernel.values.iter().enumerate() {
            let text = self.kernel.value_text(Value(number as u32));
            if let Err(message) = type_exists(&info.ty) {
                self.fault(info.span, format!("{text}: {message}"));
            }
            if info.name.as_deref().is_some_and(|name| !is_identifier(name)) {
                self.fault(info.span, format!("{text}: its name is not an identifier"));
            }
        }
    }

    fn block(&mut self, block: &Block, in_map: bool) {
        let mut entered = Vec::new();
        for arg in &block.args {
            self.define(*arg, "block argument", Span::NONE, &mut entered);
        }
        for op in &block.ops {
            self.op(op, in_map);
            for result in &op.results {
                self.define(*result, &format!("`{}`", op.kind.name()), op.span, &mut entered);
            }
        }
        for value in &block.yields {
            self.usable(*value, "yield", Span::NONE);
        }
        for value in entered {
            self.visible[value.0 as usize] = false;
        }
    }

    fn define(&mut self, value: Value, place: &str, span: Span, entered: &mut Vec<Value>) {
        let text = self.kernel.value_text(value);
        let reason = match self.defined.get_mut(value.0 as usize) {
            None => "not in the value table",
            Some(true) => "defined already",
            Some(defined) => {
                *defined = true;
                self.visible[value.0 as usize] = true;
                entered.push(value);
                return;
            }
        };
        self.fault(span, format!("{place} defines {text}, which is {reason}"));
    }

    fn usable(&mut self, value: Value, place: &str, span: Span) -> bool {
        let number = value.0 as usize;
        if self.visible.get(number) == Some(&true) {
            return true;
        }
        let text = self.kernel.value_text(value);
        let reason = if self.defined.get(number) == Some(&true) {
            "is out of scope here"
        } else {
            "is not defined before this"
        };
        self.fault(span, format!("{place} uses {text}, which {reason}"));
        false
    }

    fn op(&mut self, op: &Op, in_map: bool) {
        let place = format!("`{}`", op.kind.name());
        let mut complete = true;
        op.kind.for_each_operand(|value| complete &= self.usable(value, &place, op.span));
        let inner_map = in_map || matches!(op.kind, OpKind::Map(_));
        for block in op.kind.blocks() {
            let before = self.faults.len();
            self.block(block, inner_map);
            complete &= self.faults.len() == before;
        }
        self.placement(op, in_map);
        if complete {
            self.result_types(op, &place);
        }
    }

    /// What may stand inside a map and what only there.
    fn placement(&mut self, op: &Op, in_map: bool) {
        let name = op.kind.name();
        match op.kind {
            OpKind::ElementLoad { .. } | OpKind::ElementStore { .. } if !in_map => {
                self.fault(op.span, format!("`{name}` outside a map, expected it inside one"));
            }
            OpKind::Broadcast { .. }
            | OpKind::Reshape(_)
            | OpKind::Transpose(_)
            | OpKind::Iota { .. }
            | OpKind::Reduce { .. }
            | OpKind::Dot { .. }
            | OpKind::Load { .. }
            | OpKind::Store { .. }
            | OpKind::Map(_)
            | OpKind::DotTile { .. }
            | OpKind::QuantizeStore { .. }
            | OpKind::DecodeRow { .. }
                if in_map =>
            {
                self.fault(
                    op.span,
                    format!("`{name}` inside a map, expected scalar operations only"),
                );
            }
            _ => {}
        }
        if !in_map {
            return;
        }
        op.kind.for_each_operand(|value| {
            if self.kernel.values.get(value.0 as usize).is_some_and(|info| !info.ty.is_scalar()) {
                let message = format!(
                    "`{name}` inside a map uses the tile {}, expected a scalar",
                    self.kernel.value_text(value)
                );
                self.fault(op.span, message);
            }
        });
    }

    fn result_types(&mut self, op: &Op, place: &str) {
        let kernel = self.kernel;
        let ty = |value: &Value| kernel.values.get(value.0 as usize).map(|info| &info.ty);
        let requested = op.results.first().and_then(ty);
        let expected = match result_types(kernel, &op.kind, requested) {
            Ok(expected) => expected,
            Err(message) => return self.fault(op.span, format!("{place}: {message}")),
        };
        if expected.len() != op.results.len() {
            let found = op.results.len();
            let message = format!("{place} has {found} results, expected {}", expected.len());
            return self.fault(op.span, message);
        }
        for (result, expected) in op.results.iter().zip(&expected) {
            self.result(*result, expected, place, op.span);
        }
    }

    fn result(&mut self, value: Value, expected: &Type, place: &str, span: Span) {
        let Some(info) = self.kernel.values.get(value.0 as usize) else { return };
        if info.ty != *expected {
            let text = self.kernel.value_text(value);
            let message = format!("{place}: result {text} is {}, expected {expected}", info.ty);
            self.fault(span, message);
        }
    }
}

/// Whether `name` can stand in IR text.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|rest| rest.is_ascii_alphanumeric() || rest == '_')
}
