//! Every barrier of an emitted text is there for a reason: without any one of them the emulator finds a fault.

mod support;

use iron_codegen::Binding;
use iron_conformance::{Arg, Argument, Emulated, Error, Order, Target, call};
use iron_core::ir::ActivationKind;
use iron_core::{DType, Format};
use support::{Random, bytes, lower, quant, targets};

const BARRIER: &str = "iron::barrier();";

/// The texts with one barrier less each, and which line it was on.
fn without_one_barrier(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len())
        .filter(|at| lines[*at].trim() == BARRIER)
        .map(|at| {
            let kept: Vec<&str> =
                lines.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, line)| *line).collect();
            (at + 1, kept.join("\n"))
        })
        .collect()
}

/// Whether some thread order shows the fault.
fn is_found(run: impl Fn(Order) -> Result<(), Error>) -> bool {
    Order::ALL.into_iter().any(|order| matches!(run(order), Err(Error::Memory { .. })))
}

#[test]
fn matmul_needs_each_of_its_barriers() {
    for target in targets() {
        let bindings =
            [Binding::Activation(ActivationKind::Plain(DType::F16)), Binding::Format(Format::Q8_0)];
        let constants = [("BM", 16), ("BN", 32), ("BK", 32)];
        let (kernel, text) =
            lower(target, &iron_std::mlx::matmul::MATMUL, &bindings, &constants, 64);
        let (m, n, k) = (16, 32, 96);
        let x = bytes(&Random::new(1).floats(m * k), DType::F16);
        let (w, _) = quant::weights(Format::Q8_0, n, k, &mut Random::new(2));
        let mutants = without_one_barrier(&text);
        assert!(mutants.len() >= 2, "{text}");
        for (line, mutant) in mutants {
            let emulated = Emulated::compile(target, &mutant, &kernel.name).unwrap();
            let found = is_found(|order| {
                let mut out = vec![0u8; m * n * 4];
                let mut arguments = [
                    Argument::Input(&x, &[k as i64]),
                    Argument::Input(&w, &[k as i64]),
                    Argument::Output(&mut out, &[n as i64]),
                ];
                call(&emulated, &kernel, &[m as i64, k as i64, n as i64], &mut arguments, order)
            });
            assert!(found, "{target:?}: the barrier on line {line} is not missed in\n{text}");
        }
    }
}

#[test]
fn softmax_needs_each_of_its_barriers() {
    for target in targets() {
        let (kernel, text) =
            lower(target, &iron_std::mlx::softmax::SOFTMAX, &[], &[("BLOCK", 128)], 64);
        let x = bytes(&Random::new(1).floats(300), DType::F32);
        for (line, mutant) in without_one_barrier(&text) {
            let emulated = Emulated::compile(target, &mutant, &kernel.name).unwrap();
            let found = is_found(|order| {
                let mut out = vec![0u8; 1200];
                let mut arguments =
                    [Argument::Input(&x, &[300]), Argument::Output(&mut out, &[300])];
                call(&emulated, &kernel, &[1, 300], &mut arguments, order)
            });
            if !found {
                println!("{target:?}: the barrier on line {line} is conservative");
            }
        }
    }
}

#[test]
fn a_barrier_of_the_tile_library_is_missed() {
    if targets().is_empty() {
        return;
    }
    // The standalone text holds the library, so that its own barrier can be taken away.
    let (kernel, text) =
        lower(Target::Cuda, &iron_std::mlx::softmax::SOFTMAX, &[], &[("BLOCK", 128)], 64);
    let whole = iron_codegen::target::cuda::standalone(&text);
    let inside = "if (tid % 32 == 0) scratch[tid / 32] = x;\n        barrier();";
    assert!(whole.contains(inside));
    let mutant = whole.replace(inside, "if (tid % 32 == 0) scratch[tid / 32] = x;");
    let emulated = Emulated::compile(Target::Cuda, &mutant, &kernel.name).unwrap();
    let x = bytes(&Random::new(1).floats(300), DType::F32);
    let found = is_found(|order| {
        let mut out = vec![0u8; 1200];
        let mut args = [
            Arg::Input(&x),
            Arg::Value(300i64.to_ne_bytes().to_vec()),
            Arg::Output(&mut out),
            Arg::Value(300i64.to_ne_bytes().to_vec()),
            Arg::Value(1i64.to_ne_bytes().to_vec()),
            Arg::Value(300i64.to_ne_bytes().to_vec()),
        ];
        emulated.run_ordered([1, 1, 1], 64, kernel.launch.shared_bytes, &mut args, order)
    });
    assert!(found);
}
