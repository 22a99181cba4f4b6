//! Statements: bindings, assignments, loops and branches, with mutable variables turned into carried values.

use std::collections::BTreeSet;

use iron_core::ir::{Block, Op, OpKind, Type, Value};
use iron_core::syntax::{self, BinaryOp, Expr, ExprKind, Stmt, StmtKind};
use iron_core::{DType, Diagnostic, Span};

use super::scope::{Item, RangeItem};
use super::{Checker, Result};

impl Checker<'_> {
    /// Checks the statements of `block` in the current scope and returns the value of its tail.
    pub(super) fn block_statements(&mut self, block: &syntax::Block) -> Result<Item> {
        for stmt in block.stmts {
            self.statement(stmt)?;
        }
        match block.tail {
            Some(tail) => self.expr(tail),
            None => Ok(Item::Unit),
        }
    }

    /// Checks `block` in a scope of its own.
    pub(super) fn block(&mut self, block: &syntax::Block) -> Result<Item> {
        self.scopes.enter();
        let item = self.block_statements(block);
        self.scopes.leave();
        item
    }

    fn statement(&mut self, stmt: &Stmt) -> Result<()> {
        match &stmt.kind {
            StmtKind::Let { names, tuple, mutable, value } => {
                let item = self.expr(value)?;
                if item == Item::Unit {
                    return Err(Diagnostic::new(value.span, "this has no value")
                        .help("bind a scalar, a tile or a range"));
                }
                if !tuple {
                    self.name_value(&item, names[0]);
                    self.scopes.declare(names[0], item, *mutable);
                    return Ok(());
                }
                match item {
                    Item::Tuple(items) if items.len() == names.len() => {
                        for (name, item) in names.iter().zip(items) {
                            self.name_value(&item, name);
                            self.scopes.declare(*name, item, *mutable);
                        }
                        Ok(())
                    }
                    other => Err(Diagnostic::new(
                        stmt.span,
                        format!(
                            "the pattern has {} names, the value is {}",
                            names.len(),
                            self.describe(&other)
                        ),
                    )
                    .help("write as many names as the tuple has entries")),
                }
            }
            StmtKind::Assign { name, op, value } => self.assign(stmt.span, name, *op, value),
            StmtKind::For { name, iterator, body } => {
                self.for_loop(stmt.span, name, iterator, body)
            }
            StmtKind::Expr(expr) => match &expr.kind {
                ExprKind::If { condition, then, otherwise } => {
                    self.branch(expr.span, condition, then, otherwise.as_ref())?;
                    Ok(())
                }
                _ => {
                    let item = self.expr(expr)?;
                    if item != Item::Unit {
                        return Err(Diagnostic::new(
                            expr.span,
                            "the value of this expression is not used",
                        )
                        .help("bind it with `let`, or store it"));
                    }
                    Ok(())
                }
            },
        }
    }

    fn name_value(&mut self, item: &Item, name: &str) {
        if let Item::Value(value) = item {
            let slot = &mut self.kernel.values[value.0 as usize].name;
            if slot.is_none() {
                *slot = Some(name.to_owned());
            }
        }
    }

    fn assign(
        &mut self,
        span: Span,
        name: &'static str,
        op: Option<BinaryOp>,
        value: &Expr,
    ) -> Result<()> {
        let Some(variable) = self.scopes.get(name).cloned() else {
            return Err(self.unknown_name(name, span));
        };
        if !variable.mutable {
            return Err(Diagnostic::new(span, format!("`{name}` is not mutable"))
                .help(format!("declare it with `let mut {name} = ..`")));
        }
        let new = self.expr(value)?;
        let new = match op {
            Some(op) => self.binary(op, &variable.item, &new, span)?,
            None => new,
        };
        let new = match (&variable.item, new) {
            (Item::Value(old), new) => {
                let old_ty = self.ty(*old).clone();
                let dtype = old_ty.dtype();
                let value = match dtype {
                    Some(dtype) => self.coerce(&new, dtype, span)?,
                    None => self.value_of(&new, span)?,
                };
                let ty = self.ty(value).clone();
                if ty != old_ty {
                    return Err(Diagnostic::new(
                        span,
                        format!(
                            "`{name}` is {}, this value is {}",
                            describe_type(&old_ty),
                            describe_type(&ty)
                        ),
                    )
                    .help("a variable keeps its type and shape; declare a new one with `let`"));
                }
                Item::Value(value)
            }
            (_, new) => new,
        };
        self.name_value(&new, name);
        self.scopes.get_mut(name).expect("looked up above").item = new;
        Ok(())
    }

    /// Variables of the enclosing scopes that `blocks` assign to, in a fixed order, as values.
    fn carried(&mut self, blocks: &[&syntax::Block], span: Span) -> Result<Vec<(String, Value)>> {
        let mut names = BTreeSet::new();
        for block in blocks {
            assigned(block, &mut Vec::new(), &mut names);
        }
        let mut carried = Vec::new();
        for name in names {
            let Some(variable) = self.scopes.get(&name).cloned() else { continue };
            let value = self.value_of(&variable.item, span).map_err(|_| {
                Diagnostic::new(
                    span,
                    format!(
                        "`{name}` changes in this block but is {}",
                        self.describe(&variable.item)
                    ),
                )
                .help("only scalars and tiles can change in a loop or branch")
            })?;
            carried.push((name, value));
        }
        Ok(carried)
    }

    fn set_variables(&mut self, carried: &[(String, Value)], values: &[Value]) {
        for ((name, _), value) in carried.iter().zip(values) {
            if let Some(variable) = self.scopes.get_mut(name) {
                variable.item = Item::Value(*value);
            }
        }
    }

    fn current_values(&mut self, carried: &[(String, Value)], span: Span) -> Result<Vec<Value>> {
        carried
            .iter()
            .map(|(name, first)| {
                let item = self
                    .scopes
                    .get(name)
                    .map_or(Item::Value(*first), |variable| variable.item.clone());
                self.value_of(&item, span)
            })
            .collect()
    }

    fn fresh_like(&mut self, carried: &[(String, Value)], span: Span) -> Vec<Value> {
        carried
            .iter()
            .map(|(name, value)| {
                let ty = self.ty(*value).clone();
                let fresh = self.new_value(ty, span);
                self.kernel.values[fresh.0 as usize].name = Some(name.clone());
                fresh
            })
            .collect()
    }

    fn for_loop(
        &mut self,
        span: Span,
        name: &'static str,
        iterator: &Expr,
        body: &syntax::Block,
    ) -> Result<()> {
        let (lower, upper, step, known_end) = self.iterator(iterator)?;
        let tile_len = step.tile;
        let carried = self.carried(&[body], span)?;
        let counter = self.new_value(Type::Scalar(DType::I32), span);
        self.kernel.values[counter.0 as usize].name = Some(name.to_owned());
        let args = self.fresh_like(&carried, span);
        self.stack.push(Vec::new());
        self.scopes.enter();
        self.set_variables(&carried, &args);
        let item = match tile_len {
            Some(len) => {
                let bound = known_end.is_none().then_some(upper);
                Item::Range(RangeItem { start: counter, known_end, len, stride: 1, bound })
            }
            None => Item::Value(counter),
        };
        self.scopes.declare(name, item, false);
        let tail = self.block_statements(body)?;
        if tail != Item::Unit {
            return Err(Diagnostic::new(span, "a loop body has no value")
                .help("end its last line with `;`"));
        }
        let yields = self.current_values(&carried, span)?;
        self.scopes.leave();
        let ops = self.stack.pop().expect("pushed above");
        let results = self.fresh_like(&carried, span);
        let mut block_args = vec![counter];
        block_args.extend(args);
        self.set_variables(&carried, &results);
        self.push(Op {
            kind: OpKind::For {
                lower,
                upper,
                step: step.step,
                carried: carried.iter().map(|(_, value)| *value).collect(),
                body: Block { args: block_args, ops, yields },
            },
            results,
            span,
        });
        Ok(())
    }

    fn iterator(&mut self, iterator: &Expr) -> Result<(Value, Value, Step, Option<i64>)> {
        let help = "iterate over `tiles(n, BLOCK)`, `tiles(first, end, BLOCK)` or `a..b`";
        match &iterator.kind {
            ExprKind::Range(lower, upper) => {
                let (lower, upper) = (self.expr(lower)?, self.expr(upper)?);
                let lower = self.coerce(&lower, DType::I32, iterator.span)?;
                let upper = self.coerce(&upper, DType::I32, iterator.span)?;
                Ok((lower, upper, Step { step: 1, tile: None }, None))
            }
            ExprKind::Call { function: "range", args: [lower, upper], .. } => {
                let (lower, upper) = (self.expr(lower)?, self.expr(upper)?);
                let lower = self.coerce(&lower, DType::I32, iterator.span)?;
                let upper = self.coerce(&upper, DType::I32, iterator.span)?;
                Ok((lower, upper, Step { step: 1, tile: None }, None))
            }
            ExprKind::Call { function: "tiles", args, .. } if matches!(args.len(), 2 | 3) => {
                let len = self.const_u32(&args[args.len() - 1], "a tile's length")?;
                let first = if args.len() == 3 { self.expr(&args[0])? } else { Item::Int(0) };
                let end = self.expr(&args[args.len() - 2])?;
                let known_end = match (&first, &end) {
                    (Item::Int(0), Item::Int(end)) if end % i64::from(len) == 0 => Some(*end),
                    _ => None,
                };
                let lower = self.coerce(&first, DType::I32, iterator.span)?;
                let upper = self.coerce(&end, DType::I32, iterator.span)?;
                Ok((lower, upper, Step { step: len, tile: Some(len) }, known_end))
            }
            _ => Err(Diagnostic::new(iterator.span, "this cannot be iterated").help(help)),
        }
    }

    /// `if` as a statement or an expression.
    pub(super) fn branch(
        &mut self,
        span: Span,
        condition: &Expr,
        then: &syntax::Block,
        otherwise: Option<&syntax::Block>,
    ) -> Result<Item> {
        let condition_item = self.expr(condition)?;
        if let Item::Bool(known) = condition_item {
            return match (known, otherwise) {
                (true, _) => self.block(then),
                (false, Some(otherwise)) => self.block(otherwise),
                (false, None) => Ok(Item::Unit),
            };
        }
        let condition_value = self.value_of(&condition_item, condition.span)?;
        if *self.ty(condition_value) != Type::Scalar(DType::Bool) {
            return Err(Diagnostic::new(
                condition.span,
                format!(
                    "a condition is one truth value, this is {}",
                    describe_type(self.ty(condition_value))
                ),
            )
            .help("use `select(condition, a, b)` for tiles, or reduce with `any(..)`"));
        }
        let mut blocks = vec![then];
        blocks.extend(otherwise);
        let carried = self.carried(&blocks, span)?;
        let entry: Vec<Value> = carried.iter().map(|(_, value)| *value).collect();

        let (then_block, then_tail) = self.branch_block(then, &carried, &entry, span)?;
        let empty = syntax::Block { stmts: &[], tail: None };
        let (otherwise_block, otherwise_tail) =
            self.branch_block(otherwise.unwrap_or(&empty), &carried, &entry, span)?;
        let (mut then_block, mut otherwise_block) = (then_block, otherwise_block);
        let tail = match (then_tail, otherwise_tail) {
            (Item::Unit, Item::Unit) => None,
            (Item::Value(a), Item::Value(b)) if self.ty(a) == self.ty(b) => {
                then_block.yields.push(a);
                otherwise_block.yields.push(b);
                let ty = self.ty(a).clone();
                Some(self.new_value(ty, span))
            }
            (a, b) => {
                return Err(Diagnostic::new(
                    span,
                    format!("the branches differ: {} and {}", self.describe(&a), self.describe(&b)),
                )
                .help(if otherwise.is_none() {
                    "an `if` with a value needs an `else` with a value of the same type and shape"
                } else {
                    "give both branches a value of one type and shape: `full::<f32>((BLOCK,), 0.0)` for a tile of zeros"
                }));
            }
        };
        let mut results = self.fresh_like(&carried, span);
        self.set_variables(&carried, &results);
        results.extend(tail);
        self.push(Op {
            kind: OpKind::If {
                condition: condition_value,
                then: then_block,
                otherwise: otherwise_block,
            },
            results,
            span,
        });
        Ok(tail.map_or(Item::Unit, Item::Value))
    }

    fn branch_block(
        &mut self,
        block: &syntax::Block,
        carried: &[(String, Value)],
        entry: &[Value],
        span: Span,
    ) -> Result<(Block, Item)> {
        self.set_variables(carried, entry);
        self.stack.push(Vec::new());
        self.scopes.enter();
        let mut tail = self.block_statements(block)?;
        if matches!(tail, Item::Int(_) | Item::Float(_) | Item::Bool(_)) {
            tail = Item::Value(self.value_of(&tail, span)?);
        }
        self.scopes.leave();
        let yields = self.current_values(carried, span)?;
        let ops = self.stack.pop().expect("pushed above");
        Ok((Block { args: Vec::new(), ops, yields }, tail))
    }
}

struct Step {
    step: u32,
    tile: Option<u32>,
}

/// Collects the names that `block` assigns without declaring them.
fn assigned(block: &syntax::Block, declared: &mut Vec<&'static str>, names: &mut BTreeSet<String>) {
    let depth = declared.len();
    for stmt in block.stmts {
        match &stmt.kind {
            StmtKind::Let { names: bound, value, .. } => {
                assigned_in_expr(value, declared, names);
                declared.extend_from_slice(bound);
            }
            StmtKind::Assign { name, .. } => {
                if !declared.contains(name) {
                    names.insert((*name).to_owned());
                }
            }
            StmtKind::For { name, body, .. } => {
                declared.push(name);
                assigned(body, declared, names);
                declared.pop();
            }
            StmtKind::Expr(expr) => assigned_in_expr(expr, declared, names),
        }
    }
    if let Some(tail) = block.tail {
        assigned_in_expr(tail, declared, names);
    }
    declared.truncate(depth);
}

fn assigned_in_expr(expr: &Expr, declared: &mut Vec<&'static str>, names: &mut BTreeSet<String>) {
    match &expr.kind {
        ExprKind::If { then, otherwise, .. } => {
            assigned(then, declared, names);
            if let Some(otherwise) = otherwise {
                assigned(otherwise, declared, names);
            }
        }
        ExprKind::Block(block) => assigned(block, declared, names),
        _ => {}
    }
}

/// A type in words.
pub(super) fn describe_type(ty: &Type) -> String {
    use iron_core::ir::Element;
    match ty {
        Type::Scalar(dtype) => format!("a scalar {dtype}"),
        Type::Tile { element, shape } => {
            let shape = shape.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            match element {
                Element::Plain(dtype) => format!("a tile of {dtype} [{shape}]"),
                Element::Packed(format) => format!("a tile of {format} weights [{shape}]"),
                Element::Int8 => format!("a tile of int8 activations [{shape}]"),
            }
        }
    }
}
