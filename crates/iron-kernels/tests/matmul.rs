//! Products: every instance against exact arithmetic, and bit-identical whatever the batch.

mod common;

use common::{activations, close, on_every_level, values, weights, wide};
use iron_kernels::{matmul, quantize};
use iron_runtime::Format;
use iron_runtime::{Activations, DType, Device, QuantizedTensor, Tensor};
use iron_std::mlx::matmul::matmul_reference;
use iron_std::reference::{Random, decode, random_weights};

fn instances() -> Vec<(&'static str, Format)> {
    let (_, choices) =
        iron_std::INSTANCES.iter().find(|(name, _)| *name == "matmul").expect("matmul is compiled");
    choices.iter().map(|choice| (choice[0], Format::parse(choice[1]).expect("a format"))).collect()
}

/// Depths that a format allows and that are no multiple of a tile.
fn depths(kind: &str, format: Format) -> &'static [usize] {
    match (format.block(), kind) {
        (256, _) => &[256, 768],
        (32, _) => &[32, 96, 1056],
        (_, _) => &[5, 72, 1100],
    }
}

fn product(device: &Device, x: &Activations, w: &QuantizedTensor) -> Vec<f32> {
    let out = Tensor::zeros(DType::F32, &[x.shape()[0], w.rows()]).expect("valid shape");
    let cmd = device.command_buffer();
    matmul(&cmd, x, w, &out).expect("encodes");
    cmd.run().expect("runs");
    out.read_f32().expect("readable")
}

fn quantized(device: &Device, kind: &str, x: &[f32], m: usize, k: usize) -> Activations {
    let plain = Tensor::from_slice(x, &[m, k]).expect("valid shape");
    if kind == "f32" {
        return Activations::plain(plain).expect("plain");
    }
    let out = activations(kind, m, k);
    let cmd = device.command_buffer();
    quantize(&cmd, &plain, &out).expect("encodes");
    cmd.run().expect("runs");
    out
}

#[test]
fn every_instance_equals_exact_arithmetic() {
    on_every_level(|device| {
        let mut random = Random(1);
        for (kind, format) in instances() {
            for k in depths(kind, format) {
                for (m, n) in [(1, 16), (1, 100), (3, 33), (4, 17), (7, 70), (40, 65), (131, 80)] {
                    let storage = random_weights(&mut random, format, n * k);
                    let w = weights(format, &storage, n, *k);
                    let x = quantized(device, kind, &random.values(m * k, 2.0), m, *k);
                    let found = wide(&product(device, &x, &w));
                    let expected =
                        matmul_reference(&values(&x), &decode(format, &storage), m, n, *k);
                    close(
                        &format!("{} {kind} x {format} {m}x{n}x{k}", device.isa()),
                        &found,
                        &expected,
                        2e-5,
                    );
                }
            }
        }
    });
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    on_every_level(|device| {
        let mut random = Random(2);
        for (kind, format) in instances() {
            let k = *depths(kind, format).last().expect("some depth");
            let (m, n) = (131, 70);
            let storage = random_weights(&mut random, format, n * k);
            let w = weights(format, &storage, n, k);
            let x = quantized(device, kind, &random.values(m * k, 2.0), m, k);
            let whole = product(device, &x, &w);
            for rows in [0..1, 5..6, 7..10, 3..40, 130..131] {
                let part = product(device, &x.rows(rows.clone()).expect("in range"), &w);
                let expected = &whole[rows.start * n..rows.end * n];
                for (found, expected) in part.iter().zip(expected) {
                    assert_eq!(
                        found.to_bits(),
                        expected.to_bits(),
                        "{} {kind} x {format} rows {rows:?}",
                        device.isa()
                    );
                }
            }
        }
    });
}
