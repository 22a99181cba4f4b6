//! Maps on the CPU: loops over the outer axes, vectors of 16 lanes along the last one.
//!
//! Inside a point every body value is one of three kinds: the same for all lanes, `base + lane * step` (positions), or
//! a vector. Accesses whose last position is `base + lane` become plain vector loads and stores, with a lane count
//! where a guard may fail; others gather and scatter.

use std::collections::HashMap;

use iron_core::ir::{
    BinaryOp, Const, Guard, Map, MapOutput, Op, OpKind, ReduceOp, Storage, Type, Value,
};
use iron_core::{DType, Diagnostic};

use super::{
    Emitter, Result, literal, load_scalar, memory_element, param_name, pitch, scalar, scalar_type,
    store_scalar, vectors_type,
};
use crate::passes::schedule::cpu::{LANES, is_unrolled};

/// Accumulators of a reduction that run independently.
const ACCUMULATORS: u32 = 4;

/// What a body value is at one point.
#[derive(Clone, Debug)]
enum Operand {
    /// The same scalar for every lane.
    Uniform(String),
    /// `base + lane * step`, an i32.
    Affine { base: String, step: i64 },
    /// A vector.
    Vector(String),
}

/// Where one point of a map lies.
struct Point<'p> {
    /// Positions along the outer axes, as usize expressions.
    outer: &'p [String],
    /// First position along the last axis, as a usize expression.
    inner: String,
    /// Which vector of the last axis this is, where known.
    vector: Option<u32>,
    /// Lanes inside the space.
    valid: u32,
}

impl Emitter<'_> {
    pub(super) fn map(&mut self, op: &Op, map: &Map) -> Result<()> {
        let vectors = map.schedule.lanes > 1;
        for (slot, output) in map.outputs.iter().enumerate() {
            self.declare_output(op, map, slot, output, vectors);
        }
        self.nest(op, map, &mut Vec::new(), vectors)?;
        for (slot, output) in map.outputs.iter().enumerate() {
            if let MapOutput::Reduce { op: fold, axes } = output
                && axes.len() == map.space.len()
            {
                let total = self.fold_accumulators(map, slot, *fold, op.results[slot], vectors);
                let line = format!("let {} = {total};", self.name(op.results[slot]));
                self.line(&line);
            }
        }
        Ok(())
    }

    fn declare_output(
        &mut self,
        op: &Op,
        map: &Map,
        slot: usize,
        output: &MapOutput,
        vectors: bool,
    ) {
        let result = op.results[slot];
        let ty = self.kernel.ty(result).clone();
        match output {
            MapOutput::Element if self.storage(result) == Some(Storage::Vectors) => {
                let zero = match ty.dtype() {
                    Some(DType::F32) => "I::splat_f(0.0)",
                    Some(DType::Bool) => "I::splat_m(false)",
                    _ => "I::splat_i(0)",
                };
                let value = match ty.shape() {
                    [n] => format!("[{zero}; {}]", n / LANES),
                    shape => format!("[[{zero}; {}]; {}]", shape[1] / LANES, shape[0]),
                };
                let line =
                    format!("let mut {}: {} = {value};", self.name(result), vectors_type(&ty));
                self.line(&line);
            }
            MapOutput::Element => {}
            MapOutput::Reduce { op: fold, axes } if axes.len() == map.space.len() => {
                self.declare_accumulators(map, slot, *fold, result, vectors);
            }
            MapOutput::Reduce { axes, .. } if reduces_last_only(map, axes) => {}
            MapOutput::Reduce { op: fold, .. } => {
                let memory = self.memory(result);
                let count = super::tile_bytes(&ty) / 4;
                let identity = identity(*fold, ty.dtype());
                self.line(&format!("tile::fill({memory}, {count}, {identity});"));
            }
        }
    }

    fn accumulators(map: &Map, vectors: bool) -> u32 {
        let last = map.space.last().copied().unwrap_or(1);
        if vectors && map.schedule.unroll >= last.div_ceil(LANES) {
            last.div_ceil(LANES).min(ACCUMULATORS)
        } else {
            1
        }
    }

    fn declare_accumulators(
        &mut self,
        map: &Map,
        slot: usize,
        fold: ReduceOp,
        result: Value,
        vectors: bool,
    ) {
        let dtype = self.kernel.ty(result).dtype();
        let start = identity(fold, dtype);
        let start = if vectors { splat(&start, dtype) } else { start };
        for number in 0..Self::accumulators(map, vectors) {
            self.line(&format!("let mut fold{slot}_{number} = {start};"));
        }
    }

    fn fold_accumulators(
        &mut self,
        map: &Map,
        slot: usize,
        fold: ReduceOp,
        result: Value,
        vectors: bool,
    ) -> String {
        let dtype = self.kernel.ty(result).dtype();
        let mut terms: Vec<String> = (0..Self::accumulators(map, vectors))
            .map(|number| format!("fold{slot}_{number}"))
            .collect();
        while terms.len() > 1 {
            terms = terms
                .chunks(2)
                .map(|pair| match pair {
                    [a, b] => combine(fold, dtype, a, b, vectors),
                    rest => rest[0].clone(),
                })
                .collect();
        }
        let total = terms.remove(0);
        if !vectors {
            return total;
        }
        match (fold, dtype) {
            (ReduceOp::Any, _) => format!("I::any_m({total})"),
            (fold, dtype) => {
                let kind = if dtype == Some(DType::F32) { "f" } else { "i" };
                let name = match fold {
                    ReduceOp::Sum => "add",
                    ReduceOp::Max => "max",
                    _ => "min",
                };
                let value = format!("I::reduce_{name}_{kind}({total})");
                if dtype == Some(DType::U32) { format!("({value}) as u32") } else { value }
            }
        }
    }

    /// Whether the map touches a tile in registers, whose indices must be literals.
    fn indexes_registers(&self, op: &Op, map: &Map) -> bool {
        let tiles = map.inputs.iter().map(|input| input.value).chain(op.results.iter().copied());
        tiles.into_iter().any(|tile| self.storage(tile) == Some(Storage::Vectors))
    }

    /// Loops over the outer axes not yet in `outer`, then along the last one.
    fn nest(&mut self, op: &Op, map: &Map, outer: &mut Vec<String>, vectors: bool) -> Result<()> {
        let axis = outer.len();
        if axis + 1 < map.space.len() {
            let extent = map.space[axis];
            if vectors && is_unrolled(map) && self.indexes_registers(op, map) {
                for position in 0..extent {
                    outer.push(format!("{position}"));
                    self.nest(op, map, outer, vectors)?;
                    outer.pop();
                }
            } else {
                let index = self.fresh("i");
                self.open(&format!("for {index} in 0..{extent}_usize {{"));
                outer.push(index);
                self.nest(op, map, outer, vectors)?;
                outer.pop();
                self.close("}");
            }
            return Ok(());
        }
        let row_folds: Vec<usize> = (0..map.outputs.len())
            .filter(|slot| match &map.outputs[*slot] {
                MapOutput::Reduce { axes, .. } => {
                    axes.len() < map.space.len() && reduces_last_only(map, axes)
                }
                MapOutput::Element => false,
            })
            .collect();
        if !row_folds.is_empty() {
            self.open("{");
        }
        for slot in &row_folds {
            if let MapOutput::Reduce { op: fold, .. } = &map.outputs[*slot] {
                self.declare_accumulators(map, *slot, *fold, op.results[*slot], vectors);
            }
        }
        self.inner(op, map, outer, vectors)?;
        for slot in &row_folds {
            if let MapOutput::Reduce { op: fold, .. } = &map.outputs[*slot] {
                let result = op.results[*slot];
                let total = self.fold_accumulators(map, *slot, *fold, result, vectors);
                let ty = self.kernel.ty(result).clone();
                let at = offset(outer, ty.shape());
                let memory = self.memory(result);
                let total =
                    if memory_element(&ty) == "i32" { format!("({total}) as i32") } else { total };
                self.line(&format!("*{memory}.add({at}) = {total};"));
            }
        }
        if !row_folds.is_empty() {
            self.close("}");
        }
        Ok(())
    }

    fn inner(&mut self, op: &Op, map: &Map, outer: &[String], vectors: bool) -> Result<()> {
        let extent = map.space.last().copied().unwrap_or(1);
        if !vectors {
            let index = self.fresh("j");
            self.open(&format!("for {index} in 0..{extent}_usize {{"));
            self.point(op, map, &Point { outer, inner: index, vector: None, valid: 1 }, false)?;
            self.close("}");
            return Ok(());
        }
        let count = extent.div_ceil(LANES);
        let whole = extent / LANES;
        if map.schedule.unroll >= count {
            for vector in 0..count {
                let valid = if vector < whole { LANES } else { extent % LANES };
                let point = Point {
                    outer,
                    inner: format!("{}", vector * LANES),
                    vector: Some(vector),
                    valid,
                };
                self.open("{");
                self.point(op, map, &point, true)?;
                self.close("}");
            }
            return Ok(());
        }
        let index = self.fresh("j");
        self.open(&format!("for {index} in (0..{}_usize).step_by({LANES}) {{", whole * LANES));
        self.point(op, map, &Point { outer, inner: index, vector: None, valid: LANES }, true)?;
        self.close("}");
        if whole < count {
            self.open("{");
            let point = Point {
                outer,
                inner: format!("{}", whole * LANES),
                vector: None,
                valid: extent % LANES,
            };
            self.point(op, map, &point, true)?;
            self.close("}");
        }
        Ok(())
    }

    fn point(&mut self, op: &Op, map: &Map, point: &Point<'_>, vectors: bool) -> Result<()> {
        let rank = map.space.len();
        let mut known: HashMap<Value, Operand> = HashMap::new();
        for (axis, arg) in map.body.args[..rank].iter().enumerate() {
            let operand = if axis + 1 < rank {
                Operand::Uniform(as_i32(&point.outer[axis]))
            } else if vectors {
                Operand::Affine { base: as_i32(&point.inner), step: 1 }
            } else {
                Operand::Uniform(as_i32(&point.inner))
            };
            known.insert(*arg, operand);
        }
        for (input, arg) in map.inputs.iter().zip(&map.body.args[rank..]) {
            let operand = self.input(map, input.value, &input.axes, point, vectors);
            if let Operand::Uniform(expression) | Operand::Vector(expression) = &operand {
                let line = format!("let {} = {expression};", self.name(*arg));
                self.line(&line);
            }
            let operand = match operand {
                Operand::Uniform(_) => Operand::Uniform(self.name(*arg)),
                _ => Operand::Vector(self.name(*arg)),
            };
            known.insert(*arg, operand);
        }
        for inner in &map.body.ops {
            self.body_op(inner, &mut known, point, vectors)?;
        }
        for (slot, output) in map.outputs.iter().enumerate() {
            let operand = self.operand(map.body.yields[slot], &known);
            self.output(op.results[slot], slot, map, output, &operand, point, vectors);
        }
        Ok(())
    }

    fn operand(&self, value: Value, known: &HashMap<Value, Operand>) -> Operand {
        known.get(&value).cloned().unwrap_or_else(|| Operand::Uniform(self.scalar(value)))
    }

    fn input(
        &mut self,
        map: &Map,
        value: Value,
        axes: &[u32],
        point: &Point<'_>,
        vectors: bool,
    ) -> Operand {
        let ty = self.kernel.ty(value).clone();
        let last = map.space.len() as u32 - 1;
        let position = |axis: &u32| {
            if *axis == last { point.inner.clone() } else { point.outer[*axis as usize].clone() }
        };
        if self.storage(value) == Some(Storage::Vectors) {
            let name = self.name(value);
            let vector = point.vector.unwrap_or(0);
            return Operand::Vector(match axes {
                [_] => format!("{name}[{vector}]"),
                _ => format!("{name}[{}][{vector}]", position(&axes[0])),
            });
        }
        let memory = self.memory(value);
        let pitch = pitch(ty.shape());
        let bool = ty.dtype() == Some(DType::Bool);
        let lane_axis = axes.iter().position(|axis| *axis == last);
        let positions: Vec<String> = axes.iter().map(position).collect();
        let at = offset(&positions, ty.shape());
        if !vectors || lane_axis.is_none() {
            let element = format!("*{memory}.add({at})");
            return Operand::Uniform(match ty.dtype() {
                Some(DType::Bool) => format!("({element}) != 0"),
                Some(DType::U32) => format!("({element}) as u32"),
                _ => element,
            });
        }
        let kind = if memory_element(&ty) == "f32" { "f32" } else { "i32" };
        let loaded = if lane_axis == Some(axes.len() - 1) {
            format!("I::load_{kind}({memory}.add({at}))")
        } else {
            let zero = if kind == "f32" { "I::splat_f(0.0)" } else { "I::splat_i(0)" };
            format!(
                "I::gather_{kind}({memory}.add({at}), tile::affine::<I>(0, {pitch}), I::first_m({}), {zero})",
                point.valid
            )
        };
        Operand::Vector(if bool {
            format!("I::not_m(I::eq_i({loaded}, I::splat_i(0)))")
        } else {
            loaded
        })
    }

    fn body_op(
        &mut self,
        op: &Op,
        known: &mut HashMap<Value, Operand>,
        point: &Point<'_>,
        vectors: bool,
    ) -> Result<()> {
        match &op.kind {
            OpKind::Const(_) => return Ok(()),
            OpKind::ElementLoad { tensor, index, guards, fill } => {
                let operand = self.element_load(op, *tensor, index, guards, *fill, known, point)?;
                known.insert(op.results[0], operand);
                return Ok(());
            }
            OpKind::ElementStore { tensor, index, guards, value } => {
                return self
                    .element_store(op, *tensor, index, guards, *value, known, point, vectors);
            }
            _ => {}
        }
        let values = op.kind.operands();
        let operands: Vec<Operand> =
            values.iter().map(|value| self.operand(*value, known)).collect();
        let result = op.results[0];
        let to = self.kernel.ty(result).dtype();
        let from = values.first().and_then(|value| self.kernel.ty(*value).dtype());
        if let Some(positions) = self.affine(&op.kind, &operands, to) {
            known.insert(result, positions);
            return Ok(());
        }
        let missing = || Diagnostic::new(op.span, format!("no form of {:?} on the CPU", op.kind));
        let name = self.name(result);
        if operands.iter().all(|operand| matches!(operand, Operand::Uniform(_))) {
            let texts: Vec<String> = operands
                .into_iter()
                .map(|operand| match operand {
                    Operand::Uniform(text) => text,
                    _ => unreachable!("checked above"),
                })
                .collect();
            let expression = scalar::expression(&op.kind, &texts, from, to).ok_or_else(missing)?;
            self.line(&format!("let {name} = {expression};"));
            known.insert(result, Operand::Uniform(name));
            return Ok(());
        }
        let texts: Vec<String> = operands
            .iter()
            .zip(&values)
            .map(|(operand, value)| vector_text(operand, self.kernel.ty(*value).dtype()))
            .collect();
        // The type that selects the instruction is that of the compared or combined operands.
        let from = match op.kind {
            OpKind::Select(_, a, _) => self.kernel.ty(a).dtype(),
            _ => from,
        };
        let expression =
            scalar::vector_expression(&op.kind, &texts, from, to).ok_or_else(missing)?;
        self.line(&format!("let {name} = {expression};"));
        known.insert(result, Operand::Vector(name));
        Ok(())
    }

    /// Position arithmetic that stays `base + lane * step`.
    fn affine(
        &mut self,
        kind: &OpKind,
        operands: &[Operand],
        to: Option<DType>,
    ) -> Option<Operand> {
        let OpKind::Binary(op, a, b) = kind else { return None };
        if to != Some(DType::I32) {
            return None;
        }
        let constant = |value: Value, this: &Self| match this.constants.get(&value) {
            Some(Const::I32(value)) => Some(i64::from(*value)),
            _ => None,
        };
        let (base, step) = match (op, &operands[0], &operands[1]) {
            (BinaryOp::Add, Operand::Affine { base, step }, Operand::Uniform(other))
            | (BinaryOp::Add, Operand::Uniform(other), Operand::Affine { base, step }) => {
                (format!("({base} + {other})"), *step)
            }
            (BinaryOp::Sub, Operand::Affine { base, step }, Operand::Uniform(other)) => {
                (format!("({base} - {other})"), *step)
            }
            (
                BinaryOp::Add,
                Operand::Affine { base, step },
                Operand::Affine { base: other, step: more },
            ) => (format!("({base} + {other})"), step + more),
            (BinaryOp::Mul, Operand::Affine { base, step }, Operand::Uniform(_)) => {
                let factor = constant(*b, self)?;
                (format!("({base} * {factor})"), step * factor)
            }
            (BinaryOp::Mul, Operand::Uniform(_), Operand::Affine { base, step }) => {
                let factor = constant(*a, self)?;
                (format!("({base} * {factor})"), step * factor)
            }
            _ => return None,
        };
        Some(Operand::Affine { base, step })
    }

    /// The address of an access: its part common to all lanes, and the lanes' element offsets.
    fn access(&self, tensor: u32, index: &[Value], known: &HashMap<Value, Operand>) -> Access {
        let mut common = Vec::new();
        let mut lanes = Vec::new();
        let mut contiguous = true;
        for (axis, value) in index.iter().enumerate() {
            let stride = self.stride(tensor, axis);
            match self.operand(*value, known) {
                Operand::Uniform(position) => common.push(scaled(&position, stride.as_deref())),
                Operand::Affine { base, step } => {
                    common.push(scaled(&base, stride.as_deref()));
                    contiguous &= stride.is_none() && step == 1;
                    lanes.push(match stride {
                        None => format!("tile::affine::<I>(0, {step})"),
                        Some(stride) => format!("tile::affine::<I>(0, {step} * {stride} as i32)"),
                    });
                }
                Operand::Vector(vector) => {
                    contiguous = false;
                    lanes.push(match stride {
                        None => vector,
                        Some(stride) => format!("I::mul_i({vector}, I::splat_i({stride} as i32))"),
                    });
                }
            }
        }
        let name = param_name(&self.kernel.params[tensor as usize].name);
        let pointer = format!("{name}.wrapping_offset({})", common.join(" + "));
        let lanes = lanes.into_iter().reduce(|a, b| format!("I::add_i({a}, {b})"));
        Access { pointer, contiguous: contiguous && lanes.is_some(), lanes }
    }

    /// How many leading lanes an access touches (`None`: all 16), and a mask for the rest of its guards.
    fn guards(&self, guards: &[Guard], valid: u32, known: &HashMap<Value, Operand>) -> Guarded {
        let mut counts = Vec::new();
        let mut conditions = Vec::new();
        let mut masks = Vec::new();
        if valid < LANES {
            counts.push(format!("{valid}_i32"));
        }
        for guard in guards {
            let Operand::Uniform(bound) = self.operand(guard.bound, known) else { continue };
            match self.operand(guard.index, known) {
                Operand::Uniform(index) => {
                    conditions.push(format!("{index} < {bound}"));
                    if guard.signed {
                        conditions.push(format!("{index} >= 0"));
                    }
                }
                // Lanes before the first position are masked one by one.
                Operand::Affine { base, step } if guard.signed => {
                    let positions = format!("tile::affine::<I>({base}, {step})");
                    masks.push(format!("I::lt_i({positions}, I::splat_i({bound}))"));
                    masks.push(format!("I::le_i(I::splat_i(0), {positions})"));
                }
                Operand::Affine { base, step: 1 } => counts.push(format!("({bound} - {base})")),
                Operand::Affine { base, step } => {
                    counts.push(format!("tile::div_i({bound} - {base} + {step} - 1, {step})"));
                }
                Operand::Vector(vector) => {
                    masks.push(format!("I::lt_i({vector}, I::splat_i({bound}))"));
                    if guard.signed {
                        masks.push(format!("I::le_i(I::splat_i(0), {vector})"));
                    }
                }
            }
        }
        let condition = (!conditions.is_empty()).then(|| conditions.join(" && "));
        let count = counts.into_iter().reduce(|a, b| format!("({a}).min({b})"));
        let count = match (count, &condition) {
            (Some(count), Some(condition)) => {
                Some(format!("if {condition} {{ {count} }} else {{ 0 }}"))
            }
            (None, Some(condition)) => Some(format!("if {condition} {{ {LANES} }} else {{ 0 }}")),
            (count, None) => count,
        };
        let mask = masks.into_iter().reduce(|a, b| format!("I::and_m({a}, {b})"));
        Guarded { condition, count, mask }
    }

    fn element_load(
        &mut self,
        op: &Op,
        tensor: u32,
        index: &[Value],
        guards: &[Guard],
        fill: Value,
        known: &HashMap<Value, Operand>,
        point: &Point<'_>,
    ) -> Result<Operand> {
        let access = self.access(tensor, index, known);
        let guarded =
            self.guards(guards, if access.lanes.is_some() { point.valid } else { LANES }, known);
        let dtype = self.param_dtype(tensor);
        let name = self.name(op.results[0]);
        let fill_operand = self.operand(fill, known);
        let Some(lanes) = access.lanes else {
            let loaded = load_scalar(dtype, &access.pointer);
            let Operand::Uniform(fill) = fill_operand else {
                return Err(Diagnostic::new(op.span, "the fill of a load is one scalar"));
            };
            let expression = match guarded.condition {
                Some(condition) => format!("if {condition} {{ {loaded} }} else {{ {fill} }}"),
                None => loaded,
            };
            self.line(&format!("let {name} = {expression};"));
            return Ok(Operand::Uniform(name));
        };
        let fill = vector_text(&fill_operand, Some(dtype.compute()));
        let kind = access_kind(dtype);
        let expression = if access.contiguous && guarded.mask.is_none() {
            match guarded.count {
                Some(count) => format!("I::load_{kind}_n({}, {count}, {fill})", access.pointer),
                None => format!("I::load_{kind}({})", access.pointer),
            }
        } else {
            let mask = guarded.lane_mask();
            format!("I::gather_{kind}({}, {lanes}, {mask}, {fill})", access.pointer)
        };
        if !access.contiguous && matches!(dtype, DType::I8 | DType::U8) {
            return Err(Diagnostic::new(
                op.span,
                format!("{dtype} elements are not gathered on the CPU"),
            )
            .help("read them along the last axis"));
        }
        self.line(&format!("let {name} = {expression};"));
        Ok(Operand::Vector(name))
    }

    fn element_store(
        &mut self,
        op: &Op,
        tensor: u32,
        index: &[Value],
        guards: &[Guard],
        value: Value,
        known: &HashMap<Value, Operand>,
        point: &Point<'_>,
        vectors: bool,
    ) -> Result<()> {
        let access = self.access(tensor, index, known);
        let guarded = self.guards(guards, if vectors { point.valid } else { LANES }, known);
        let dtype = self.param_dtype(tensor);
        let operand = self.operand(value, known);
        let Some(lanes) = access.lanes else {
            let Operand::Uniform(text) = operand else {
                return Err(Diagnostic::new(op.span, "several elements are stored to one place"));
            };
            let store = store_scalar(dtype, &access.pointer, &text);
            let line = match guarded.condition {
                Some(condition) => format!("if {condition} {{ {store} }}"),
                None => store,
            };
            self.line(&line);
            return Ok(());
        };
        let text = vector_text(&operand, self.kernel.ty(value).dtype());
        let kind = access_kind(dtype);
        let line = if access.contiguous && guarded.mask.is_none() {
            match guarded.count {
                Some(count) => format!("I::store_{kind}_n({}, {text}, {count});", access.pointer),
                None => format!("I::store_{kind}({}, {text});", access.pointer),
            }
        } else {
            format!(
                "tile::scatter_{kind}::<I>({}, {lanes}, {}, {text});",
                access.pointer,
                guarded.lane_mask()
            )
        };
        self.line(&line);
        Ok(())
    }

    fn output(
        &mut self,
        result: Value,
        slot: usize,
        map: &Map,
        output: &MapOutput,
        operand: &Operand,
        point: &Point<'_>,
        vectors: bool,
    ) {
        let ty = self.kernel.ty(result).clone();
        let dtype = ty.dtype();
        let mut positions: Vec<String> = point.outer.to_vec();
        positions.push(point.inner.clone());
        match output {
            MapOutput::Element => {
                if self.storage(result) == Some(Storage::Vectors) {
                    let value = vector_text(operand, dtype);
                    let name = self.name(result);
                    let vector = point.vector.unwrap_or(0);
                    let line = match ty.shape() {
                        [_] => format!("{name}[{vector}] = {value};"),
                        _ => format!("{name}[{}][{vector}] = {value};", point.outer[0]),
                    };
                    self.line(&line);
                    return;
                }
                let at = offset(&positions, ty.shape());
                self.store_element(result, &ty, &at, operand, vectors);
            }
            MapOutput::Reduce { op: fold, axes }
                if axes.len() == map.space.len() || reduces_last_only(map, axes) =>
            {
                let number = point.vector.unwrap_or(0) % Self::accumulators(map, vectors);
                let mut value =
                    if vectors { vector_text(operand, dtype) } else { uniform_text(operand) };
                if vectors && point.valid < LANES {
                    let identity = splat(&identity(*fold, dtype), dtype);
                    let kind = lane_kind(dtype);
                    value = format!(
                        "I::select_{kind}(I::first_m({}), {value}, {identity})",
                        point.valid
                    );
                }
                let name = format!("fold{slot}_{number}");
                let combined = combine(*fold, dtype, &name, &value, vectors);
                self.line(&format!("{name} = {combined};"));
            }
            MapOutput::Reduce { op: fold, axes } => {
                let kept: Vec<String> = positions
                    .iter()
                    .enumerate()
                    .filter(|(axis, _)| !axes.contains(&(*axis as u32)))
                    .map(|(_, position)| position.clone())
                    .collect();
                let at = offset(&kept, ty.shape());
                let memory = self.memory(result);
                let kind = if memory_element(&ty) == "f32" { "f32" } else { "i32" };
                let last = map.space.len() as u32 - 1;
                if vectors && !axes.contains(&last) {
                    let value = vector_text(operand, dtype);
                    let combined = combine(
                        *fold,
                        dtype,
                        &format!("I::load_{kind}({memory}.add({at}))"),
                        &value,
                        true,
                    );
                    self.line(&format!("I::store_{kind}({memory}.add({at}), {combined});"));
                } else {
                    let value = uniform_text(operand);
                    let combined =
                        combine(*fold, dtype, &format!("*{memory}.add({at})"), &value, false);
                    self.line(&format!("*{memory}.add({at}) = {combined};"));
                }
            }
        }
    }

    fn store_element(
        &mut self,
        result: Value,
        ty: &Type,
        at: &str,
        operand: &Operand,
        vectors: bool,
    ) {
        let memory = self.memory(result);
        let dtype = ty.dtype();
        let line = if vectors {
            let value = vector_text(operand, dtype);
            match dtype {
                Some(DType::F32) => format!("I::store_f32({memory}.add({at}), {value});"),
                Some(DType::Bool) => {
                    format!(
                        "I::store_i32({memory}.add({at}), I::select_i({value}, I::splat_i(1), I::splat_i(0)));"
                    )
                }
                _ => format!("I::store_i32({memory}.add({at}), {value});"),
            }
        } else {
            let value = uniform_text(operand);
            match dtype {
                Some(DType::F32 | DType::I32) => format!("*{memory}.add({at}) = {value};"),
                _ => format!("*{memory}.add({at}) = ({value}) as i32;"),
            }
        };
        self.line(&line);
    }
}

struct Access {
    pointer: String,
    contiguous: bool,
    lanes: Option<String>,
}

struct Guarded {
    condition: Option<String>,
    count: Option<String>,
    mask: Option<String>,
}

impl Guarded {
    fn lane_mask(&self) -> String {
        let leading = self.count.as_ref().map(|count| format!("I::first_m({count})"));
        match (leading, &self.mask) {
            (Some(leading), Some(mask)) => format!("I::and_m({leading}, {mask})"),
            (Some(leading), None) => leading,
            (None, Some(mask)) => mask.clone(),
            (None, None) => "I::splat_m(true)".to_owned(),
        }
    }
}

/// Whether a reduction folds the last axis and no other.
fn reduces_last_only(map: &Map, axes: &[u32]) -> bool {
    axes == [map.space.len() as u32 - 1]
}

/// Offset of an element of a tile in memory, as a usize expression.
fn offset(positions: &[String], shape: &[u32]) -> String {
    let mut stride = 1;
    let mut terms = Vec::new();
    for (axis, position) in positions.iter().enumerate().rev() {
        terms.push(if stride == 1 { position.clone() } else { format!("{position} * {stride}") });
        stride *= if axis + 1 == positions.len() { pitch(shape) } else { shape[axis] };
    }
    terms.reverse();
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}

fn as_i32(position: &str) -> String {
    if position.chars().all(|c| c.is_ascii_digit()) {
        format!("{position}_i32")
    } else {
        format!("({position} as i32)")
    }
}

fn scaled(position: &str, stride: Option<&str>) -> String {
    match stride {
        Some(stride) => format!("({position} as isize) * {stride}"),
        None => format!("({position} as isize)"),
    }
}

fn access_kind(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::I32 | DType::U32 | DType::Bool => "i32",
    }
}

fn lane_kind(dtype: Option<DType>) -> &'static str {
    match dtype {
        Some(DType::F32) => "f",
        Some(DType::Bool) => "m",
        _ => "i",
    }
}

fn splat(text: &str, dtype: Option<DType>) -> String {
    match dtype {
        Some(DType::F32) => format!("I::splat_f({text})"),
        Some(DType::Bool) => format!("I::splat_m({text})"),
        Some(DType::U32) => format!("I::splat_i(({text}) as i32)"),
        _ => format!("I::splat_i({text})"),
    }
}

fn vector_text(operand: &Operand, dtype: Option<DType>) -> String {
    match operand {
        Operand::Uniform(text) => splat(text, dtype),
        Operand::Affine { base, step } => format!("tile::affine::<I>({base}, {step})"),
        Operand::Vector(text) => text.clone(),
    }
}

fn uniform_text(operand: &Operand) -> String {
    match operand {
        Operand::Uniform(text) | Operand::Vector(text) | Operand::Affine { base: text, .. } => {
            text.clone()
        }
    }
}

/// What a fold starts from, as a scalar literal.
fn identity(fold: ReduceOp, dtype: Option<DType>) -> String {
    let dtype = dtype.unwrap_or(DType::F32);
    let constant = match (fold, dtype) {
        (ReduceOp::Any, _) => Const::Bool(false),
        (ReduceOp::Sum, DType::F32) => Const::F32(0.0),
        (ReduceOp::Max, DType::F32) => Const::F32(f32::NEG_INFINITY),
        (ReduceOp::Min, DType::F32) => Const::F32(f32::INFINITY),
        (ReduceOp::Sum | ReduceOp::Max, DType::U32) => Const::U32(0),
        (ReduceOp::Min, DType::U32) => Const::U32(u32::MAX),
        (ReduceOp::Sum, _) => Const::I32(0),
        (ReduceOp::Max, _) => Const::I32(i32::MIN),
        (ReduceOp::Min, _) => Const::I32(i32::MAX),
    };
    literal(constant)
}

fn combine(fold: ReduceOp, dtype: Option<DType>, a: &str, b: &str, vectors: bool) -> String {
    let op = match fold {
        ReduceOp::Sum => BinaryOp::Add,
        ReduceOp::Max => BinaryOp::Max,
        ReduceOp::Min => BinaryOp::Min,
        ReduceOp::Any => BinaryOp::Or,
    };
    let kind = OpKind::Binary(op, Value(0), Value(0));
    let operands = [a.to_owned(), b.to_owned()];
    let text = if vectors {
        scalar::vector_expression(&kind, &operands, dtype, dtype)
    } else {
        scalar::expression(&kind, &operands, dtype, dtype)
    };
    text.unwrap_or_else(|| {
        format!("/* no fold for {} */", scalar_type(dtype.unwrap_or(DType::F32)))
    })
}
