//! What Fusion, Schedule and Vectorize are worth on the CPU: the same kernels with all passes and with some left out, timed
//! in alternation on one thread, and compared.
//!
//! `cargo run --release --manifest-path benches/passes/Cargo.toml`

mod cases;

use std::time::Instant;

use iron_runtime::{CommandBuffer, CpuOptions, Device, Result};

/// The kernels as compiled with a choice of passes.
macro_rules! variant {
    ($name:ident) => {
        mod $name {
            #![allow(
                non_snake_case,
                unused_imports,
                unused_variables,
                unused_parens,
                unused_mut,
                unused_assignments,
                dead_code,
                clippy::all,
                reason = "generated text is regular rather than minimal"
            )]
            use iron_runtime::tile::{self, Isa};
            use iron_runtime::{
                ActivationKind, Activations, Arg, Binding, CommandBuffer, DType, DimExpr, Element,
                Format, InstanceDescriptor, KernelDescriptor, Launch, ParamDescriptor, ParamKind,
                QuantizedTensor, Result, ScheduleDescriptor, Tensor, cpu_entries,
            };
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), "/kernels.rs"));
            crate::cases::encoders!();
        }
    };
}
variant!(all);
variant!(without_fusion);
variant!(without_schedule);
variant!(without_vectorize);
variant!(without_fusion_and_schedule);

/// Encodes one of the cases with the kernels of one variant.
type Encode = fn(&CommandBuffer, &cases::Case) -> Result<()>;

const VARIANTS: [(&str, Encode); 5] = [
    ("all passes", all::encode),
    ("without fusion", without_fusion::encode),
    ("without schedule", without_schedule::encode),
    ("without vectorize", without_vectorize::encode),
    ("without fusion and schedule", without_fusion_and_schedule::encode),
];

/// Alternations, of which the median counts.
const ROUNDS: usize = 9;
/// What one timing lasts at least.
const SECONDS: f64 = 0.02;

fn main() {
    let device = Device::cpu(CpuOptions { threads: Some(1), isa: None }).expect("a CPU device");
    println!(
        "{:26} {:>12} {:>11} {:>11} {:>11} {:>11}",
        "kernel", "all passes", "-fusion", "-schedule", "-vectorize", "-fus. -sch."
    );
    for case in cases::all(&device) {
        let expected = case.run(&device, VARIANTS[0].1);
        for (name, encode) in &VARIANTS[1..] {
            let error = difference(&case.run(&device, *encode), &expected);
            assert!(error < 1e-2, "{} {name}: differs by {error:.1e} of the rms", case.name);
        }
        let repeats = repeats(&device, &case);
        let mut times = [const { Vec::new() }; VARIANTS.len()];
        for _ in 0..ROUNDS {
            for ((_, encode), times) in VARIANTS.iter().zip(&mut times) {
                times.push(time(&device, &case, *encode, repeats));
            }
        }
        let [all, rest @ ..] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        });
        let ratios: String =
            rest.iter().map(|time| format!(" {:>11}", format!("{:.2}x", time / all))).collect();
        println!("{:26} {:9.1} us{ratios}", case.name, all * 1e6);
    }
}

/// How often a case runs for one timing.
fn repeats(device: &Device, case: &cases::Case) -> usize {
    let once = time(device, case, VARIANTS[0].1, 3);
    (SECONDS / once).ceil() as usize
}

/// Seconds of one call.
fn time(device: &Device, case: &cases::Case, encode: Encode, repeats: usize) -> f64 {
    let commands = device.command_buffer();
    for _ in 0..repeats {
        encode(&commands, case).expect("encodes");
    }
    let start = Instant::now();
    commands.run().expect("runs");
    start.elapsed().as_secs_f64() / repeats as f64
}

/// The largest difference, in units of the root mean square.
fn difference(found: &[f32], expected: &[f32]) -> f32 {
    let rms =
        (expected.iter().map(|v| v * v).sum::<f32>() / expected.len() as f32).sqrt().max(1e-30);
    found.iter().zip(expected).map(|(a, b)| (a - b).abs() / rms).fold(0.0, f32::max)
}
