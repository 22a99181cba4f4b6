//! No pass changes what a kernel computes: adversarial and random kernels, executed after every pass.

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "`#[kernel]` declares statics; their names say what they are"
)]

mod support;

use std::collections::HashMap;

use iron_codegen::passes::typecheck::typecheck;
use iron_codegen::passes::{const_fold, fusion, schedule, tile_lowering, vectorize};
use iron_core::ir::{
    BinaryOp, CompareOp, Index, Kernel, ParamKind, ReduceOp, Storage, Type, Value,
};
use iron_core::syntax::Function;
use iron_core::{Builder, DType};
use iron_macros::kernel;
use support::interpret::{Launch, run};

/// Every stage of the CPU pipeline after `TypeCheck`, with and without the optional passes.
fn stages(typed: &Kernel) -> Vec<(&'static str, Kernel)> {
    let mut stages = Vec::new();
    let mut kernel = typed.clone();
    const_fold::const_fold(&mut kernel);
    stages.push(("constfold", kernel.clone()));
    tile_lowering::tile_lowering(&mut kernel).unwrap_or_else(|fault| panic!("{fault}"));
    stages.push(("tilelowering", kernel.clone()));
    let mut unfused = kernel.clone();
    schedule::cpu::schedule(&mut unfused);
    stages.push(("schedule without fusion", unfused));
    fusion::fusion(&mut kernel);
    stages.push(("fusion", kernel.clone()));
    let mut unscheduled = kernel.clone();
    schedule::cpu::unscheduled(&mut unscheduled);
    stages.push(("without schedule", unscheduled));
    schedule::cpu::schedule(&mut kernel);
    stages.push(("schedule", kernel.clone()));
    vectorize::vectorize(&mut kernel, schedule::cpu::LANES);
    stages.push(("vectorize", kernel));
    stages
}

/// Runs `typed` and every later stage and compares memory bit by bit.
fn check(typed: &Kernel, launch: &Launch) {
    let expected = run(typed, launch, 1);
    for (stage, kernel) in stages(typed) {
        if let Err(faults) = iron_core::verify(&kernel) {
            panic!("{} after {stage}: {}\n{kernel}", typed.name, faults[0]);
        }
        for group in [1, 16, 1 << 20] {
            let found = run(&kernel, launch, group);
            for (tensor, expected) in &expected {
                let wrong = expected.iter().zip(&found[tensor]).position(|(a, b)| a != b);
                assert_eq!(
                    wrong, None,
                    "{} after {stage}, {group} points at once: `{tensor}` differs\n{typed}\n{kernel}",
                    typed.name
                );
            }
        }
    }
}

struct Case {
    launch: Launch,
    constants: Vec<(&'static str, i64)>,
}

/// Integers everywhere, so that every order of rounding gives the same bits.
fn case(tensors: &[(&str, usize)], dims: &[(&str, i32)], scalars: &[(&str, i32)]) -> Case {
    let float = |at: usize| (((at * 7 + 3) % 11) as f32 - 5.0).to_bits();
    let fill = |(name, len): &(&str, usize)| {
        let integer = name.starts_with('i');
        let data = (0..*len).map(|at| if integer { (at * 7 % 11) as u32 } else { float(at) });
        ((*name).to_owned(), data.collect())
    };
    let launch = Launch {
        dims: dims.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        tensors: tensors.iter().map(fill).collect(),
        scalars: scalars.iter().map(|(name, value)| ((*name).to_owned(), *value as u32)).collect(),
    };
    Case { launch, constants: vec![("ROWS", 32), ("COLUMNS", 64)] }
}

fn check_function(function: &'static Function, case: &Case) -> HashMap<String, Vec<u32>> {
    let instance = support::instance(function, &[], &case.constants);
    let typed = typecheck(&instance, &support::no_helpers()).unwrap_or_else(|it| panic!("{it}"));
    check(&typed, &case.launch);
    run(&typed, &case.launch, 1)
}

fn as_floats(data: &[u32]) -> Vec<f32> {
    data.iter().map(|bits| f32::from_bits(*bits)).collect()
}

#[kernel(grid = (one,))]
fn later_store_wins(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>, unused: Tensor<f32, (one,)>) {
    let v = load(x[all(16)]);
    store(out[all(16)], v);
    store(out[all(16) + 1], v * 2.0);
}

#[test]
fn overlapping_stores_keep_their_order() {
    let case = case(&[("x", 20), ("out", 20), ("unused", 1)], &[("n", 20), ("one", 1)], &[]);
    let out = as_floats(&check_function(&LATER_STORE_WINS, &case)["out"]);
    let x = as_floats(&case.launch.tensors["x"]);
    assert_eq!(out[0].to_bits(), x[0].to_bits());
    assert!((1..17).all(|at| out[at].to_bits() == (2.0 * x[at - 1]).to_bits()));
}

#[kernel(grid = (one,))]
fn load_after_shifted_store(
    y: TensorMut<f32, (n,)>,
    x: Tensor<f32, (n,)>,
    one_: Tensor<f32, (one,)>,
) {
    let old = load(y[all(16)]);
    store(y[all(16) + 1], load(x[all(16)]));
    let new = load(y[all(16)]);
    store(y[all(16) + 16], old + new);
}

#[test]
fn loads_and_stores_of_one_tensor_keep_their_order() {
    let case = case(&[("x", 32), ("y", 40), ("one_", 1)], &[("n", 32), ("one", 1)], &[]);
    check_function(&LOAD_AFTER_SHIFTED_STORE, &case);
}

#[kernel(grid = (one,))]
fn reads_only_when_it_runs(
    table: Tensor<f32, (rows, n)>,
    out: TensorMut<f32, (n,)>,
    count: i32,
    which: i32,
    unused: Tensor<f32, (one,)>,
) {
    let mut sum = zeros::<f32>((16,));
    for p in 0..count {
        let scale = load(table[(which, 0)]);
        sum += load(table[(which, all(16))]) * scale;
    }
    store(out[all(16)], sum);
}

#[test]
fn a_loop_that_does_not_run_reads_nothing() {
    let tensors = [("table", 64), ("out", 16), ("unused", 1)];
    let dims = [("rows", 4), ("n", 16), ("one", 1)];
    let never = case(&tensors, &dims, &[("count", 0), ("which", -1)]);
    check_function(&READS_ONLY_WHEN_IT_RUNS, &never);
    check_function(&READS_ONLY_WHEN_IT_RUNS, &case(&tensors, &dims, &[("count", 3), ("which", 2)]));
}

#[kernel(grid = (one,))]
fn loop_reads_what_it_writes(y: TensorMut<f32, (n,)>, count: i32, unused: Tensor<f32, (one,)>) {
    for p in 0..count {
        let first = load(y[0]);
        store(y[all(16)], load(y[all(16)]) + first);
        store(y[1], load(y[1]) + 1.0);
    }
}

#[test]
fn a_loop_sees_its_own_stores() {
    let tensors = [("y", 20), ("unused", 1)];
    let case = case(&tensors, &[("n", 20), ("one", 1)], &[("count", 4)]);
    check_function(&LOOP_READS_WHAT_IT_WRITES, &case);
}

#[kernel(grid = (one,))]
fn two_results_of_one_tile(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    count: i32,
    unused: Tensor<f32, (one,)>,
) {
    let mut a = zeros::<f32>((ROWS, COLUMNS));
    for p in 0..count {
        a += load(x[(all(ROWS), all(COLUMNS))]);
    }
    let mut b = a + 1.0;
    let c = a * 2.0;
    for p in 0..count {
        b = b + c;
    }
    store(out[(all(ROWS), all(COLUMNS))], b);
}

fn large(extra: &[(&'static str, i32)]) -> Case {
    let tensors = [("x", 2048), ("out", 2048), ("out2", 2048), ("out3", 2048), ("unused", 1)];
    case(&tensors, &[("m", 32), ("n", 64), ("one", 1)], extra)
}

#[test]
fn two_results_of_one_map_do_not_share_its_input() {
    check_function(&TWO_RESULTS_OF_ONE_TILE, &large(&[("count", 3)]));
}

#[kernel(grid = (one,))]
fn rotate_three(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    out2: TensorMut<f32, (m, n)>,
    out3: TensorMut<f32, (m, n)>,
    count: i32,
    unused: Tensor<f32, (one,)>,
) {
    let mut a = load(x[(all(ROWS), all(COLUMNS))]);
    let mut b = a * 2.0;
    let mut c = a - 3.0;
    for p in 0..count {
        let old = a;
        a = b + 1.0;
        b = c;
        c = old;
    }
    store(out[(all(ROWS), all(COLUMNS))], a);
    store(out2[(all(ROWS), all(COLUMNS))], b);
    store(out3[(all(ROWS), all(COLUMNS))], c);
}

#[kernel(grid = (one,))]
fn fibonacci(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    out2: TensorMut<f32, (m, n)>,
    count: i32,
    unused: Tensor<f32, (one,)>,
) {
    let mut a = load(x[(all(ROWS), all(COLUMNS))]);
    let mut b = a + 1.0;
    for p in 0..count {
        let next = a + b;
        a = b;
        b = next;
    }
    store(out[(all(ROWS), all(COLUMNS))], a);
    store(out2[(all(ROWS), all(COLUMNS))], b);
}

#[test]
fn carried_tiles_in_memory_change_places() {
    for count in 0..4 {
        check_function(&ROTATE_THREE, &large(&[("count", count)]));
        check_function(&FIBONACCI, &large(&[("count", count)]));
    }
}

#[kernel(grid = (one,))]
fn old_values_are_read_later(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    out2: TensorMut<f32, (m, n)>,
    count: i32,
    unused: Tensor<f32, (one,)>,
) {
    let start = load(x[(all(ROWS), all(COLUMNS))]);
    let mut acc = start;
    let mut kept = start;
    for p in 0..count {
        let before = acc;
        for q in 0..2 {
            acc = acc * 2.0;
            if q == 1 {
                acc = acc + before;
                kept = before;
            }
        }
        acc = acc - start;
    }
    store(out[(all(ROWS), all(COLUMNS))], acc);
    store(out2[(all(ROWS), all(COLUMNS))], kept - start);
}

#[test]
fn a_tile_updated_in_place_is_not_read_afterwards() {
    for count in 0..4 {
        check_function(&OLD_VALUES_ARE_READ_LATER, &large(&[("count", count)]));
    }
}

#[kernel(grid = (one,))]
fn shifted_ranges(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>, unused: Tensor<f32, (one,)>) {
    for j in tiles(n, 16) {
        let left = load(x[j - 1]);
        let right = load(x[j + 1]);
        let gathered = load(x[j.index() - 2]);
        store(out[j - 3], left + right + gathered);
    }
}

#[test]
fn positions_before_the_first_are_masked() {
    let case = case(&[("x", 21), ("out", 21), ("unused", 1)], &[("n", 21), ("one", 1)], &[]);
    check_function(&SHIFTED_RANGES, &case);
}

#[kernel(grid = (one,))]
fn products(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    out2: TensorMut<f32, (m, n)>,
    count: i32,
    unused: Tensor<f32, (one,)>,
) {
    let mut acc = load(x[(all(16), all(16))]);
    let first = acc;
    for p in 0..count {
        let w = load(x[(all(16) + 16, all(16))]);
        acc = dot(acc, w.t(), acc);
        acc = min(acc.max(-9.0), 1).expand(1) + acc.max(-5.0).min(5.0);
    }
    store(out[(all(16), all(16))], acc);
    store(out2[(all(16), all(16))], first);
}

#[test]
fn a_product_may_read_its_accumulator() {
    for count in 0..3 {
        check_function(&PRODUCTS, &large(&[("count", count)]));
    }
}

#[kernel(grid = (one,))]
fn product_with_fill(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    unused: Tensor<f32, (one,)>,
) {
    let a = load(x[(all(16), all(16))]) * 2.0;
    let b = load_or(x[(all(16) + 24, all(16))], 3.0);
    let acc = zeros::<f32>((16, 16));
    store(out[(all(16), all(16))], dot(a, b, acc));
}

#[test]
fn masked_operands_of_a_product_keep_their_fill() {
    let out = as_floats(&check_function(&PRODUCT_WITH_FILL, &large(&[]))["out"]);
    let x = as_floats(&large(&[]).launch.tensors["x"]);
    let expected: f32 = (0..16).map(|p| 2.0 * x[p] * 3.0).sum();
    assert_eq!(out[15].to_bits(), expected.to_bits());
}

#[kernel(grid = (one,))]
fn known_branches(
    x: Tensor<f32, (n,)>,
    out: TensorMut<f32, (n,)>,
    count: i32,
    unused: Tensor<f32, (one,)>,
) {
    let mut v = load(x[all(16)]);
    let mut same = v;
    let flag = 1 < 2;
    for p in 0..count {
        let kept = same;
        if flag {
            v = v + kept;
        } else {
            v = v - kept;
        }
        same = kept;
        if p > 1 {
            store(out[all(16)], v);
        }
    }
    store(out[all(16) + 16], same);
}

#[test]
fn known_branches_and_unchanged_values_fold() {
    for count in 0..5 {
        let tensors = [("x", 32), ("out", 32), ("unused", 1)];
        let case = case(&tensors, &[("n", 32), ("one", 1)], &[("count", count)]);
        check_function(&KNOWN_BRANCHES, &case);
    }
}

// ---- random kernels -------------------------------------------------------------------------------------------------

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Extent of the tensors of random kernels.
const N: i32 = 48;

/// Tiles of i32, so that arithmetic is exact: small ones for registers, large and odd ones for memory.
const SHAPES: [&[u32]; 3] = [&[16], &[20, 32], &[3, 5]];

struct Generator {
    random: Random,
    x: u32,
    y: u32,
    count: Value,
    /// Scalars, then the tiles of each shape.
    pools: [Vec<Value>; 4],
}

impl Generator {
    fn pool(b: &Builder, value: Value) -> usize {
        let shape = b.ty(value).shape().to_vec();
        SHAPES.iter().position(|known| **known == shape).map_or(0, |at| at + 1)
    }

    fn add(&mut self, b: &Builder, value: Value) {
        self.pools[Self::pool(b, value)].push(value);
    }

    fn any(&mut self, pool: usize) -> Value {
        self.random.pick(&self.pools[pool])
    }

    fn place(&mut self, b: &mut Builder) -> Vec<Index> {
        let start = b.i32(self.random.below(30) as i32 - 4);
        let bound = b.i32(N);
        vec![Index::bounded(start, 16, bound)]
    }

    /// A block of its own: what is made inside is forgotten, what it yields has the types of `like`.
    fn nested(
        &mut self,
        b: &mut Builder,
        depth: usize,
        args: &[Value],
        like: &[Value],
    ) -> Vec<Value> {
        let outer = self.pools.clone();
        for arg in args {
            self.add(b, *arg);
        }
        for _ in 0..=self.random.below(5) {
            self.step(b, depth + 1);
        }
        let yields = like
            .iter()
            .map(|value| {
                let pool = Self::pool(b, *value);
                // Mostly what is new, so that tiles move.
                let recent = self.pools[pool].len().saturating_sub(3);
                self.random.pick(&self.pools[pool][recent..])
            })
            .collect();
        self.pools = outer;
        yields
    }

    fn step(&mut self, b: &mut Builder, depth: usize) {
        let pool = self.random.below(4);
        let choice = self.random.below(if depth > 2 { 8 } else { 12 });
        match choice {
            0..=2 => {
                let op = self.random.pick(&[
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::Xor,
                    BinaryOp::Max,
                ]);
                let (x, y) = (self.any(pool), self.any(pool));
                let value = b.binary(op, x, y);
                self.add(b, value);
            }
            3 => {
                let (x, y, z) = (self.any(pool), self.any(pool), self.any(pool));
                let condition = b.compare(CompareOp::Lt, x, y);
                let value = b.select(condition, z, x);
                self.add(b, value);
            }
            4 => {
                let tensor = self.random.pick(&[self.x, self.y, self.y]);
                let index = self.place(b);
                let value = b.load(tensor, index, None);
                self.add(b, value);
            }
            5 => {
                let index = self.place(b);
                let value = self.any(1);
                b.store(self.y, index, value);
            }
            6 if pool > 0 => {
                let tile = self.any(pool);
                let value = b.reduce(ReduceOp::Sum, tile, None);
                self.add(b, value);
            }
            6 => {
                let at = b.i32(self.random.below(N as usize) as i32);
                if self.random.below(2) == 0 {
                    let value = b.load(self.y, vec![Index::At(at)], None);
                    self.add(b, value);
                } else {
                    let value = self.any(0);
                    b.store(self.y, vec![Index::At(at)], value);
                }
            }
            7 => {
                let scalar = self.any(0);
                let wide = b.broadcast(scalar, &[], SHAPES[1]);
                let narrow = b.broadcast(scalar, &[], SHAPES[2]);
                self.add(b, wide);
                self.add(b, narrow);
            }
            8..=10 => {
                let carried: Vec<Value> = (0..=self.random.below(4))
                    .map(|_| {
                        let pool = self.random.below(4);
                        self.any(pool)
                    })
                    .collect();
                let zero = b.i32(0);
                let fixed = b.i32(self.random.below(3) as i32);
                let upper = self.random.pick(&[self.count, fixed]);
                let results = b.for_loop((zero, upper), 1, &carried, |b, counter, args| {
                    let mut inside = args.to_vec();
                    inside.push(counter);
                    self.nested(b, depth, &inside, args)
                });
                for value in results {
                    self.add(b, value);
                }
            }
            _ => {
                let like: Vec<Value> = (0..=self.random.below(3))
                    .map(|_| {
                        let pool = self.random.below(4);
                        self.any(pool)
                    })
                    .collect();
                let (x, y) = (self.any(0), self.any(0));
                let condition = b.compare(CompareOp::Le, x, y);
                b.open_block(&[]);
                let yields = self.nested(b, depth, &[], &like);
                let then = b.close_block(yields);
                b.open_block(&[]);
                let yields = self.nested(b, depth, &[], &like);
                let otherwise = b.close_block(yields);
                let kind = iron_core::ir::OpKind::If { condition, then, otherwise };
                b.emit(kind, None).into_iter().for_each(|value| self.add(b, value));
            }
        }
    }
}

fn random_kernel(seed: u64) -> Kernel {
    let mut b = Builder::new(format!("random_{seed}"));
    let x = b.tensor("x", DType::I32, &["n"], false);
    let y = b.tensor("y", DType::I32, &["n"], true);
    let results = b.tensor("results", DType::I32, &["r"], true);
    let count = b.param("count", ParamKind::Scalar(DType::I32));
    let grid = b.dim_expr("one");
    b.grid(vec![grid]);
    let count = b.scalar_param(count);
    let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut generator = Generator { random, x, y, count, pools: Default::default() };
    let three = b.i32(3);
    let start = b.i32(5);
    for _ in 0..8 {
        generator.random.below(2);
    }
    let tile = b.load(x, vec![Index::range(start, 16)], None);
    let columns = b.iota(three, 2, 32);
    let wide = b.broadcast(columns, &[1], SHAPES[1]);
    let narrow = b.broadcast(count, &[], SHAPES[2]);
    for value in [count, three, tile, wide, narrow] {
        generator.add(&b, value);
    }
    for _ in 0..14 {
        generator.step(&mut b, 0);
    }
    // Everything that is left is observed: small tiles whole, others by a sum that tells positions apart.
    let mut at = 0;
    for (pool, values) in generator.pools.clone().into_iter().enumerate() {
        for value in values.into_iter().rev().take(5) {
            let place = b.i32(at);
            if pool == 1 {
                let bound = b.i32(RESULTS);
                b.store(results, vec![Index::bounded(place, 16, bound)], value);
                at += 16;
                continue;
            }
            let mut scalar = value;
            if pool > 1 {
                let positions = b.iota(three, 7, SHAPES[pool - 1][1]);
                let weights = b.broadcast(positions, &[1], SHAPES[pool - 1]);
                let weighted = b.mul(value, weights);
                scalar = b.reduce(ReduceOp::Sum, weighted, None);
            }
            b.store(results, vec![Index::At(place)], scalar);
            at += 1;
        }
    }
    b.finish()
}

const RESULTS: i32 = 160;

#[test]
fn random_kernels_compute_the_same_after_every_pass() {
    let kernels: u64 = std::env::var("IRON_RANDOM").map_or(16, |it| it.parse().expect("a number"));
    let (mut in_memory, mut maps) = (0, 0);
    for seed in 1..=kernels {
        let typed = random_kernel(seed);
        if let Err(faults) = iron_core::verify(&typed) {
            panic!("{}\n{typed}", faults[0]);
        }
        for count in [0, 2] {
            let numbers =
                |len: i32, factor: i32| (0..len).map(move |i| (i * factor % 23 - 9) as u32);
            let launch = Launch {
                dims: [("n", N), ("one", 1), ("r", RESULTS)]
                    .map(|(name, value)| (name.to_owned(), value))
                    .into(),
                tensors: [
                    ("x".to_owned(), numbers(N, 5).collect()),
                    ("y".to_owned(), numbers(N, 7).collect()),
                    ("results".to_owned(), vec![0; RESULTS as usize]),
                ]
                .into(),
                scalars: [("count".to_owned(), count)].into(),
            };
            check(&typed, &launch);
        }
        let last = stages(&typed).pop().expect("stages").1;
        in_memory += last.values.iter().filter(|it| it.storage == Some(Storage::Memory)).count();
        last.body.walk(&mut |op| maps += usize::from(op.kind.name() == "map"));
        let _: &Type = last.ty(Value(0));
    }
    assert!(in_memory > 100 && maps > 100, "the generator makes trivial kernels");
}
