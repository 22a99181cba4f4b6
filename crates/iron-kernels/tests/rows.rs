//! Norms, activations, softmax, rotary embeddings: each instance against its f64 reference, at odd sizes.

mod common;

use common::{activations, close, on_every_level, values, weights, wide};
use iron_runtime::Format;
use iron_runtime::{Activations, DType, Device, Tensor};
use iron_std::butter::quantize::quantize_reference;
use iron_std::mlx::elementwise::{gelu_mul_reference, silu_mul_reference};
use iron_std::mlx::rms_norm::rms_norm_reference;
use iron_std::mlx::rope::rope_reference;
use iron_std::mlx::softmax::{argmax_reference, softmax_reference};
use iron_std::reference::{Random, decode, random_weights};

fn tensor(values: &[f32], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape).expect("valid shape")
}

fn run(
    device: &Device,
    encode: impl FnOnce(&iron_runtime::CommandBuffer) -> iron_runtime::Result<()>,
) {
    let cmd = device.command_buffer();
    encode(&cmd).expect("encodes");
    cmd.run().expect("runs");
}

/// Row lengths: int8 activations come in blocks of 32, plain ones in any.
fn lengths(kind: &str) -> &'static [usize] {
    if kind == "int8" { &[32, 96, 576, 1056] } else { &[1, 7, 64, 100, 577] }
}

/// int8 keeps 8 bits a block; plain activations are exact to f32 rounding.
fn tolerance(kind: &str) -> f64 {
    if kind == "int8" { 3e-2 } else { 2e-6 }
}

#[test]
fn norms_equal_the_reference() {
    on_every_level(|device| {
        let mut random = Random(3);
        for kind in ["f32", "int8"] {
            for n in lengths(kind) {
                let rows = 3;
                let (x, delta) = (random.values(rows * n, 3.0), random.values(rows * n, 1.0));
                let weight = random.values(*n, 2.0);
                let (eps, offset) = (1e-3, 1.0);
                let out = activations(kind, rows, *n);
                run(device, |cmd| {
                    iron_kernels::rms_norm(
                        cmd,
                        &tensor(&x, &[rows, *n]),
                        &tensor(&weight, &[*n]),
                        &out,
                        eps,
                        offset,
                    )
                });
                let reference = |x: &[f32]| -> Vec<f64> {
                    x.chunks(*n)
                        .flat_map(|row| {
                            rms_norm_reference(
                                &wide(row),
                                &wide(&weight),
                                f64::from(eps),
                                f64::from(offset),
                            )
                        })
                        .collect()
                };
                close(
                    &format!("rms_norm {kind} {n}"),
                    &values(&out),
                    &reference(&x),
                    tolerance(kind),
                );

                let residual = tensor(&x, &[rows, *n]);
                run(device, |cmd| {
                    iron_kernels::add_rms_norm(
                        cmd,
                        &residual,
                        &tensor(&delta, &[rows, *n]),
                        &tensor(&weight, &[*n]),
                        &out,
                        eps,
                        offset,
                    )
                });
                let sums: Vec<f32> = x.iter().zip(&delta).map(|(a, b)| a + b).collect();
                assert_eq!(residual.read_f32().expect("readable"), sums);
                close(
                    &format!("add_rms_norm {kind} {n}"),
                    &values(&out),
                    &reference(&sums),
                    tolerance(kind),
                );
            }
        }
    });
}

#[test]
fn gated_activations_equal_the_reference() {
    on_every_level(|device| {
        let mut random = Random(4);
        for kind in ["f32", "int8"] {
            for n in lengths(kind) {
                let rows = 2;
                let (gate, up) = (random.values(rows * n, 6.0), random.values(rows * n, 2.0));
                let (g, u) = (tensor(&gate, &[rows, *n]), tensor(&up, &[rows, *n]));
                let out = activations(kind, rows, *n);
                let expected = |f: fn(f64, f64) -> f64| -> Vec<f64> {
                    gate.iter().zip(&up).map(|(g, u)| f(f64::from(*g), f64::from(*u))).collect()
                };
                run(device, |cmd| iron_kernels::silu_mul(cmd, &g, &u, &out));
                close(
                    &format!("silu_mul {kind} {n}"),
                    &values(&out),
                    &expected(silu_mul_reference),
                    tolerance(kind),
                );
                run(device, |cmd| iron_kernels::gelu_mul(cmd, &g, &u, &out));
                close(
                    &format!("gelu_mul {kind} {n}"),
                    &values(&out),
                    &expected(gelu_mul_reference),
                    tolerance(kind),
                );
                run(device, |cmd| iron_kernels::gelu_erf_mul(cmd, &g, &u, &out));
                let exact = |g: f64, u: f64| 0.5 * g * (1.0 + erf(g / 2.0_f64.sqrt())) * u;
                close(
                    &format!("gelu_erf_mul {kind} {n}"),
                    &values(&out),
                    &expected(exact),
                    tolerance(kind),
                );
            }
        }
    });
}

/// The error function by its Maclaurin series, which converges for every argument used here.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn sums_and_biases_are_exact() {
    on_every_level(|device| {
        let mut random = Random(5);
        for n in [1, 16, 129, 300] {
            let (a, b, bias) =
                (random.values(3 * n, 1.0), random.values(3 * n, 1.0), random.values(n, 1.0));
            let out = Tensor::zeros(DType::F32, &[3, n]).expect("valid shape");
            run(device, |cmd| {
                iron_kernels::add(cmd, &tensor(&a, &[3, n]), &tensor(&b, &[3, n]), &out)
            });
            let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            assert_eq!(out.read_f32().expect("readable"), expected);
            let x = tensor(&a, &[3, n]);
            run(device, |cmd| iron_kernels::add_bias(cmd, &x, &tensor(&bias, &[n])));
            let expected: Vec<f32> = a.iter().enumerate().map(|(at, a)| a + bias[at % n]).collect();
            assert_eq!(x.read_f32().expect("readable"), expected);
        }
    });
}

#[test]
fn soft_caps_equal_the_reference() {
    on_every_level(|device| {
        let mut random = Random(10);
        for n in [1, 16, 129, 300] {
            let logits = random.values(3 * n, 50.0);
            let x = tensor(&logits, &[3, n]);
            run(device, |cmd| iron_kernels::soft_cap(cmd, &x, 30.0));
            let expected: Vec<f64> =
                logits.iter().map(|logit| 30.0 * (f64::from(*logit) / 30.0).tanh()).collect();
            let found = wide(&x.read_f32().expect("readable"));
            close(&format!("soft_cap {n}"), &found, &expected, 2e-6);
        }
    });
}

#[test]
fn softmax_and_argmax_equal_the_reference() {
    on_every_level(|device| {
        let mut random = Random(6);
        for n in [1, 5, 64, 1000, 4099] {
            let x = random.values(2 * n, 20.0);
            let input = tensor(&x, &[2, n]);
            let out = Tensor::zeros(DType::F32, &[2, n]).expect("valid shape");
            run(device, |cmd| iron_kernels::softmax(cmd, &input, &out));
            let expected: Vec<f64> =
                x.chunks(n).flat_map(|row| softmax_reference(&wide(row))).collect();
            close(
                &format!("softmax {n}"),
                &wide(&out.read_f32().expect("readable")),
                &expected,
                1e-5,
            );
            let at = Tensor::zeros(DType::I32, &[2]).expect("valid shape");
            run(device, |cmd| iron_kernels::argmax(cmd, &input, &at));
            let expected: Vec<i32> =
                x.chunks(n).map(|row| argmax_reference(&wide(row)) as i32).collect();
            assert_eq!(at.read::<i32>().expect("readable"), expected);
        }
        let ties = tensor(&[1.0, 3.0, 3.0, -2.0], &[1, 4]);
        let at = Tensor::zeros(DType::I32, &[1]).expect("valid shape");
        run(device, |cmd| iron_kernels::argmax(cmd, &ties, &at));
        assert_eq!(at.read::<i32>().expect("readable"), [1], "of equal ones the first");
    });
}

#[test]
fn rotary_embeddings_equal_the_reference() {
    on_every_level(|device| {
        let mut random = Random(7);
        for (heads, head_dim, half) in [(3, 64, 32), (1, 20, 10), (2, 80, 16), (5, 128, 64)] {
            let rows = 4;
            let x = random.values(rows * heads * head_dim, 1.0);
            let positions = [0, 1, 100, 8191];
            let inv_freq: Vec<f32> =
                (0..half).map(|i| 10_000_f32.powf(-(i as f32) / half as f32)).collect();
            for interleaved in [false, true] {
                let state = tensor(&x, &[rows, heads, head_dim]);
                let at = Tensor::from_slice(&positions, &[rows]).expect("valid shape");
                let frequencies = tensor(&inv_freq, &[half]);
                run(device, |cmd| {
                    if interleaved {
                        iron_kernels::rope_interleaved(cmd, &state, &at, &frequencies, 1.5)
                    } else {
                        iron_kernels::rope(cmd, &state, &at, &frequencies, 1.5)
                    }
                });
                let expected: Vec<f64> = x
                    .chunks(head_dim)
                    .enumerate()
                    .flat_map(|(row, head)| {
                        // The angle is an f32 product by definition: checkpoints were trained with it.
                        let position = positions[row / heads] as f32;
                        let mut out = wide(head);
                        for (i, frequency) in inv_freq.iter().enumerate() {
                            let angle = [f64::from(frequency * position)];
                            let pair = if interleaved { [2 * i, 2 * i + 1] } else { [i, i + half] };
                            let rotated = rope_reference(
                                &[out[pair[0]], out[pair[1]]],
                                &angle,
                                1.0,
                                1.5,
                                true,
                            );
                            (out[pair[0]], out[pair[1]]) = (rotated[0], rotated[1]);
                        }
                        out
                    })
                    .collect();
                close(
                    &format!("rope {heads}x{head_dim} {interleaved}"),
                    &wide(&state.read_f32().expect("readable")),
                    &expected,
                    2e-6,
                );
            }
        }
    });
}

#[test]
fn embeddings_are_decoded_rows() {
    on_every_level(|device| {
        let mut random = Random(8);
        for format in Format::ALL {
            let (vocab, hidden) = (37, if format.block() == 256 { 512 } else { 96 });
            let storage = random_weights(&mut random, format, vocab * hidden);
            let table = weights(format, &storage, vocab, hidden);
            let ids = [0, 36, 17, 1000, -5];
            let out = Tensor::zeros(DType::F32, &[ids.len(), hidden]).expect("valid shape");
            let at = Tensor::from_slice(&ids, &[ids.len()]).expect("valid shape");
            run(device, |cmd| iron_kernels::embed(cmd, &table, &at, &out, 2.0));
            let decoded = decode(format, &storage);
            let expected: Vec<f64> = [0, 36, 17, 36, 0]
                .iter()
                .flat_map(|row: &usize| {
                    decoded[row * hidden..(row + 1) * hidden]
                        .iter()
                        .map(|v| v * 2.0)
                        .collect::<Vec<_>>()
                })
                .collect();
            close(
                &format!("embed {format}"),
                &wide(&out.read_f32().expect("readable")),
                &expected,
                1e-6,
            );
        }
    });
}

#[test]
fn taken_rows_are_copies_and_missing_ones_zero() {
    on_every_level(|device| {
        let x: Vec<f32> = (0..30).map(|v| v as f32).collect();
        let at = Tensor::from_slice(&[2, -1, 0, 3], &[4]).expect("valid shape");
        let out = Tensor::from_slice(&[9.0_f32; 40], &[4, 10]).expect("valid shape");
        run(device, |cmd| iron_kernels::take_rows(cmd, &tensor(&x, &[3, 10]), &at, &out));
        let expected = [&x[20..30], &[0.0; 10], &x[..10], &[0.0; 10]].concat();
        assert_eq!(out.read_f32().expect("readable"), expected);
    });
}

#[test]
fn quantised_blocks_equal_the_reference() {
    on_every_level(|device| {
        let mut random = Random(9);
        for k in [32, 160, 1056] {
            let mut x = random.values(2 * k, 5.0);
            x[..32].fill(0.0);
            let out = activations("int8", 2, k);
            run(device, |cmd| iron_kernels::quantize(cmd, &tensor(&x, &[2, k]), &out));
            let Activations::Int8 { q, scale, sum } = &out else { panic!("int8") };
            let (q, scale, sum) =
                (q.read::<i8>().unwrap(), scale.read::<f32>().unwrap(), sum.read::<f32>().unwrap());
            for (at, block) in x.chunks(32).enumerate() {
                let (expected_q, expected_scale, expected_sum) = quantize_reference(block);
                assert_eq!(q[at * 32..][..32], expected_q, "codes of block {at}");
                assert_eq!(scale[at].to_bits(), expected_scale.to_bits(), "scale of block {at}");
                assert_eq!(sum[at].to_bits(), expected_sum.to_bits(), "sum of block {at}");
            }
        }
    });
}
