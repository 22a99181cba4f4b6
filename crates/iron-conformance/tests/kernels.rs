//! Iron's kernels, compiled for both GPU targets and executed by the emulator against f64 references.

mod support;

use iron_conformance::{Argument, Order, Target};
use iron_core::DType;
use iron_core::ir::ActivationKind;
use support::{Compiled, Random, bytes, compile, floats, targets};

fn activation(dtype: DType) -> iron_codegen::Binding {
    iron_codegen::Binding::Activation(ActivationKind::Plain(dtype))
}

fn rms_norm(target: Target, dtype: DType, rows: usize, n: usize) -> f64 {
    let kernel = compile(target, &iron_std::mlx::rms_norm::RMS_NORM, &[activation(dtype)], &[("BLOCK", 512)], 128);
    let mut random = Random::new(1);
    // Rows lie apart, so that a kernel that ignores strides fails.
    let stride = n + 3;
    let x = random.floats(rows * stride);
    let weight = random.floats(n);
    let mut out = vec![0u8; rows * stride * dtype.size()];
    let (strides, none) = ([stride as i64], []);
    kernel.run(
        &[rows as i64, n as i64],
        &mut [
            Argument::Input(&bytes(&x, DType::F32), &strides),
            Argument::Input(&bytes(&weight, DType::F32), &none),
            Argument::Output(&mut out, &strides),
            Argument::F32(1e-5),
            Argument::F32(0.25),
        ],
    );
    let out = floats(&out, dtype);
    let mut worst = 0.0f64;
    for row in 0..rows {
        let values: Vec<f64> = x[row * stride..row * stride + n].iter().map(|v| f64::from(*v)).collect();
        let weights: Vec<f64> = weight.iter().map(|v| f64::from(*v)).collect();
        let expected = iron_std::mlx::rms_norm::rms_norm_reference(&values, &weights, 1e-5, 0.25);
        for (found, expected) in out[row * stride..].iter().zip(expected) {
            worst = worst.max((f64::from(*found) - expected).abs());
        }
    }
    worst
}

#[test]
fn rms_norm_agrees_with_its_reference() {
    for target in targets() {
        for (dtype, tolerance) in [(DType::F32, 2e-6), (DType::F16, 2e-3), (DType::BF16, 2e-2)] {
            let error = rms_norm(target, dtype, 5, 1003);
            println!("rms_norm {target:?} {dtype}: {error:.2e}");
            assert!(error < tolerance, "{target:?} {dtype}: {error}");
        }
    }
}

#[test]
fn thread_order_does_not_change_rms_norm() {
    for target in targets() {
        let kernel: Compiled =
            compile(target, &iron_std::mlx::rms_norm::RMS_NORM, &[activation(DType::F32)], &[("BLOCK", 300)], 96);
        let x = Random::new(7).floats(2 * 777);
        let weight = Random::new(8).floats(777);
        let results: Vec<Vec<u8>> = Order::ALL
            .into_iter()
            .map(|order| {
                let mut out = vec![0u8; 2 * 777 * 4];
                let mut arguments = [
                    Argument::Input(&bytes(&x, DType::F32), &[777]),
                    Argument::Input(&bytes(&weight, DType::F32), &[]),
                    Argument::Output(&mut out, &[777]),
                    Argument::F32(1e-5),
                    Argument::F32(0.0),
                ];
                kernel.run_ordered(&[2, 777], &mut arguments, order);
                out
            })
            .collect();
        assert!(results.iter().all(|result| *result == results[0]), "{target:?}");
    }
}
