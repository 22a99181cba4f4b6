//! What each pass does, on small kernels: `tests/passes/PASS/CASE.ir` holds the IR before and after.
//!
//! `IRON_BLESS=1 cargo test -p iron-codegen --test passes` records them anew; read the difference before you commit it.

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "`#[kernel]` declares statics; their names say what they are"
)]

mod support;

use std::path::Path;

use iron_codegen::Instance;
use iron_codegen::compile::{Options, Pass, compile_cpu};
use iron_codegen::passes::typecheck::Library;
use iron_codegen::target::cpu;
use iron_core::ir::Kernel;
use iron_core::syntax::Function;
use iron_macros::kernel;

type Constants = &'static [(&'static str, i64)];

/// The IR of `instance` after `pass`, its values numbered from 0.
fn after(instance: &Instance, library: &Library, pass: Pass) -> Kernel {
    let options = Options { until: Some(pass), ..Options::default() };
    let mut kernel =
        compile_cpu(instance, library, &options).unwrap_or_else(|fault| panic!("{fault}"));
    kernel.compact();
    instance.function.name.clone_into(&mut kernel.name);
    kernel
}

fn check(pass: Pass, function: &'static Function, bindings: &[&str], constants: Constants) {
    let (instance, library) =
        (support::instance(function, bindings, constants), support::standard());
    let at = Pass::ALL.iter().position(|other| *other == pass).expect("a pass");
    let before = at.checked_sub(1).map(|at| after(&instance, &library, Pass::ALL[at]));
    let after = after(&instance, &library, pass);
    let mut text = format!("// {}\n", function.docs.replace('\n', "\n// "));
    if let Some(before) = before {
        text.push_str(&format!("\n// before {}\n{before}", pass.name()));
    }
    text.push_str(&format!("\n// after {}\n{after}", pass.name()));
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/passes")
        .join(pass.name())
        .join(format!("{}.ir", function.name));
    if let Some(difference) = support::differs(&path, &text) {
        panic!("{difference}\n{text}");
    }
}

const BLOCK: Constants = &[("BLOCK", 32)];
const LARGE: Constants = &[("ROWS", 32), ("COLUMNS", 64)];

// ---- TypeCheck ------------------------------------------------------------------------------------------------------

/// A variable that a loop or a branch changes is carried: it enters, and the last value leaves.
#[kernel(grid = (rows,))]
fn carried_variables(x: Tensor<f32, (rows, n)>, out: TensorMut<f32, (rows,)>) {
    let row = program_id(0);
    let mut total = 0.0;
    for j in tiles(n, BLOCK) {
        let part = sum(load(x[(row, j)]));
        if part > 0.0 {
            total += part;
        }
    }
    store(out[row], total);
}

/// Axes of length 1 repeat; literals take the type of what they meet.
#[kernel(grid = (one,))]
fn broadcasts(
    x: Tensor<f32, (m, n)>,
    bias: Tensor<f32, (n,)>,
    out: TensorMut<f32, (m, n)>,
    unused: Tensor<f32, (one,)>,
) {
    let tile = load(x[(all(4), all(BLOCK))]);
    store(out[(all(4), all(BLOCK))], tile * 2.0 + load(bias[all(BLOCK)]).expand(0));
}

#[test]
fn typecheck() {
    check(Pass::TypeCheck, &CARRIED_VARIABLES, &[], BLOCK);
    check(Pass::TypeCheck, &BROADCASTS, &[], BLOCK);
    check(Pass::TypeCheck, &iron_std::mlx::rms_norm::RMS_NORM, &["f32"], &[("BLOCK", 64)]);
}

// ---- ConstFold ------------------------------------------------------------------------------------------------------

/// Literals are evaluated; adding 0 and multiplying by 1 vanish.
#[kernel(grid = (n,))]
fn literals(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let i = program_id(0) * (BLOCK - 31) + 0;
    let scale = (BLOCK * 2).f32() / 4.0;
    store(out[i], load(x[i]) * 1.0 + scale * (2.0 + 0.5));
}

/// Equal expressions are computed once; loads only from tensors that nobody writes.
#[kernel(grid = (n,))]
fn common_subexpressions(x: Tensor<f32, (n,)>, y: TensorMut<f32, (n,)>) {
    let i = program_id(0);
    let a = exp(load(x[i]) * 2.0);
    let b = exp(load(x[i]) * 2.0);
    let before = load(y[i]);
    store(y[i], a + b);
    store(y[i], before + load(y[i]));
}

/// What nobody uses goes, through any number of steps.
#[kernel(grid = (n,))]
fn dead_code(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let i = program_id(0);
    let mut unused = load(x[i]);
    for p in 0..4 {
        unused = unused * 2.0;
    }
    store(out[i], 1.0);
}

/// A branch whose condition is known leaves only the block that runs.
#[kernel(grid = (n,))]
fn known_branch(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let i = program_id(0);
    let mut v = load(x[i]);
    let enabled = BLOCK.f32() > 16.0;
    if enabled {
        v = v * 2.0;
    } else {
        v = v * 3.0;
    }
    store(out[i], v);
}

/// A carried value that never changes is the value it started with.
#[kernel(grid = (n,))]
fn unchanged_value(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let i = program_id(0);
    let mut sum = load(x[i]);
    let mut same = sum;
    for p in 0..n {
        let old = same;
        sum = sum + old;
        same = old;
    }
    store(out[i], sum + same);
}

#[test]
fn constfold() {
    check(Pass::ConstFold, &LITERALS, &[], BLOCK);
    check(Pass::ConstFold, &COMMON_SUBEXPRESSIONS, &[], BLOCK);
    check(Pass::ConstFold, &DEAD_CODE, &[], BLOCK);
    check(Pass::ConstFold, &KNOWN_BRANCH, &[], BLOCK);
    check(Pass::ConstFold, &UNCHANGED_VALUE, &[], BLOCK);
}

// ---- TileLowering ---------------------------------------------------------------------------------------------------

/// Broadcasts, transposes and positions cost nothing: they only change how a map reads its inputs.
#[kernel(grid = (one,))]
fn views(x: Tensor<f32, (m, n)>, out: TensorMut<f32, (m, n)>, unused: Tensor<f32, (one,)>) {
    let tile = load(x[(all(16), all(8))]);
    let column = all(16).index().f32().expand(0);
    store(out[(all(8), all(16))], tile.t() + column);
}

/// Tails, lists of positions and ranges that may begin below 0 are guarded element by element.
#[kernel(grid = (n.div_ceil(BLOCK),))]
fn guards(x: Tensor<f32, (n,)>, ids: Tensor<i32, (n,)>, out: TensorMut<f32, (n,)>) {
    let j = tile_id(0, BLOCK);
    let picked = load(x[load(ids[j])]);
    store(out[j], picked + load_or(x[j - 1], 1.0));
}

#[test]
fn tilelowering() {
    check(Pass::TileLowering, &VIEWS, &[], BLOCK);
    check(Pass::TileLowering, &GUARDS, &[], BLOCK);
    // Operands of a product stay in memory: the primitive reads them.
    let tiles: Constants = &[("BM", 4), ("BN", 16), ("BK", 512)];
    check(Pass::TileLowering, &iron_std::mlx::matmul::MATMUL, &["int8", "q4_0"], tiles);
    // `load(w[(row, j)]).f32()` decodes a piece of a row.
    check(Pass::TileLowering, &iron_std::mlx::gather::EMBED, &["q4_0"], &[("BLOCK", 64)]);
}

// ---- Fusion ---------------------------------------------------------------------------------------------------------

/// Loads, arithmetic and the store over one index space become one map.
#[kernel(grid = (n.div_ceil(BLOCK),))]
fn elementwise_chain(x: Tensor<f32, (n,)>, y: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let j = tile_id(0, BLOCK);
    let v = load(x[j]);
    store(out[j], v * sigmoid(v) * load(y[j]));
}

/// What follows a product runs in one map with its store.
#[kernel(grid = (m.div_ceil(16),))]
fn epilogue(
    x: Activations<f32, (m, k)>,
    w: Quantized<q8_0, (n, k)>,
    bias: Tensor<f32, (n,)>,
    out: TensorMut<f32, (m, n)>,
) {
    let i = tile_id(0, 16);
    let mut acc = zeros::<f32>((16, 32));
    for p in tiles(k, 256) {
        acc = dot(load(x[(i, p)]), load(w[(all(32), p)]), acc);
    }
    store(out[(i, all(32))], (acc + load(bias[all(32)]).expand(0)).max(0.0));
}

/// A fold needs every element before its result exists: what uses the result is another map.
#[kernel(grid = (rows,))]
fn reduction(x: Tensor<f32, (rows, n)>, out: TensorMut<f32, (rows, n)>) {
    let row = program_id(0);
    let v = load(x[(row, all(BLOCK))]);
    let e = exp(v - max(v));
    store(out[(row, all(BLOCK))], e / sum(e));
}

/// A load that follows a store to the same tensor stays behind it, at every point.
#[kernel(grid = (one,))]
fn store_hazard(y: TensorMut<f32, (n,)>, unused: Tensor<f32, (one,)>) {
    store(y[all(BLOCK) + 1], load(y[all(BLOCK)]) * 2.0);
    store(y[all(BLOCK)], load(y[all(BLOCK)]) + 1.0);
}

/// What a loop does not change is computed before it.
#[kernel(grid = (one,))]
fn loop_invariant(
    x: Tensor<f32, (n,)>,
    out: TensorMut<f32, (n,)>,
    scale: f32,
    unused: Tensor<f32, (one,)>,
) {
    for p in 0..4 {
        let weights = exp(load(x[all(BLOCK)]));
        store(out[all(BLOCK) + p * BLOCK], weights * rsqrt(scale));
    }
}

/// Memory is read before a loop only when the loop is known to run: here `which` may name no row.
#[kernel(grid = (one,))]
fn loop_that_may_not_run(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (n,)>,
    count: i32,
    which: i32,
    unused: Tensor<f32, (one,)>,
) {
    for p in 0..count {
        store(out[all(BLOCK) + p * BLOCK], load(x[(which, all(BLOCK))]));
    }
}

#[test]
fn fusion() {
    for function in [
        &ELEMENTWISE_CHAIN,
        &EPILOGUE,
        &REDUCTION,
        &STORE_HAZARD,
        &LOOP_INVARIANT,
        &LOOP_THAT_MAY_NOT_RUN,
    ] {
        check(Pass::Fusion, function, &[], BLOCK);
    }
}

// ---- Schedule (CPU) -------------------------------------------------------------------------------------------------

/// A small tile lives in vector registers, a large one in memory; a loop updates it in place.
#[kernel(grid = (one,))]
fn registers_and_memory(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    unused: Tensor<f32, (one,)>,
) {
    let mut small = zeros::<f32>((64,));
    let mut large = zeros::<f32>((ROWS, COLUMNS));
    for p in tiles(m, ROWS) {
        small += load(x[(p.start(), all(64))]);
        large += load(x[(p, all(COLUMNS))]);
    }
    store(out[(all(ROWS), all(COLUMNS))], large);
    store(out[(ROWS, all(64))], small);
}

/// A tile that is read again later is copied, not overwritten.
#[kernel(grid = (one,))]
fn copied_when_read_later(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    unused: Tensor<f32, (one,)>,
) {
    let mut start = zeros::<f32>((ROWS, COLUMNS));
    for p in tiles(m, ROWS) {
        start += load(x[(p, all(COLUMNS))]);
    }
    let mut acc = start;
    for p in tiles(m, ROWS) {
        acc = acc * load(x[(p, all(COLUMNS))]);
    }
    store(out[(all(ROWS), all(COLUMNS))], acc - start);
}

/// Two tiles that change places need a copy of one.
#[kernel(grid = (one,))]
fn exchanged(
    x: Tensor<f32, (m, n)>,
    out: TensorMut<f32, (m, n)>,
    count: i32,
    unused: Tensor<f32, (one,)>,
) {
    let mut a = zeros::<f32>((ROWS, COLUMNS));
    let mut b = load(x[(all(ROWS), all(COLUMNS))]);
    for p in 0..count {
        let old = a;
        a = b;
        b = old;
    }
    store(out[(all(ROWS), all(COLUMNS))], a - b);
}

#[test]
fn schedule() {
    check(Pass::Schedule, &REGISTERS_AND_MEMORY, &[], LARGE);
    check(Pass::Schedule, &COPIED_WHEN_READ_LATER, &[], LARGE);
    check(Pass::Schedule, &EXCHANGED, &[], LARGE);
}

// ---- Vectorize ------------------------------------------------------------------------------------------------------

/// A product that only a sum uses is rounded once, with the sum; maps run 16 elements at a time.
#[kernel(grid = (n.div_ceil(BLOCK),))]
fn multiply_add(x: Tensor<f32, (n,)>, y: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let j = tile_id(0, BLOCK);
    let (a, b) = (load(x[j]), load(y[j]));
    let shared = a * a;
    store(out[j], (a * b + 1.0) - (shared + shared * b));
}

#[test]
fn vectorize() {
    check(Pass::Vectorize, &MULTIPLY_ADD, &[], BLOCK);
}

// ---- the text -------------------------------------------------------------------------------------------------------

fn check_text(function: &'static Function, bindings: &[&str], constants: Constants) {
    let instance = support::instance(function, bindings, constants);
    let kernel = compile_cpu(&instance, &support::standard(), &Options::default())
        .unwrap_or_else(|fault| panic!("{fault}"));
    let text = cpu::emit(&kernel, &instance.stem()).unwrap_or_else(|fault| panic!("{fault}"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{}.rs.txt", instance.stem()));
    if let Some(difference) = support::differs(&path, &text) {
        panic!("{difference}");
    }
}

#[test]
fn emitted_cpu_text() {
    check_text(&iron_std::mlx::rms_norm::RMS_NORM, &["f32"], &[("BLOCK", 64)]);
    let tiles: Constants = &[("BM", 4), ("BN", 16), ("BK", 512)];
    check_text(&iron_std::mlx::matmul::MATMUL, &["int8", "q4_0"], tiles);
    let attention: Constants = &[("BM", 4), ("HEAD_DIM", 64), ("PAGE", 64)];
    check_text(&iron_std::mlx::attention::ATTENTION, &["f16"], attention);
}
