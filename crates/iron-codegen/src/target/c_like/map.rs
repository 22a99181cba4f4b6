//! Maps: a loop over the points that a thread owns, then the reductions.

use iron_core::ir::{Index, Map, MapOutput, OpKind, ReduceOp, Storage, Value};
use iron_core::{DType, Span};

use super::{Pointee, Printer, Result, TileName, format_name, pointee, type_name};
use crate::passes::schedule::gpu::{Domain, domain, reduction_scratch};

/// The type of an accumulator.
pub(super) fn fragment(shape: &[u32], threads: u32) -> String {
    format!("iron::Fragment<{}, {}, {threads}>", shape[0], shape[1])
}

fn fold(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "iron::Sum",
        ReduceOp::Max => "iron::Max",
        ReduceOp::Min => "iron::Min",
        ReduceOp::Any => "iron::Any",
    }
}

/// Row-major position of a point whose coordinates are `names`, in a tile whose axes are `axes` of the space.
fn linear(shape: &[u32], axes: &[u32], names: &[String]) -> String {
    let mut text = String::new();
    for (extent, axis) in shape.iter().zip(axes) {
        if *extent == 1 {
            continue;
        }
        let name = &names[*axis as usize];
        text = if text.is_empty() { name.clone() } else { format!("({text}) * {extent} + {name}") };
    }
    if text.is_empty() { "0".to_owned() } else { text }
}

impl<'k> Printer<'k> {
    /// The element of a register tile that the loop stands at.
    fn slot_of(tile: &TileName, at: &str) -> String {
        let fragment = tile.storage == Storage::Fragment && tile.ty.dtype() == Some(DType::F32);
        if fragment { format!("{}.v[{at}]", tile.name) } else { format!("{}[{at}]", tile.name) }
    }

    pub(super) fn map(&mut self, map: &'k Map, results: &[Value], span: Span) -> Result<()> {
        let rank = map.space.len();
        let threads = self.threads();
        let points: u32 = map.space.iter().product();
        let here = domain(self.kernel, map, results);
        let (offsets, _) = reduction_scratch(self.kernel, map, results);

        // Accumulators of scalar reductions, and where tiles to be reduced are laid out.
        let mut partials: Vec<Option<String>> = Vec::new();
        for ((output, result), offset) in map.outputs.iter().zip(results).zip(&offsets) {
            let MapOutput::Reduce { op, .. } = output else {
                partials.push(None);
                continue;
            };
            let ty = type_name(self.kernel.ty(*result).dtype().unwrap_or(DType::F32));
            if self.kernel.ty(*result).is_scalar() {
                let name = self.names.fresh("partial");
                self.line(format!("{ty} {name} = {}::identity<{ty}>();", fold(*op)));
                partials.push(Some(name));
            } else {
                let name = self.names.fresh("folded");
                let pointer = self.scratch(ty, *offset);
                let shared = self.dialect.shared();
                self.line(format!("{shared}{ty}* const {name} = {pointer};"));
                partials.push(Some(name));
            }
        }

        // The loop and its guard.
        self.names.enter();
        let in_registers = |value: Value| self.kernel.info(value).storage != Some(Storage::Shared);
        let unrolled = map.inputs.iter().any(|input| in_registers(input.value))
            || results.iter().any(|r| !self.kernel.ty(*r).is_scalar() && in_registers(*r));
        if unrolled {
            self.line("IRON_UNROLL");
        }
        let used: Vec<bool> =
            map.body.args[..rank].iter().map(|arg| self.uses.of(*arg) > 0).collect();
        let names: Vec<String> = map.body.args[..rank]
            .iter()
            .zip(["i", "j", "l", "o"].iter().cycle())
            .map(|(arg, letter)| {
                self.names.fresh(self.kernel.info(*arg).name.as_deref().unwrap_or(letter))
            })
            .collect();
        let needs_names = map.inputs.iter().any(|input| !in_registers(input.value))
            || map.outputs.iter().zip(results).any(|(output, r)| {
                matches!(output, MapOutput::Element) && !in_registers(*r)
                    || matches!(output, MapOutput::Reduce { .. }) && !self.kernel.ty(*r).is_scalar()
            });
        let at = match &here {
            Domain::Blocked(_) => self.names.fresh("slot"),
            Domain::Fragment(_) => self.names.fresh("f"),
        };
        let mut linear_point = None;
        let guarded = match &here {
            Domain::Blocked(space) => {
                let slots = points.div_ceil(threads);
                self.open(format!("for (int {at} = 0; {at} < {slots}; ++{at}) {{"));
                let guarded = !points.is_multiple_of(threads);
                if guarded || needs_names || used.iter().any(|used| *used) {
                    let point =
                        if rank == 1 { names[0].clone() } else { self.names.fresh("point") };
                    self.line(format!("const int {point} = {at} * {threads} + tid;"));
                    if guarded {
                        self.open(format!("if ({point} < {points}) {{"));
                    }
                    let mut inner = points;
                    for (axis, extent) in space.iter().enumerate().filter(|_| rank > 1) {
                        let outer = inner;
                        inner /= extent;
                        if !used[axis] && !needs_names {
                            continue;
                        }
                        let mut text = point.clone();
                        if inner > 1 {
                            text = format!("{text} / {inner}");
                        }
                        if axis > 0 && *extent > 1 && outer != points {
                            text = format!("{text} % {extent}");
                        }
                        if *extent == 1 {
                            "0".clone_into(&mut text);
                        }
                        if used[axis] || *extent > 1 {
                            self.line(format!("const int {} = {text};", names[axis]));
                        }
                    }
                    linear_point = Some(point);
                }
                guarded
            }
            Domain::Fragment(space) => {
                let ty = fragment(space, threads);
                self.open(format!("for (int {at} = 0; {at} < {ty}::COUNT; ++{at}) {{"));
                let [m, n] = space[..] else {
                    return self.fail(span, "an accumulator has two axes");
                };
                self.line(format!("const int {} = {ty}::row({at}, tid);", names[0]));
                self.line(format!("const int {} = {ty}::col({at}, tid);", names[1]));
                self.open(format!(
                    "if ({ty}::EXACT || ({} < {m} && {} < {n})) {{",
                    names[0], names[1]
                ));
                true
            }
        };
        for (arg, name) in map.body.args.iter().zip(&names) {
            self.scalars.insert(*arg, name.clone());
        }
        let all: Vec<u32> = (0..rank as u32).collect();
        let own = linear_point.clone().unwrap_or_else(|| linear(&map.space, &all, &names));

        for (input, arg) in map.inputs.iter().zip(&map.body.args[rank..]) {
            let tile = self.tile(input.value, span)?;
            let text = if tile.storage == Storage::Shared {
                let shape = self.kernel.ty(input.value).shape();
                let position = if input.axes == all && shape == map.space {
                    own.clone()
                } else {
                    linear(shape, &input.axes, &names)
                };
                format!("{}[{position}]", tile.name)
            } else {
                Self::slot_of(&tile, &at)
            };
            self.define(*arg, &text);
        }
        for op in &map.body.ops {
            if let OpKind::ElementStore { tensor, index, guards, value } = &op.kind {
                let positions = index
                    .iter()
                    .map(|value| self.scalar(*value, op.span))
                    .collect::<Result<Vec<_>>>()?;
                let address = self.address(*tensor, &positions);
                let value = self.scalar(*value, op.span)?;
                let condition = self
                    .guards(guards, op.span)?
                    .map(|text| format!("if ({text}) "))
                    .unwrap_or_default();
                self.line(format!("{condition}iron::store({address}, {value});"));
            } else if let [result] = op.results[..] {
                self.map_op(&op.kind, result, op.span)?;
            } else {
                return self.fail(op.span, format!("{:?} cannot stand in a map", op.kind));
            }
        }
        for (number, (output, result)) in map.outputs.iter().zip(results).enumerate() {
            let value = self.scalar(map.body.yields[number], span)?;
            if let (MapOutput::Reduce { op, .. }, Some(name)) = (output, &partials[number]) {
                let ty = self.kernel.ty(*result);
                if ty.is_scalar() {
                    let dtype = type_name(ty.dtype().unwrap_or(DType::F32));
                    self.line(format!("{name} = {}::fold<{dtype}>({name}, {value});", fold(*op)));
                } else {
                    self.line(format!("{name}[{own}] = {value};"));
                }
                continue;
            }
            let tile = self.tile(*result, span)?;
            if tile.storage == Storage::Shared {
                self.line(format!("{}[{own}] = {value};", tile.name));
            } else {
                self.line(format!("{} = {value};", Self::slot_of(&tile, &at)));
            }
        }
        if guarded {
            self.close();
        }
        self.close();
        self.names.leave();
        self.reductions(map, results, &partials, &offsets, span)
    }

    /// Folds across threads. One barrier serves all reductions along an axis.
    fn reductions(
        &mut self,
        map: &Map,
        results: &[Value],
        partials: &[Option<String>],
        offsets: &[u32],
        span: Span,
    ) -> Result<()> {
        let threads = self.threads();
        let along_axis = |printer: &Self, result: Value| !printer.kernel.ty(result).is_scalar();
        let reduces = map.outputs.iter().zip(results).any(|(output, result)| {
            matches!(output, MapOutput::Reduce { .. }) && along_axis(self, *result)
        });
        if reduces {
            self.line("iron::barrier();");
        }
        for (number, (output, result)) in map.outputs.iter().zip(results).enumerate() {
            let (MapOutput::Reduce { op, axes }, Some(name)) = (output, &partials[number]) else {
                continue;
            };
            let ty = type_name(self.kernel.ty(*result).dtype().unwrap_or(DType::F32));
            let op = fold(*op);
            if !along_axis(self, *result) {
                let scratch = self.scratch(ty, offsets[number]);
                self.define(
                    *result,
                    &format!("iron::block_reduce<{op}, {threads}>({name}, {scratch}, tid)"),
                );
                continue;
            }
            let (first, last) = (axes[0] as usize, axes[axes.len() - 1] as usize);
            if last - first + 1 != axes.len() {
                return self.fail(span, "the reduced axes must be neighbours");
            }
            let extent = |range: &[u32]| range.iter().product::<u32>();
            let outer = extent(&map.space[..first]);
            let length = extent(&map.space[first..=last]);
            let inner = extent(&map.space[last + 1..]);
            let tile = self.tile(*result, span)?;
            self.line(format!(
                "iron::reduce_axis<{op}, {outer}, {length}, {inner}, {threads}>({name}, {}, tid);",
                tile.name
            ));
        }
        Ok(())
    }

    /// A piece of one weight row as an f32 tile.
    pub(super) fn decode_row(
        &mut self,
        tensor: u32,
        index: &[Index],
        result: Value,
        span: Span,
    ) -> Result<()> {
        let threads = self.threads();
        let tile = self.tile(result, span)?;
        let (leading, last) = index.split_at(index.len() - 1);
        let Index::Range { start, len, stride, bound } = &last[0] else {
            return self.fail(span, "a weight row is decoded along k");
        };
        let mut positions = self.positions(leading, span)?;
        let start = self.scalar(*start, span)?;
        self.names.enter();
        let at = self.names.fresh("slot");
        if tile.storage != Storage::Shared {
            self.line("IRON_UNROLL");
        }
        self.open(format!("for (int {at} = 0; {at} < {}; ++{at}) {{", len.div_ceil(threads)));
        let point = self.names.fresh("point");
        self.line(format!("const int {point} = {at} * {threads} + tid;"));
        let k = self.names.fresh("k_at");
        let step = if *stride == 1 { String::new() } else { format!(" * {stride}") };
        self.line(format!("const int {k} = {start} + {point}{step};"));
        let mut conditions = Vec::new();
        if !len.is_multiple_of(threads) {
            conditions.push(format!("{point} < {len}"));
        }
        if let Some(bound) = bound {
            conditions.push(format!("{k} < {}", self.scalar(*bound, span)?));
        }
        let value = if let Some(Pointee::Packed(format)) =
            pointee(&self.kernel.params[tensor as usize].kind)
        {
            let row = self.packed_row(tensor, &positions);
            format!("iron::decode<{}>({row}, {k})", format_name(format).unwrap_or_default())
        } else {
            positions.push(k.clone());
            format!("iron::load({})", self.address(tensor, &positions))
        };
        let value = if conditions.is_empty() {
            value
        } else {
            format!("{} ? {value} : 0.0f", conditions.join(" && "))
        };
        if tile.storage == Storage::Shared {
            let guard = if len.is_multiple_of(threads) {
                String::new()
            } else {
                format!("if ({point} < {len}) ")
            };
            self.line(format!("{guard}{}[{point}] = {value};", tile.name));
        } else {
            self.line(format!("{} = {value};", Self::slot_of(&tile, &at)));
        }
        self.close();
        self.names.leave();
        Ok(())
    }
}
