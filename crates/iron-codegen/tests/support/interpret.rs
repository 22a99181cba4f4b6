//! Executes IR at any stage of the pipeline, slowly and literally, so that what a pass changed can be compared.
//!
//! Tiles that `Schedule` gave a buffer live in that buffer: two values that share one overwrite each other here as they
//! do in the emitted text. Maps run in groups of points, operation by operation, as vectors do. An access outside a
//! tensor panics.

use std::collections::HashMap;

use iron_core::DType;
use iron_core::ir::{
    BinaryOp, Block, CompareOp, Const, DimExpr, DimOp, DotOperand, Guard, Index, Kernel, Map,
    MapOutput, Op, OpKind, ParamKind, ReduceOp, Storage, TileRef, UnaryOp, Value,
};

/// What a kernel is launched with. Numbers are the bits of f32, i32, u32 or bool.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Extent of every named dimension.
    pub dims: HashMap<String, i32>,
    /// Contents of every tensor, row-major.
    pub tensors: HashMap<String, Vec<u32>>,
    /// Bits of every scalar parameter.
    pub scalars: HashMap<String, u32>,
}

/// Runs every program of the grid; maps take `group` points at once. Returns the tensors afterwards.
pub fn run(kernel: &Kernel, launch: &Launch, group: usize) -> HashMap<String, Vec<u32>> {
    let dims = kernel.dims.iter().map(|dim| launch.dims[dim]).collect();
    let mut machine = Machine {
        kernel,
        dims,
        group,
        program: [0; 3],
        tensors: kernel
            .params
            .iter()
            .map(|param| launch.tensors.get(&param.name).cloned().unwrap_or_default())
            .collect(),
        scalars: kernel.params.iter().map(|it| launch.scalars.get(&it.name).copied()).collect(),
        values: HashMap::new(),
        buffers: HashMap::new(),
    };
    let mut grid = [1; 3];
    for (axis, extent) in kernel.grid.iter().enumerate() {
        grid[axis] = machine.extent(extent);
    }
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                machine.program = [x, y, z];
                machine.block(&kernel.body);
            }
        }
    }
    let names = kernel.params.iter().map(|param| param.name.clone());
    names.zip(machine.tensors).collect()
}

struct Machine<'k> {
    kernel: &'k Kernel,
    dims: Vec<i32>,
    group: usize,
    program: [i32; 3],
    tensors: Vec<Vec<u32>>,
    scalars: Vec<Option<u32>>,
    values: HashMap<Value, Vec<u32>>,
    buffers: HashMap<u32, Vec<u32>>,
}

impl Machine<'_> {
    fn extent(&self, expr: &DimExpr) -> i32 {
        match expr {
            DimExpr::Const(value) => *value as i32,
            DimExpr::Dim(index) => self.dims[*index as usize],
            DimExpr::Op(op, a, b) => {
                let (a, b) = (self.extent(a), self.extent(b));
                match op {
                    DimOp::Add => a + b,
                    DimOp::Sub => a - b,
                    DimOp::Mul => a * b,
                    DimOp::Div => a / b,
                    DimOp::DivCeil => (a + b - 1) / b,
                    DimOp::Min => a.min(b),
                    DimOp::Max => a.max(b),
                }
            }
        }
    }

    fn get(&self, value: Value) -> &Vec<u32> {
        let found = match self.kernel.info(value).buffer {
            Some(buffer) => self.buffers.get(&buffer),
            None => self.values.get(&value),
        };
        found.unwrap_or_else(|| panic!("{} has no value", self.kernel.value_text(value)))
    }

    fn set(&mut self, value: Value, data: Vec<u32>) {
        match self.kernel.info(value).buffer {
            Some(buffer) => self.buffers.insert(buffer, data),
            None => self.values.insert(value, data),
        };
    }

    fn int(&self, value: Value) -> i32 {
        self.get(value)[0] as i32
    }

    fn dtype(&self, value: Value) -> DType {
        self.kernel.ty(value).dtype().expect("plain numbers")
    }

    fn shape(&self, value: Value) -> &[u32] {
        self.kernel.ty(value).shape()
    }

    fn block(&mut self, block: &Block) {
        for op in &block.ops {
            self.op(op);
        }
    }

    fn op(&mut self, op: &Op) {
        let result = op.results.first().copied();
        let data = match &op.kind {
            OpKind::Const(constant) => vec![bits(*constant)],
            OpKind::ProgramId(axis) => vec![self.program[*axis as usize] as u32],
            OpKind::Dim(dim) => vec![self.dims[*dim as usize] as u32],
            OpKind::Param(param) => vec![self.scalars[*param as usize].expect("a scalar argument")],
            OpKind::Broadcast { value, axes } => {
                let (from, to) = (self.shape(*value), self.shape(result.unwrap()));
                let source = self.get(*value);
                points(to)
                    .map(|point| {
                        let at: Vec<usize> =
                            axes.iter().map(|axis| point[*axis as usize]).collect();
                        source[linear(from, &at)]
                    })
                    .collect()
            }
            OpKind::Reshape(value) => self.get(*value).clone(),
            OpKind::Transpose(value) => {
                let (from, source) = (self.shape(*value), self.get(*value));
                points(self.shape(result.unwrap()))
                    .map(|point| source[linear(from, &[point[1], point[0]])])
                    .collect()
            }
            OpKind::Iota { start, stride } => {
                let len = self.shape(result.unwrap())[0] as i32;
                (0..len).map(|i| (self.int(*start) + i * *stride as i32) as u32).collect()
            }
            OpKind::Reduce { op: fold, value, axis } => {
                let shape = self.shape(*value).to_vec();
                let axes =
                    axis.map_or_else(|| (0..shape.len() as u32).collect(), |axis| vec![axis]);
                let dtype = self.dtype(*value);
                let mut folded = Folded::new(*fold, dtype, &shape, &axes);
                for (point, element) in points(&shape).zip(self.get(*value)) {
                    folded.add(&point, *element);
                }
                folded.data
            }
            OpKind::Dot { a, b, acc } => {
                let k = self.shape(*a)[1] as usize;
                let (a, b, acc) = (self.get(*a), self.get(*b), self.get(*acc).clone());
                product(a, b, acc, k)
            }
            OpKind::DotTile { a, b, acc, k } => {
                self.set(result.unwrap(), self.get(*acc).clone());
                let (a, b) = (self.operand(a), self.operand(b));
                product(&a, &b, self.get(result.unwrap()).clone(), *k as usize)
            }
            OpKind::Load { tensor, index, fill } => {
                let fill = fill.map_or(0, |fill| self.get(fill)[0]);
                self.load(*tensor, index, fill)
            }
            OpKind::Store { tensor, index, value } => {
                let data = self.get(*value).clone();
                for (place, element) in self.places(*tensor, index).into_iter().zip(data) {
                    if let Some(at) = place {
                        self.tensors[*tensor as usize][at] = element;
                    }
                }
                return;
            }
            OpKind::For { .. } => return self.for_loop(op),
            OpKind::If { condition, then, otherwise } => {
                let taken = if self.int(*condition) != 0 { then } else { otherwise };
                self.block(taken);
                for (result, value) in op.results.iter().zip(&taken.yields) {
                    self.set(*result, self.get(*value).clone());
                }
                return;
            }
            OpKind::Map(map) => return self.map(op, map),
            kind => {
                let from = kind.operands().first().map(|value| self.dtype(*value));
                let operands: Vec<&Vec<u32>> =
                    kind.operands().into_iter().map(|value| self.get(value)).collect();
                let to = self.dtype(result.unwrap());
                (0..operands[0].len())
                    .map(|at| {
                        let operands: Vec<u32> = operands.iter().map(|it| it[at]).collect();
                        elementwise(kind, &operands, from.unwrap(), to)
                    })
                    .collect()
            }
        };
        self.set(result.expect("an operation with a result"), data);
    }

    fn operand(&self, operand: &DotOperand) -> Vec<u32> {
        match operand {
            DotOperand::Tile(value) => self.get(*value).clone(),
            DotOperand::Memory(TileRef { tensor, index, transposed }) => {
                let data = self.load(*tensor, index, 0);
                if !*transposed {
                    return data;
                }
                let shape: Vec<u32> = index.iter().filter_map(|it| self.len(it)).collect();
                points(&[shape[1], shape[0]])
                    .map(|point| data[linear(&shape, &[point[1], point[0]])])
                    .collect()
            }
        }
    }

    fn len(&self, index: &Index) -> Option<u32> {
        match index {
            Index::At(_) => None,
            Index::Range { len, .. } => Some(*len),
            Index::Gather(list) => Some(self.shape(*list)[0]),
        }
    }

    fn load(&self, tensor: u32, index: &[Index], fill: u32) -> Vec<u32> {
        self.places(tensor, index)
            .into_iter()
            .map(|place| place.map_or(fill, |at| self.tensors[tensor as usize][at]))
            .collect()
    }

    fn tensor_shape(&self, tensor: u32) -> Vec<i32> {
        let param = &self.kernel.params[tensor as usize];
        assert!(!matches!(param.kind, ParamKind::Scalar(_)), "`{}` is a scalar", param.name);
        param.kind.shape().iter().map(|extent| self.extent(extent)).collect()
    }

    /// Offsets of the elements of an access; `None` where masked.
    fn places(&self, tensor: u32, index: &[Index]) -> Vec<Option<usize>> {
        let extents = self.tensor_shape(tensor);
        let mut places = vec![Some(0)];
        for (entry, extent) in index.iter().zip(extents) {
            let positions: Vec<Option<i32>> = match entry {
                Index::At(value) => vec![Some(self.int(*value))],
                Index::Range { start, len, stride, bound } => (0..*len)
                    .map(|i| {
                        let at = self.int(*start) + (i * stride) as i32;
                        let inside = bound.is_none_or(|bound| at < self.int(bound));
                        (at >= 0 && inside).then_some(at)
                    })
                    .collect(),
                Index::Gather(list) => self
                    .get(*list)
                    .iter()
                    .map(|at| Some(*at as i32).filter(|at| (0..extent).contains(at)))
                    .collect(),
            };
            places = places
                .into_iter()
                .flat_map(|place| {
                    positions.iter().map(move |position| {
                        let (place, position) = (place?, (*position)?);
                        assert!(
                            (0..extent).contains(&position),
                            "position {position} of parameter {tensor} on an axis of {extent}"
                        );
                        Some(place * extent as usize + position as usize)
                    })
                })
                .collect();
        }
        places
    }

    fn for_loop(&mut self, op: &Op) {
        let OpKind::For { lower, upper, step, carried, body } = &op.kind else { unreachable!() };
        let in_memory =
            |this: &Self, value: Value| this.kernel.info(value).storage == Some(Storage::Memory);
        for (start, arg) in carried.iter().zip(&body.args[1..]) {
            self.set(*arg, self.get(*start).clone());
        }
        let (mut counter, upper) = (self.int(*lower), self.int(*upper));
        while counter < upper {
            self.values.insert(body.args[0], vec![counter as u32]);
            self.block(body);
            let mut moved = Vec::new();
            for (value, arg) in body.yields.iter().zip(&body.args[1..]) {
                let data = self.get(*value).clone();
                if in_memory(self, *arg) {
                    self.set(*arg, data);
                } else {
                    moved.push((*arg, data));
                }
            }
            for (arg, data) in moved {
                self.set(arg, data);
            }
            counter += *step as i32;
        }
        for (result, arg) in op.results.iter().zip(&body.args[1..]) {
            if in_memory(self, *result) {
                assert_eq!(self.kernel.info(*result).buffer, self.kernel.info(*arg).buffer);
            } else {
                self.set(*result, self.get(*arg).clone());
            }
        }
    }

    fn map(&mut self, op: &Op, map: &Map) {
        let size: usize = map.space.iter().map(|extent| *extent as usize).product();
        let mut folds: Vec<Option<Folded>> = Vec::new();
        for ((result, output), value) in op.results.iter().zip(&map.outputs).zip(&map.body.yields) {
            let dtype = self.dtype(*value);
            folds.push(match output {
                MapOutput::Element => {
                    let buffer = self.kernel.info(*result).buffer;
                    let present = buffer.and_then(|buffer| self.buffers.get(&buffer));
                    if present.is_none_or(|data| data.len() != size) {
                        self.set(*result, vec![0xdead_beef; size]);
                    }
                    None
                }
                MapOutput::Reduce { op, axes } => Some(Folded::new(*op, dtype, &map.space, axes)),
            });
        }
        let all: Vec<Vec<usize>> = points(&map.space).collect();
        for group in all.chunks(self.group) {
            let rank = map.space.len();
            let mut known: HashMap<Value, Vec<u32>> = HashMap::new();
            for (axis, arg) in map.body.args[..rank].iter().enumerate() {
                known.insert(*arg, group.iter().map(|point| point[axis] as u32).collect());
            }
            for (input, arg) in map.inputs.iter().zip(&map.body.args[rank..]) {
                let (shape, data) = (self.shape(input.value), self.get(input.value));
                let elements = group.iter().map(|point| {
                    let at: Vec<usize> =
                        input.axes.iter().map(|axis| point[*axis as usize]).collect();
                    data[linear(shape, &at)]
                });
                let elements = elements.collect();
                known.insert(*arg, elements);
            }
            for inner in &map.body.ops {
                self.point_op(inner, &mut known, group.len());
            }
            let yields: Vec<Vec<u32>> = map
                .body
                .yields
                .iter()
                .map(|value| self.lanes(*value, &known, group.len()))
                .collect();
            for (slot, result) in op.results.iter().enumerate() {
                match &mut folds[slot] {
                    Some(folded) => {
                        for (point, element) in group.iter().zip(&yields[slot]) {
                            folded.add(point, *element);
                        }
                    }
                    None => {
                        let mut data = std::mem::take(self.get_mut(*result));
                        for (point, element) in group.iter().zip(&yields[slot]) {
                            data[linear(&map.space, point)] = *element;
                        }
                        *self.get_mut(*result) = data;
                    }
                }
            }
        }
        for (result, folded) in op.results.iter().zip(folds) {
            if let Some(folded) = folded {
                self.set(*result, folded.data);
            }
        }
    }

    fn get_mut(&mut self, value: Value) -> &mut Vec<u32> {
        match self.kernel.info(value).buffer {
            Some(buffer) => self.buffers.get_mut(&buffer).expect("a buffer"),
            None => self.values.get_mut(&value).expect("a value"),
        }
    }

    fn lanes(&self, value: Value, known: &HashMap<Value, Vec<u32>>, count: usize) -> Vec<u32> {
        known.get(&value).cloned().unwrap_or_else(|| vec![self.get(value)[0]; count])
    }

    fn point_op(&mut self, op: &Op, known: &mut HashMap<Value, Vec<u32>>, count: usize) {
        let place = |this: &Self, tensor: u32, index: &[Value], guards: &[Guard], lane: usize| {
            let at = |value: Value| this.lanes(value, known, count)[lane] as i32;
            let inside = guards.iter().all(|guard| {
                let position = at(guard.index);
                (!guard.signed || position >= 0) && position < at(guard.bound)
            });
            inside.then(|| {
                let extents = this.tensor_shape(tensor);
                index.iter().zip(extents).fold(0, |place, (value, extent)| {
                    let position = at(*value);
                    assert!(
                        (0..extent).contains(&position),
                        "position {position} of parameter {tensor} on an axis of {extent}"
                    );
                    place * extent as usize + position as usize
                })
            })
        };
        let data = match &op.kind {
            OpKind::ElementLoad { tensor, index, guards, fill } => {
                let fill = self.lanes(*fill, known, count);
                (0..count)
                    .map(|lane| {
                        place(self, *tensor, index, guards, lane)
                            .map_or(fill[lane], |at| self.tensors[*tensor as usize][at])
                    })
                    .collect()
            }
            OpKind::ElementStore { tensor, index, guards, value } => {
                let value = self.lanes(*value, known, count);
                for (lane, element) in value.into_iter().enumerate() {
                    if let Some(at) = place(self, *tensor, index, guards, lane) {
                        self.tensors[*tensor as usize][at] = element;
                    }
                }
                return;
            }
            OpKind::Const(constant) => vec![bits(*constant); count],
            OpKind::Dim(dim) => vec![self.dims[*dim as usize] as u32; count],
            OpKind::Param(param) => {
                vec![self.scalars[*param as usize].expect("an argument"); count]
            }
            kind => {
                let operands = kind.operands();
                let from = self.dtype(operands[0]);
                let to = self.dtype(op.results[0]);
                let lanes: Vec<Vec<u32>> =
                    operands.into_iter().map(|value| self.lanes(value, known, count)).collect();
                (0..count)
                    .map(|lane| {
                        let operands: Vec<u32> = lanes.iter().map(|it| it[lane]).collect();
                        elementwise(kind, &operands, from, to)
                    })
                    .collect()
            }
        };
        known.insert(op.results[0], data);
    }
}

struct Folded {
    op: ReduceOp,
    dtype: DType,
    kept: Vec<usize>,
    shape: Vec<u32>,
    data: Vec<u32>,
}

impl Folded {
    fn new(op: ReduceOp, dtype: DType, space: &[u32], axes: &[u32]) -> Self {
        let kept: Vec<usize> =
            (0..space.len()).filter(|axis| !axes.contains(&(*axis as u32))).collect();
        let shape: Vec<u32> = kept.iter().map(|axis| space[*axis]).collect();
        let identity = match (op, dtype) {
            (ReduceOp::Max, DType::F32) => f32::NEG_INFINITY.to_bits(),
            (ReduceOp::Min, DType::F32) => f32::INFINITY.to_bits(),
            (ReduceOp::Max, DType::I32) => i32::MIN as u32,
            (ReduceOp::Min, DType::I32) => i32::MAX as u32,
            (ReduceOp::Sum | ReduceOp::Any | ReduceOp::Max, _) => 0,
            (ReduceOp::Min, _) => u32::MAX,
        };
        let size: u32 = shape.iter().product();
        Self { op, dtype, kept, shape, data: vec![identity; size as usize] }
    }

    fn add(&mut self, point: &[usize], element: u32) {
        let at: Vec<usize> = self.kept.iter().map(|axis| point[*axis]).collect();
        let slot = &mut self.data[linear(&self.shape, &at)];
        let op = match self.op {
            ReduceOp::Sum => BinaryOp::Add,
            ReduceOp::Max => BinaryOp::Max,
            ReduceOp::Min => BinaryOp::Min,
            ReduceOp::Any => BinaryOp::Or,
        };
        *slot = binary(op, *slot, element, self.dtype);
    }
}

fn product(a: &[u32], b: &[u32], mut acc: Vec<u32>, k: usize) -> Vec<u32> {
    let (m, n) = (a.len() / k, b.len() / k);
    for row in 0..m {
        for column in 0..n {
            let sum = (0..k).fold(f32::from_bits(acc[row * n + column]), |sum, p| {
                f32::from_bits(a[row * k + p]) * f32::from_bits(b[column * k + p]) + sum
            });
            acc[row * n + column] = sum.to_bits();
        }
    }
    acc
}

/// Every point of a space, the last axis fastest.
fn points(shape: &[u32]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape: Vec<usize> = shape.iter().map(|extent| *extent as usize).collect();
    (0..shape.iter().product()).map(move |mut at| {
        let mut point = vec![0; shape.len()];
        for (axis, extent) in shape.iter().enumerate().rev() {
            point[axis] = at % extent;
            at /= extent;
        }
        point
    })
}

fn linear(shape: &[u32], point: &[usize]) -> usize {
    shape.iter().zip(point).fold(0, |at, (extent, position)| at * *extent as usize + position)
}

fn bits(constant: Const) -> u32 {
    match constant {
        Const::F32(value) => value.to_bits(),
        Const::I32(value) => value as u32,
        Const::U32(value) => value,
        Const::Bool(value) => u32::from(value),
    }
}

fn elementwise(kind: &OpKind, operands: &[u32], from: DType, to: DType) -> u32 {
    let float = |at: usize| f32::from_bits(operands[at]);
    match kind {
        OpKind::Unary(op, _) => match (op, from) {
            (UnaryOp::Not, DType::Bool) => operands[0] ^ 1,
            (UnaryOp::Not, _) => !operands[0],
            (UnaryOp::Neg, DType::F32) => (-float(0)).to_bits(),
            (UnaryOp::Neg, _) => operands[0].wrapping_neg(),
            (UnaryOp::Abs, DType::F32) => float(0).abs().to_bits(),
            (UnaryOp::Abs, _) => (operands[0] as i32).wrapping_abs() as u32,
            (UnaryOp::Exp, _) => float(0).exp().to_bits(),
            (UnaryOp::Rsqrt, _) => (1.0 / float(0).sqrt()).to_bits(),
            (UnaryOp::Sqrt, _) => float(0).sqrt().to_bits(),
            (op, _) => panic!("{op} is not interpreted"),
        },
        OpKind::Binary(op, ..) => binary(*op, operands[0], operands[1], from),
        OpKind::Fma(..) => float(0).mul_add(float(1), float(2)).to_bits(),
        OpKind::Compare(op, ..) => {
            let ordering = match from {
                DType::F32 => float(0).partial_cmp(&float(1)),
                DType::I32 => Some((operands[0] as i32).cmp(&(operands[1] as i32))),
                _ => Some(operands[0].cmp(&operands[1])),
            };
            let Some(ordering) = ordering else { return u32::from(*op == CompareOp::Ne) };
            u32::from(match op {
                CompareOp::Eq => ordering.is_eq(),
                CompareOp::Ne => ordering.is_ne(),
                CompareOp::Lt => ordering.is_lt(),
                CompareOp::Le => ordering.is_le(),
                CompareOp::Gt => ordering.is_gt(),
                CompareOp::Ge => ordering.is_ge(),
            })
        }
        OpKind::Select(..) => {
            if operands[0] != 0 {
                operands[1]
            } else {
                operands[2]
            }
        }
        OpKind::Cast(_) => match (from, to) {
            (DType::F32, DType::I32 | DType::U32) => float(0) as i32 as u32,
            (DType::I32, DType::F32) => (operands[0] as i32 as f32).to_bits(),
            (DType::U32 | DType::Bool, DType::F32) => (operands[0] as f32).to_bits(),
            _ => operands[0],
        },
        OpKind::Bitcast(_) => operands[0],
        kind => panic!("{} is not interpreted", kind.name()),
    }
}

fn binary(op: BinaryOp, a: u32, b: u32, dtype: DType) -> u32 {
    if dtype == DType::F32 {
        let (a, b) = (f32::from_bits(a), f32::from_bits(b));
        return match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            BinaryOp::Min => a.min(b),
            BinaryOp::Max => a.max(b),
            other => panic!("{other} of floats"),
        }
        .to_bits();
    }
    let signed = dtype == DType::I32;
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div if signed => (a as i32).checked_div(b as i32).unwrap_or(0) as u32,
        BinaryOp::Rem if signed => (a as i32).checked_rem(b as i32).unwrap_or(0) as u32,
        BinaryOp::Div => a.checked_div(b).unwrap_or(0),
        BinaryOp::Rem => a.checked_rem(b).unwrap_or(0),
        BinaryOp::Min if signed => (a as i32).min(b as i32) as u32,
        BinaryOp::Max if signed => (a as i32).max(b as i32) as u32,
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a.wrapping_shl(b),
        BinaryOp::Shr if signed => (a as i32).wrapping_shr(b) as u32,
        BinaryOp::Shr => a.wrapping_shr(b),
    }
}
