//! Iron's kernels, compiled for both GPU targets and executed by the emulator against f64 references.

mod support;

use iron_codegen::Binding;
use iron_conformance::{Argument, Order, Target};
use iron_core::ir::ActivationKind;
use iron_core::{DType, Format};
use support::{Compiled, Random, bytes, compile, floats, int_bytes, quant, targets};

fn activation(dtype: DType) -> iron_codegen::Binding {
    iron_codegen::Binding::Activation(ActivationKind::Plain(dtype))
}

fn rms_norm(target: Target, dtype: DType, rows: usize, n: usize) -> f64 {
    let kernel = compile(
        target,
        &iron_std::mlx::rms_norm::RMS_NORM,
        &[activation(dtype)],
        &[("BLOCK", 512)],
        128,
    );
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
        let values: Vec<f64> =
            x[row * stride..row * stride + n].iter().map(|v| f64::from(*v)).collect();
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
        let kernel: Compiled = compile(
            target,
            &iron_std::mlx::rms_norm::RMS_NORM,
            &[activation(DType::F32)],
            &[("BLOCK", 300)],
            96,
        );
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

/// The largest error of `out = x · wᵀ` relative to the root of the sum of squares of its terms, and the bits of `out`.
fn matmul(
    target: Target,
    dtype: DType,
    format: Format,
    m: usize,
    n: usize,
    k: usize,
    tile: [i64; 3],
) -> (f64, Vec<u8>) {
    let bindings = [activation(dtype), Binding::Format(format)];
    let constants = [("BM", tile[0]), ("BN", tile[1]), ("BK", tile[2])];
    let kernel = compile(target, &iron_std::mlx::matmul::MATMUL, &bindings, &constants, 128);
    let mut random = Random::new(3);
    let x_stride = k + 8;
    let x = bytes(&random.floats(m * x_stride), dtype);
    let (w, w_values) = quant::weights(format, n, k, &mut Random::new(4));
    let out_stride = n + 1;
    let mut out = vec![0xffu8; m * out_stride * 4];
    kernel.run(
        &[m as i64, k as i64, n as i64],
        &mut [
            Argument::Input(&x, &[x_stride as i64]),
            Argument::Input(&w, &[k as i64]),
            Argument::Output(&mut out, &[out_stride as i64]),
        ],
    );
    let x = floats(&x, dtype);
    let mut worst = 0.0f64;
    let found = floats(&out, DType::F32);
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|p| f64::from(x[i * x_stride + p]) * w_values[j * k + p]);
            let (sum, squares) =
                terms.fold((0.0, 0.0), |(sum, squares), term| (sum + term, squares + term * term));
            let error = (f64::from(found[i * out_stride + j]) - sum).abs() / squares.sqrt();
            worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
        }
    }
    (worst, out)
}

#[test]
fn dense_matmul_agrees_with_its_reference() {
    for target in targets() {
        for (dtype, format) in [
            (DType::F16, Format::F16),
            (DType::BF16, Format::BF16),
            (DType::F32, Format::F32),
            (DType::F32, Format::BF16),
        ] {
            let (error, _) = matmul(target, dtype, format, 37, 83, 203, [32, 64, 32]);
            println!("matmul {target:?} {dtype} x {format}: {error:.2e}");
            assert!(error < 5e-6, "{target:?} {dtype} {format}: {error}");
        }
    }
}

#[test]
fn quantised_matmul_agrees_with_its_reference() {
    for target in targets() {
        for (format, k) in [
            (Format::Q8_0, 224),
            (Format::Q4_0, 224),
            (Format::Q4_1, 224),
            (Format::Q5_0, 224),
            (Format::Q5_1, 224),
            (Format::Q2K, 512),
            (Format::Q3K, 512),
            (Format::Q4K, 512),
            (Format::Q5K, 512),
            (Format::Q6K, 512),
        ] {
            // With f32 activations weights are decoded exactly; with f16 and bf16 they are rounded to that type.
            for (dtype, tolerance) in [(DType::F32, 5e-6), (DType::F16, 1e-3), (DType::BF16, 8e-3)]
            {
                let (error, _) = matmul(target, dtype, format, 5, 70, k, [8, 64, 32]);
                println!("matmul {target:?} {dtype} x {format}: {error:.2e}");
                assert!(error < tolerance, "{target:?} {dtype} {format}: {error}");
            }
        }
    }
}

#[test]
fn the_number_of_rows_and_the_tile_do_not_change_a_row_of_matmul() {
    for target in targets() {
        let (n, k) = (70, 203);
        let row = |m: usize, tile: [i64; 3]| {
            matmul(target, DType::F16, Format::F16, m, n, k, tile).1[..n * 4].to_vec()
        };
        let alone = row(1, [8, 64, 32]);
        for (m, tile) in [
            (1, [1, 64, 32]),
            (1, [8, 32, 64]),
            (7, [8, 64, 32]),
            (40, [32, 64, 32]),
            (40, [64, 32, 16]),
        ] {
            assert_eq!(alone, row(m, tile), "{target:?} m = {m}, tile {tile:?}");
        }
    }
}

/// Attention of `tokens` queries over one paged sequence; the largest absolute error, and the bits of `out`.
struct AttentionCase {
    cache: DType,
    /// Rows of a tile of queries.
    block: i64,
    tokens: usize,
    /// Keys before the first token.
    past: usize,
    window: usize,
    soft_cap: f32,
}

const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 64;
const PAGE: usize = 64;

fn attention(target: Target, case: &AttentionCase) -> (f64, Vec<u8>) {
    let AttentionCase { cache, block, tokens, past, window, soft_cap } = *case;
    let constants = [("BM", block), ("HEAD_DIM", HEAD_DIM as i64), ("PAGE", PAGE as i64)];
    let kernel = compile(
        target,
        &iron_std::mlx::attention::ATTENTION,
        &[Binding::DType(cache)],
        &constants,
        128,
    );
    let positions = past + tokens;
    let pages_used = positions.div_ceil(PAGE);
    // Pages in descending order behind an unused one, so that a kernel that ignores the table fails.
    let pages = pages_used + 1;
    let table: Vec<i32> = (0..pages_used).rev().map(|p| p as i32 + 1).collect();
    let q: Vec<f32> = Random::new(11).floats(64 * HEADS * HEAD_DIM);
    let q = q[q.len() - tokens * HEADS * HEAD_DIM..].to_vec();
    let mut random = Random::new(12);
    let keys: Vec<f32> = random.floats(200 * KV_HEADS * HEAD_DIM);
    let values: Vec<f32> = random.floats(200 * KV_HEADS * HEAD_DIM);
    let mut k_cache = vec![f32::NAN; pages * KV_HEADS * HEAD_DIM * PAGE];
    let mut v_cache = vec![f32::NAN; pages * KV_HEADS * HEAD_DIM * PAGE];
    for (page, at) in table.iter().enumerate() {
        for head in 0..KV_HEADS {
            for d in 0..HEAD_DIM {
                for offset in 0..PAGE {
                    // Positions that do not exist yet hold zeros, as the cache guarantees.
                    let position = page * PAGE + offset;
                    let source = (position * KV_HEADS + head) * HEAD_DIM + d;
                    let base = *at as usize * KV_HEADS + head;
                    let exists = position < positions;
                    k_cache[(base * HEAD_DIM + d) * PAGE + offset] =
                        if exists { keys[source] } else { 0.0 };
                    v_cache[(base * PAGE + offset) * HEAD_DIM + d] =
                        if exists { values[source] } else { 0.0 };
                }
            }
        }
    }
    let (k_bytes, v_bytes) = (bytes(&k_cache, cache), bytes(&v_cache, cache));
    let group = HEADS / KV_HEADS;
    let per_tile = block as usize / group;
    let mut tiles: Vec<i32> = Vec::new();
    for first in (0..tokens).step_by(per_tile) {
        tiles.extend([first as i32, per_tile.min(tokens - first) as i32, 0, 0]);
    }
    tiles.extend([0; 4]);
    let visible: Vec<i32> = (0..tokens)
        .flat_map(|t| {
            let end = past + t + 1;
            [end.saturating_sub(window) as i32, end as i32]
        })
        .collect();
    let mut out = vec![0xffu8; tokens * HEADS * HEAD_DIM * 4];
    let page_stride = (KV_HEADS * HEAD_DIM * PAGE) as i64;
    let dim = |name: &str| match name {
        "query_rows" => tokens * HEADS,
        "head_dim" => HEAD_DIM,
        "pages" => pages,
        "kv_heads" => KV_HEADS,
        "count" => tiles.len() / 4,
        "tokens" => tokens,
        "sequences" => 1,
        "max_pages" => pages_used,
        other => panic!("unknown dimension {other}"),
    };
    let dims: Vec<i64> = kernel.kernel.dims.iter().map(|name| dim(name) as i64).collect();
    kernel.run(
        &dims,
        &mut [
            Argument::Input(&bytes(&q, DType::F32), &[HEAD_DIM as i64]),
            Argument::Input(&k_bytes, &[page_stride, (HEAD_DIM * PAGE) as i64, PAGE as i64]),
            Argument::Input(&v_bytes, &[page_stride, (HEAD_DIM * PAGE) as i64, HEAD_DIM as i64]),
            Argument::Input(&int_bytes(&tiles), &[4]),
            Argument::Input(&int_bytes(&visible), &[2]),
            Argument::Input(&int_bytes(&table), &[pages_used as i64]),
            Argument::Output(&mut out, &[HEAD_DIM as i64]),
            Argument::F32(0.125),
            Argument::F32(soft_cap),
        ],
    );
    let round = |values: &[f32]| -> Vec<f64> {
        floats(&bytes(values, cache), cache).into_iter().map(f64::from).collect()
    };
    let (keys, values) = (round(&keys), round(&values));
    let found = floats(&out, DType::F32);
    let mut worst = 0.0f64;
    for token in 0..tokens {
        for head in 0..HEADS {
            let row = (token * HEADS + head) * HEAD_DIM;
            let query: Vec<f64> = q[row..row + HEAD_DIM].iter().map(|v| f64::from(*v)).collect();
            let seen = visible[2 * token] as usize..visible[2 * token + 1] as usize;
            let pick = |from: &[f64]| -> Vec<Vec<f64>> {
                seen.clone()
                    .map(|p| {
                        let at = (p * KV_HEADS + head / group) * HEAD_DIM;
                        from[at..at + HEAD_DIM].to_vec()
                    })
                    .collect()
            };
            let expected = iron_std::mlx::attention::attention_reference(
                &query,
                &pick(&keys),
                &pick(&values),
                0.125,
                f64::from(soft_cap),
            );
            for (found, expected) in found[row..].iter().zip(expected) {
                let error = (f64::from(*found) - expected).abs();
                worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
            }
        }
    }
    (worst, out)
}

#[test]
fn attention_agrees_with_its_reference() {
    for target in targets() {
        for (cache, tolerance) in [(DType::F32, 1e-6), (DType::F16, 1e-3), (DType::BF16, 8e-3)] {
            for (tokens, past, window, soft_cap) in
                [(1, 150, 1000, 0.0), (13, 57, 1000, 0.0), (13, 57, 20, 3.0)]
            {
                let case = AttentionCase { cache, block: 16, tokens, past, window, soft_cap };
                let (error, _) = attention(target, &case);
                println!(
                    "attention {target:?} {cache} {tokens} after {past}, window {window}: {error:.2e}"
                );
                assert!(error < tolerance, "{target:?} {cache} {tokens} after {past}: {error}");
            }
        }
    }
}

#[test]
fn chunking_does_not_change_a_token_of_attention() {
    for target in targets() {
        let run = |tokens: usize, past: usize, block: i64| {
            let case = AttentionCase {
                cache: DType::F16,
                block,
                tokens,
                past,
                window: 1000,
                soft_cap: 0.0,
            };
            let (_, out) = attention(target, &case);
            out[out.len() - HEADS * HEAD_DIM * 4..].to_vec()
        };
        let alone = run(1, 69, 16);
        assert_eq!(alone, run(13, 57, 16), "{target:?}");
        assert_eq!(alone, run(13, 57, 32), "{target:?}");
        assert_eq!(alone, run(1, 69, 3), "{target:?}");
    }
}
