//! Compiles kernels through all passes and runs their text.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod quant;

use std::collections::BTreeMap;

use iron_codegen::compile::{Options, compile_gpu};
use iron_codegen::passes::schedule::gpu::Machine;
use iron_codegen::passes::typecheck;
use iron_codegen::{Binding, Instance, target};
use iron_conformance::{Argument, Emulated, Order, Target, call, unavailable};
use iron_core::DType;
use iron_core::ir::Kernel;
use iron_core::syntax::Function;

/// The targets that can run here; says so when there are none.
pub fn targets() -> Vec<Target> {
    if let Some(reason) = unavailable() {
        eprintln!("SKIPPED: {reason}");
        return Vec::new();
    }
    vec![Target::Metal, Target::Cuda]
}

/// A kernel and its compiled text.
pub struct Compiled {
    pub kernel: Kernel,
    pub text: String,
    pub emulated: Emulated,
}

/// Runs all passes; the text is printed when a test fails.
pub fn lower(
    target: Target,
    function: &'static Function,
    bindings: &[Binding],
    constants: &[(&str, i64)],
    threads: u32,
) -> (Kernel, String) {
    let instance = Instance {
        function,
        bindings: bindings.to_vec(),
        constants: constants
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect::<BTreeMap<_, _>>(),
        schedule: "test".into(),
        threads: Some(threads),
        stages: None,
    };
    let library: typecheck::Library =
        iron_std::functions().into_iter().map(|f| (f.name, f)).collect();
    let machine = match target {
        Target::Metal => Machine::METAL,
        Target::Cuda => Machine::CUDA,
    };
    let options = Options::default();
    let kernel =
        compile_gpu(&instance, &library, &options, machine).unwrap_or_else(|e| panic!("{e}"));
    let text = match target {
        Target::Metal => target::metal::emit(&[&kernel]),
        Target::Cuda => target::cuda::emit(&[&kernel]),
    }
    .unwrap_or_else(|e| panic!("{e}"));
    (kernel, text)
}

/// [`lower`], then compiles the text for the emulator.
pub fn compile(
    target: Target,
    function: &'static Function,
    bindings: &[Binding],
    constants: &[(&str, i64)],
    threads: u32,
) -> Compiled {
    let (kernel, text) = lower(target, function, bindings, constants, threads);
    println!("{text}");
    let emulated = Emulated::compile(target, &text, &kernel.name).unwrap_or_else(|e| panic!("{e}"));
    Compiled { kernel, text, emulated }
}

impl Compiled {
    /// Runs in every thread order; the last result stays.
    pub fn run(&self, dims: &[i64], arguments: &mut [Argument<'_>]) {
        self.run_ordered(dims, arguments, Order::Forward);
    }

    pub fn run_ordered(&self, dims: &[i64], arguments: &mut [Argument<'_>], order: Order) {
        assert_eq!(dims.len(), self.kernel.dims.len(), "dimensions are {:?}", self.kernel.dims);
        call(&self.emulated, &self.kernel, dims, arguments, order)
            .unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Numbers that are the same on every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    pub fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// In -1 .. 1.
    pub fn float(&mut self) -> f32 {
        self.next() as f32 / 2_147_483_648.0 - 1.0
    }

    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// Stores numbers as `dtype`.
pub fn bytes(values: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F16 => {
            values.iter().flat_map(|v| half::f16::from_f32(*v).to_bits().to_ne_bytes()).collect()
        }
        DType::BF16 => {
            values.iter().flat_map(|v| half::bf16::from_f32(*v).to_bits().to_ne_bytes()).collect()
        }
        _ => values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
    }
}

/// The inverse of [`bytes`].
pub fn floats(bytes: &[u8], dtype: DType) -> Vec<f32> {
    let short = |chunk: &[u8]| u16::from_ne_bytes([chunk[0], chunk[1]]);
    match dtype {
        DType::F16 => bytes.chunks(2).map(|c| half::f16::from_bits(short(c)).to_f32()).collect(),
        DType::BF16 => bytes.chunks(2).map(|c| half::bf16::from_bits(short(c)).to_f32()).collect(),
        _ => bytes.chunks(4).map(|c| f32::from_ne_bytes([c[0], c[1], c[2], c[3]])).collect(),
    }
}

/// Integers as stored.
pub fn int_bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}
