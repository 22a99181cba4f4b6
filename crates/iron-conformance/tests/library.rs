//! Every kernel of iron-std that a GPU can take compiles for both targets, and the small ones agree with their references.

mod support;

use iron_codegen::Binding;
use iron_conformance::{Argument, Target};
use iron_core::ir::ActivationKind;
use iron_core::syntax::Bound;
use iron_core::{DType, Format};
use support::{Random, bytes, compile, floats, int_bytes, quant, targets};

#[test]
fn every_kernel_compiles() {
    for target in targets() {
        for function in iron_std::functions() {
            if function.grid.is_empty() || function.name == "quantize" {
                continue;
            }
            let bindings: Vec<Binding> = function
                .generics
                .iter()
                .map(|generic| match generic.bound {
                    Bound::Float => Binding::DType(DType::F16),
                    Bound::Int => Binding::DType(DType::I32),
                    Bound::Format => Binding::Format(Format::Q4K),
                    Bound::Activation => Binding::Activation(ActivationKind::Plain(DType::F16)),
                })
                .collect();
            let mut constants = vec![("BLOCK", 256), ("BM", 16), ("BN", 32), ("BK", 32)];
            constants.extend(
                function
                    .variants
                    .iter()
                    .map(|variant| (variant.name, i64::from(variant.values[0]))),
            );
            compile(target, function, &bindings, &constants, 128);
        }
    }
}

#[test]
fn softmax_agrees_with_its_reference() {
    for target in targets() {
        let kernel = compile(target, &iron_std::mlx::softmax::SOFTMAX, &[], &[("BLOCK", 256)], 64);
        let (rows, n) = (3, 777);
        let x: Vec<f32> = Random::new(5).floats(rows * n).iter().map(|v| v * 10.0).collect();
        let mut out = vec![0u8; rows * n * 4];
        let mut arguments = [
            Argument::Input(&bytes(&x, DType::F32), &[n as i64]),
            Argument::Output(&mut out, &[n as i64]),
        ];
        kernel.run(&[rows as i64, n as i64], &mut arguments);
        for (row, found) in floats(&out, DType::F32).chunks(n).enumerate() {
            let values: Vec<f64> =
                x[row * n..(row + 1) * n].iter().map(|v| f64::from(*v)).collect();
            for (found, expected) in
                found.iter().zip(iron_std::mlx::softmax::softmax_reference(&values))
            {
                assert!(
                    (f64::from(*found) - expected).abs() < 1e-6 * expected + 1e-9,
                    "{target:?}"
                );
            }
        }
    }
}

#[test]
fn argmax_finds_the_first_of_equal_maxima() {
    for target in targets() {
        let kernel = compile(target, &iron_std::mlx::softmax::ARGMAX, &[], &[("BLOCK", 256)], 128);
        let (rows, n) = (4, 1001);
        let mut x = Random::new(6).floats(rows * n);
        let expected = [999, 700, 0, 1000];
        for (row, at) in expected.iter().enumerate() {
            x[row * n + at] = 3.0;
        }
        x[n + 900] = 3.0;
        let mut out = vec![0u8; rows * 4];
        let mut arguments =
            [Argument::Input(&bytes(&x, DType::F32), &[n as i64]), Argument::Output(&mut out, &[])];
        kernel.run(&[rows as i64, n as i64], &mut arguments);
        assert_eq!(out, int_bytes(&expected.map(|at| at as i32)), "{target:?}");
    }
}

#[test]
fn embed_decodes_rows_of_every_format() {
    for target in targets() {
        for format in Format::ALL {
            let kernel = compile(
                target,
                &iron_std::mlx::gather::EMBED,
                &[Binding::Format(format)],
                &[("BLOCK", 192)],
                128,
            );
            let (vocab, hidden) = (9, 512);
            let (table, values) = quant::weights(format, vocab, hidden, &mut Random::new(8));
            let ids = [4, 0, 8, 100, -3];
            let mut out = vec![0u8; ids.len() * hidden * 4];
            let dims = |name: &str| match name {
                "vocab" => vocab as i64,
                "hidden" => hidden as i64,
                "rows" => ids.len() as i64,
                other => panic!("unknown dimension {other}"),
            };
            let dims: Vec<i64> = kernel.kernel.dims.iter().map(|name| dims(name)).collect();
            let mut arguments = [
                Argument::Input(&table, &[hidden as i64]),
                Argument::Input(&int_bytes(&ids), &[]),
                Argument::Output(&mut out, &[hidden as i64]),
                Argument::F32(2.0),
            ];
            kernel.run(&dims, &mut arguments);
            for (row, found) in floats(&out, DType::F32).chunks(hidden).enumerate() {
                let id = ids[row].clamp(0, vocab as i32 - 1) as usize;
                for (found, expected) in found.iter().zip(&values[id * hidden..]) {
                    let expected = expected * 2.0;
                    let error = (f64::from(*found) - expected).abs();
                    assert!(
                        error <= 1e-6 * expected.abs() + 1e-7,
                        "{target:?} {format}: {found} is not {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn gelu_by_the_error_function_agrees_with_its_reference() {
    for target in targets() {
        let binding = [Binding::Activation(ActivationKind::Plain(DType::F32))];
        let kernel = compile(
            target,
            &iron_std::mlx::elementwise::GELU_ERF_MUL,
            &binding,
            &[("BLOCK", 256)],
            128,
        );
        let n = 900;
        let gate: Vec<f32> = (0..n).map(|i| (i as f32 - 450.0) / 80.0).collect();
        let up = vec![1.0f32; n];
        let mut out = vec![0u8; n * 4];
        let mut arguments = [
            Argument::Input(&bytes(&gate, DType::F32), &[n as i64]),
            Argument::Input(&bytes(&up, DType::F32), &[n as i64]),
            Argument::Output(&mut out, &[n as i64]),
        ];
        kernel.run(&[1, n as i64], &mut arguments);
        for (g, found) in gate.iter().zip(floats(&out, DType::F32)) {
            let g = f64::from(*g);
            let expected = 0.5 * g * (1.0 + erf(g * std::f64::consts::FRAC_1_SQRT_2));
            assert!(
                (f64::from(found) - expected).abs() < 1e-6,
                "{target:?}: gelu({g}) is {expected}, found {found}"
            );
        }
    }
}

/// The error function by its series; enough terms for |x| < 5.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn add_rms_norm_updates_the_residual_that_it_normalises() {
    for target in targets() {
        add_rms_norm(target);
    }
}

fn add_rms_norm(target: Target) {
    let binding = [Binding::Activation(ActivationKind::Plain(DType::F32))];
    let kernel =
        compile(target, &iron_std::mlx::rms_norm::ADD_RMS_NORM, &binding, &[("BLOCK", 256)], 64);
    let (rows, n) = (2, 700);
    let mut random = Random::new(9);
    let (before, delta, weight) =
        (random.floats(rows * n), random.floats(rows * n), random.floats(n));
    let mut residual = bytes(&before, DType::F32);
    let mut out = vec![0u8; rows * n * 4];
    let stride = [n as i64];
    let mut arguments = [
        Argument::Output(&mut residual, &stride),
        Argument::Input(&bytes(&delta, DType::F32), &stride),
        Argument::Input(&bytes(&weight, DType::F32), &[]),
        Argument::Output(&mut out, &stride),
        Argument::F32(1e-6),
        Argument::F32(1.0),
    ];
    kernel.run(&[rows as i64, n as i64], &mut arguments);
    let (residual, out) = (floats(&residual, DType::F32), floats(&out, DType::F32));
    for row in 0..rows {
        let sums: Vec<f64> =
            (row * n..(row + 1) * n).map(|i| f64::from(before[i]) + f64::from(delta[i])).collect();
        let weights: Vec<f64> = weight.iter().map(|v| f64::from(*v)).collect();
        let expected = iron_std::mlx::rms_norm::rms_norm_reference(&sums, &weights, 1e-6, 1.0);
        for i in 0..n {
            assert!((f64::from(residual[row * n + i]) - sums[i]).abs() < 1e-6, "{target:?}");
            assert!((f64::from(out[row * n + i]) - expected[i]).abs() < 1e-5, "{target:?}");
        }
    }
}
