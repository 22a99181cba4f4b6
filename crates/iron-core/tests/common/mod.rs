//! Kernels for tests: one that uses every operation, and random ones.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses a part of it")]

use iron_core::ir::{
    ActivationKind, BinaryOp, CompareOp, Const, DimExpr, DimOp, DotOperand, Guard, Index, Kernel,
    MapInput, MapOutput, MapSchedule, OpKind, ParamKind, ReduceOp, TileRef, Type, UnaryOp, Value,
};
use iron_core::{Builder, DType, Format};

/// A sound kernel in which every operation occurs.
pub fn every_op() -> Kernel {
    let mut b = Builder::new("every_op");
    let x = b.tensor("x", DType::F16, &["m", "k"], false);
    let out = b.tensor("out", DType::F32, &["m", "n"], true);
    let ids = b.tensor("ids", DType::I32, &["m"], false);
    let [m, n, k] = ["m", "n", "k"].map(|name| b.dim_expr(name));
    let w = b.param(
        "w",
        ParamKind::Quantized { format: Format::Q4K, shape: vec![n.clone(), k.clone()] },
    );
    let shape = vec![m.clone(), k];
    let a = b.param(
        "a",
        ParamKind::Activations { kind: ActivationKind::Int8, shape: shape.clone(), mutable: false },
    );
    let q =
        b.param("q", ParamKind::Activations { kind: ActivationKind::Int8, shape, mutable: true });
    let eps = b.param("eps", ParamKind::Scalar(DType::F32));
    b.grid(vec![m, DimExpr::op(DimOp::DivCeil, n, DimExpr::Const(16))]);

    let (n, k) = (b.dim("n"), b.dim("k"));
    let row = b.program_id(0);
    b.name(row, "row");
    let eps = b.scalar_param(eps);
    let zero = b.i32(0);
    let unsigned = b.u32(7);
    b.bitcast(unsigned, DType::I32);
    let truth = b.bool(true);
    b.unary(UnaryOp::Not, truth);

    // Tiles.
    let range = |start: Value| Index::bounded(start, 32, k);
    let tile = b.load(
        x,
        vec![Index::Range { start: row, len: 4, stride: 2, bound: None }, range(zero)],
        Some(eps),
    );
    let scalar = b.load(x, vec![Index::At(row), Index::At(zero)], None);
    let rows = b.load(ids, vec![Index::range(zero, 4)], None);
    let gathered = b.load(x, vec![Index::Gather(rows), range(zero)], None);
    let positions = b.iota(row, 3, 4);
    b.binary(BinaryOp::Max, positions, rows);
    let exponent = b.unary(UnaryOp::Exp, tile);
    let sum = b.add(exponent, gathered);
    let wide = b.broadcast(scalar, &[], &[4, 32]);
    let fused = b.fma(sum, wide, tile);
    let less = b.compare(CompareOp::Lt, fused, wide);
    let chosen = b.select(less, fused, wide);
    let narrow = b.cast(chosen, DType::BF16);
    b.cast(narrow, DType::F32);
    let flat = b.reshape(chosen, &[128]);
    b.reduce(ReduceOp::Max, flat, None);
    let turned = b.transpose(chosen);
    let column = b.reduce(ReduceOp::Sum, turned, Some(0));
    b.broadcast(column, &[1], &[2, 4]);
    b.reduce(ReduceOp::Any, less, Some(1));

    // Products.
    let acc = b.splat(Const::F32(0.0), &[4, 16]);
    let int8 = b.load(a, vec![Index::range(row, 4), range(zero)], None);
    let weights = b.load(w, vec![Index::bounded(zero, 16, n), range(zero)], None);
    let product = b.dot(int8, weights, acc);
    let memory =
        TileRef { tensor: w, index: vec![Index::range(zero, 16), range(zero)], transposed: false };
    let product = b.dot_tile(DotOperand::Tile(int8), DotOperand::Memory(memory), product, 32);
    let swapped =
        TileRef { tensor: x, index: vec![range(zero), Index::range(row, 4)], transposed: true };
    let plain = b.load(x, vec![Index::range(zero, 16), range(zero)], None);
    let product = b.dot_tile(DotOperand::Memory(swapped), DotOperand::Tile(plain), product, 32);
    let row_of_weights = b.load(w, vec![Index::At(zero), range(zero)], None);
    b.cast(row_of_weights, DType::F32);
    b.decode_row(w, vec![Index::At(zero), range(zero)]);
    b.quantize_store(q, vec![Index::range(row, 4), range(zero)], tile);
    b.store(out, vec![Index::range(row, 4), Index::bounded(zero, 16, n)], product);

    // Control.
    let last = b.for_loop((zero, k), 32, &[scalar, product], |b, counter, carried| {
        b.name(counter, "j");
        b.name(carried[0], "total");
        let more = b.add(carried[0], eps);
        vec![more, carried[1]]
    });
    let positive = b.compare(CompareOp::Gt, last[0], eps);
    let picked = b.if_else(
        positive,
        |b| vec![b.unary(UnaryOp::Neg, last[0]), last[1]],
        |b| vec![b.f32(f32::NEG_INFINITY), last[1]],
    );
    b.if_else(positive, |_| Vec::new(), |_| Vec::new());

    // Maps.
    let inputs = vec![
        MapInput { value: picked[1], axes: vec![0, 1] },
        MapInput { value: column, axes: vec![0] },
    ];
    let outputs = vec![
        MapOutput::Element,
        MapOutput::Reduce { op: ReduceOp::Sum, axes: vec![1] },
        MapOutput::Reduce { op: ReduceOp::Max, axes: vec![0, 1] },
    ];
    b.map(&[4, 16], inputs, outputs, |b, indices, elements| {
        let guards = vec![
            Guard { index: indices[0], bound: n, signed: true },
            Guard { index: indices[1], bound: k, signed: false },
        ];
        let element = b.element_load(x, indices.to_vec(), guards.clone(), eps);
        let sum = b.add(element, elements[0]);
        b.element_store(out, indices.to_vec(), guards, sum);
        let unguarded = b.element_load(ids, vec![row], Vec::new(), zero);
        b.element_store(out, vec![unguarded, zero], Vec::new(), elements[1]);
        vec![sum, element, picked[0]]
    });
    let mut kernel = b.finish();
    kernel.body.walk_mut(&mut |op| {
        if let OpKind::Map(map) = &mut op.kind {
            map.schedule = MapSchedule { lanes: 16, unroll: 4 };
        }
    });
    kernel
}

/// A small generator of random numbers (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn dim_expr(&mut self, depth: usize) -> DimExpr {
        match self.below(if depth == 0 { 2 } else { 5 }) {
            0 => DimExpr::Const(self.below(20) as i64 - 8),
            1 => DimExpr::Dim(self.below(2) as u32),
            _ => DimExpr::op(
                self.pick(DimOp::ALL),
                self.dim_expr(depth - 1),
                self.dim_expr(depth - 1),
            ),
        }
    }
}

/// A sound kernel of random scalar and tile arithmetic with loops, branches and maps.
pub fn random_kernel(seed: u64) -> Kernel {
    let mut random = Random::new(seed);
    let mut b = Builder::new(format!("random_{seed}"));
    let x = b.tensor("x", DType::F32, &["n", "k"], false);
    let out = b.tensor("out", DType::F16, &["n", "k"], true);
    let axes = 1 + random.below(3);
    b.grid((0..axes).map(|_| random.dim_expr(3)).collect());
    let zero = b.i32(0);
    let end = b.dim("n");
    let first = b.f32(random.below(1000) as f32 / 7.0);
    let mut pool = Pool { zero, end, x, out, values: vec![first] };
    let length = 3 + random.below(12);
    pool.fill(&mut b, &mut random, length, 3);
    b.finish()
}

struct Pool {
    zero: Value,
    end: Value,
    x: u32,
    out: u32,
    /// f32 scalars and tiles in scope.
    values: Vec<Value>,
}

impl Pool {
    fn fill(&mut self, b: &mut Builder, random: &mut Random, length: usize, depth: usize) {
        for _ in 0..length {
            self.step(b, random, depth);
        }
    }

    fn index(&self, b: &Builder, random: &mut Random, value: Value) -> Option<Vec<Index>> {
        let mut entry = |len: u32| Index::Range {
            start: self.zero,
            len,
            stride: 1 + random.below(2) as u32,
            bound: (random.below(2) == 0).then_some(self.end),
        };
        match b.ty(value).shape() {
            [] => Some(vec![Index::At(self.zero), Index::At(self.zero)]),
            [len] => Some(vec![Index::At(self.end), entry(*len)]),
            [rows, len] => Some(vec![entry(*rows), entry(*len)]),
            _ => None,
        }
    }

    fn nested(
        &mut self,
        b: &mut Builder,
        random: &mut Random,
        depth: usize,
        like: &[Value],
    ) -> Vec<Value> {
        let outer = self.values.len();
        let length = random.below(4);
        self.fill(b, random, length, depth - 1);
        let results = like
            .iter()
            .map(|value| {
                let ty = b.ty(*value).clone();
                let fitting: Vec<Value> = self
                    .values
                    .iter()
                    .copied()
                    .filter(|candidate| *b.ty(*candidate) == ty)
                    .collect();
                if fitting.is_empty() { *value } else { random.pick(&fitting) }
            })
            .collect();
        self.values.truncate(outer);
        results
    }

    fn step(&mut self, b: &mut Builder, random: &mut Random, depth: usize) {
        let value = random.pick(&self.values);
        let shape = b.ty(value).shape().to_vec();
        let new = match random.below(if depth == 0 { 9 } else { 12 }) {
            0 => b.f32(random.below(1 << 20) as f32 * 1e-3 - 100.0),
            1 => b.unary(
                random.pick(&[UnaryOp::Exp, UnaryOp::Neg, UnaryOp::Erf, UnaryOp::Rsqrt]),
                value,
            ),
            2 => {
                b.binary(random.pick(&[BinaryOp::Add, BinaryOp::Div, BinaryOp::Max]), value, value)
            }
            3 if shape.is_empty() => b.broadcast(value, &[], &[1 + random.below(8) as u32]),
            3 if shape.len() == 1 => {
                let extent = 1 + random.below(8) as u32;
                if random.below(2) == 0 {
                    b.broadcast(value, &[1], &[extent, shape[0]])
                } else {
                    b.broadcast(value, &[0], &[shape[0], extent])
                }
            }
            3 => b.transpose(value),
            4 if !shape.is_empty() => {
                let axis = random.below(shape.len() + 1);
                b.reduce(ReduceOp::Min, value, (axis < shape.len()).then_some(axis as u32))
            }
            5 => {
                let less = b.compare(CompareOp::Le, value, value);
                b.select(less, value, value)
            }
            6 => {
                let Some(index) = self.index(b, random, value) else { return };
                b.load(self.x, index, None)
            }
            7 => {
                let Some(index) = self.index(b, random, value) else { return };
                return b.store(self.out, index, value);
            }
            9 => {
                let carried = [value, random.pick(&self.values)];
                let bounds = (self.zero, self.end);
                let step = 1 + random.below(64) as u32;
                let results = b.for_loop(bounds, step, &carried, |b, _, args| {
                    let outer = self.values.len();
                    self.values.extend(args);
                    let yields = self.nested(b, random, depth, args);
                    self.values.truncate(outer);
                    yields
                });
                self.values.extend(&results);
                results[0]
            }
            10 => {
                let condition = b.bool(random.below(2) == 0);
                b.open_block(&[]);
                let yields = self.nested(b, random, depth, &[value]);
                let then = b.close_block(yields);
                b.open_block(&[]);
                let yields = self.nested(b, random, depth, &[value]);
                let otherwise = b.close_block(yields);
                b.emit(OpKind::If { condition, then, otherwise }, None)[0]
            }
            11 if !shape.is_empty() => {
                let axes = (0..shape.len() as u32).collect();
                let reduced = vec![random.below(shape.len()) as u32];
                let outputs = vec![
                    MapOutput::Element,
                    MapOutput::Reduce { op: ReduceOp::Sum, axes: reduced },
                ];
                let results = b.map(
                    &shape,
                    vec![MapInput { value, axes }],
                    outputs,
                    |b, indices, elements| {
                        let index = vec![indices[0], self.zero];
                        let guards = vec![Guard {
                            index: indices[0],
                            bound: self.end,
                            signed: random.below(2) == 0,
                        }];
                        let loaded = b.element_load(self.x, index.clone(), guards, elements[0]);
                        let sum = b.add(loaded, elements[0]);
                        b.element_store(self.out, index, Vec::new(), sum);
                        vec![sum, loaded]
                    },
                );
                results[random.below(2)]
            }
            _ => return,
        };
        if random.below(3) == 0 {
            b.name(new, random.pick(&["acc", "x", "row_sum", "_t1"]));
        }
        debug_assert!(matches!(b.ty(new), Type::Scalar(_) | Type::Tile { .. }));
        self.values.push(new);
    }
}
