//! Attention and the cache: every instance against exact softmax attention, at odd sizes and head dimensions.

mod common;

use common::{close, on_every_level, wide};
use iron_runtime::{DType, Device, Tensor};
use iron_std::mlx::attention::attention_reference;
use iron_std::reference::Random;

const PAGE: usize = 64;

/// One sequence of `tokens` positions whose last `queries` are asked for.
struct Case {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    tokens: usize,
    queries: usize,
    window: usize,
    soft_cap: f32,
    cache: DType,
}

struct Cache {
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// Appends all positions through the kernel, pages in descending order so that a wrong table shows.
fn fill(device: &Device, case: &Case, random: &mut Random) -> Cache {
    let pages = case.tokens.div_ceil(PAGE) + 1;
    let shape = |a: usize, b: usize| [pages, case.kv_heads, a, b];
    let keys = Tensor::zeros(case.cache, &shape(case.head_dim, PAGE)).expect("valid shape");
    let values = Tensor::zeros(case.cache, &shape(PAGE, case.head_dim)).expect("valid shape");
    let width = case.kv_heads * case.head_dim;
    let (k, v) = (random.values(case.tokens * width, 1.0), random.values(case.tokens * width, 1.0));
    let page_of = |position: usize| pages - 1 - position / PAGE;
    let slots: Vec<i32> =
        (0..case.tokens).map(|at| (page_of(at) * PAGE + at % PAGE) as i32).collect();
    let table: Vec<i32> = (0..pages).map(|at| page_of(at * PAGE) as i32).collect();
    let input = |values: &[f32]| {
        Tensor::from_slice(values, &[case.tokens, case.kv_heads, case.head_dim])
            .expect("valid shape")
    };
    let slots = Tensor::from_slice(&slots, &[case.tokens]).expect("valid shape");
    let cmd = device.command_buffer();
    iron_kernels::append_kv(&cmd, &input(&k), &input(&v), &slots, &keys, &values).expect("encodes");
    cmd.run().expect("runs");
    let table = Tensor::from_slice(&table, &[1, pages]).expect("valid shape");
    Cache { keys, values, table, k, v }
}

/// Outputs `[queries, heads, head_dim]` for the last `queries` positions, `tile` tokens a tile.
fn attend(
    device: &Device,
    case: &Case,
    cache: &Cache,
    q: &[f32],
    first: usize,
    queries: usize,
    tile: usize,
) -> Vec<f32> {
    let rows = queries * case.heads;
    let out = Tensor::zeros(DType::F32, &[rows, case.head_dim]).expect("valid shape");
    let mut tiles: Vec<i32> = Vec::new();
    let mut token = 0;
    while token < queries {
        let count = tile.min(queries - token);
        tiles.extend([token as i32, count as i32, 0, 0]);
        token += count;
    }
    let visible: Vec<i32> = (first..first + queries)
        .flat_map(|at| [(at + 1).saturating_sub(case.window) as i32, at as i32 + 1])
        .collect();
    let cmd = device.command_buffer();
    iron_kernels::attention(
        &cmd,
        &Tensor::from_slice(q, &[rows, case.head_dim]).expect("valid shape"),
        &cache.keys,
        &cache.values,
        &Tensor::from_slice(&tiles, &[tiles.len() / 4, 4]).expect("valid shape"),
        &Tensor::from_slice(&visible, &[queries, 2]).expect("valid shape"),
        &cache.table,
        &out,
        (case.head_dim as f32).powf(-0.5),
        case.soft_cap,
    )
    .expect("encodes");
    cmd.run().expect("runs");
    out.read_f32().expect("readable")
}

fn check(device: &Device, case: &Case, random: &mut Random) {
    let cache = fill(device, case, random);
    let first = case.tokens - case.queries;
    let q = random.values(case.queries * case.heads * case.head_dim, 2.0);
    let group = case.heads / case.kv_heads;
    let tile = if case.queries == 1 { 1 } else { 64 / group };
    let found = attend(device, case, &cache, &q, first, case.queries, tile);
    let stored = |values: &[f32], position: usize, head: usize| -> Vec<f64> {
        let at = (position * case.kv_heads + head) * case.head_dim;
        let round = |v: &f32| {
            if case.cache == DType::F16 {
                f64::from(half::f16::from_f32(*v).to_f32())
            } else {
                f64::from(*v)
            }
        };
        values[at..at + case.head_dim].iter().map(round).collect()
    };
    let scale = f64::from((case.head_dim as f32).powf(-0.5));
    let mut expected = Vec::new();
    for query in 0..case.queries {
        let position = first + query;
        let range = (position + 1).saturating_sub(case.window)..position + 1;
        for head in 0..case.heads {
            let keys: Vec<_> = range.clone().map(|at| stored(&cache.k, at, head / group)).collect();
            let values: Vec<_> =
                range.clone().map(|at| stored(&cache.v, at, head / group)).collect();
            let at = (query * case.heads + head) * case.head_dim;
            let q = wide(&q[at..at + case.head_dim]);
            expected.extend(attention_reference(
                &q,
                &keys,
                &values,
                scale,
                f64::from(case.soft_cap),
            ));
        }
    }
    let what = format!(
        "{} {} q / {} kv x {}, {} of {}",
        device.isa(),
        case.heads,
        case.kv_heads,
        case.head_dim,
        case.queries,
        case.tokens
    );
    close(&what, &wide(&found), &expected, 2e-5);

    // The last token alone: the same bits as in the batch.
    let width = case.heads * case.head_dim;
    let last =
        attend(device, case, &cache, &q[(case.queries - 1) * width..], case.tokens - 1, 1, 1);
    for (alone, batched) in last.iter().zip(&found[(case.queries - 1) * width..]) {
        assert_eq!(alone.to_bits(), batched.to_bits(), "{what}: the last token alone");
    }
}

#[test]
fn every_instance_equals_exact_attention() {
    on_every_level(|device| {
        let mut random = Random(11);
        for cache in [DType::F16, DType::F32] {
            for (heads, kv_heads) in [(3, 1), (9, 3), (14, 2), (4, 4), (12, 1)] {
                for (head_dim, tokens, queries) in [
                    (64, 1, 1),
                    (64, 200, 1),
                    (64, 131, 77),
                    (20, 70, 70),
                    (128, 65, 3),
                    (80, 90, 30),
                ] {
                    let case = Case {
                        heads,
                        kv_heads,
                        head_dim,
                        tokens,
                        queries,
                        window: usize::MAX >> 1,
                        soft_cap: 0.0,
                        cache,
                    };
                    check(device, &case, &mut random);
                }
            }
            for (head_dim, window, soft_cap) in
                [(64, 50, 0.0), (64, 1000, 5.0), (256, 100, 30.0), (300, 64, 0.0), (16, 1, 0.0)]
            {
                let case = Case {
                    heads: 4,
                    kv_heads: 2,
                    head_dim,
                    tokens: 150,
                    queries: 40,
                    window,
                    soft_cap,
                    cache,
                };
                check(device, &case, &mut random);
            }
        }
    });
}

#[test]
fn a_grid_larger_than_the_work_changes_nothing() {
    on_every_level(|device| {
        let mut random = Random(12);
        let case = Case {
            heads: 3,
            kv_heads: 1,
            head_dim: 64,
            tokens: 70,
            queries: 2,
            window: 1000,
            soft_cap: 0.0,
            cache: DType::F16,
        };
        let cache = fill(device, &case, &mut random);
        let q = random.values(2 * 3 * 64, 1.0);
        let expected = attend(device, &case, &cache, &q, 68, 2, 21);
        let out = Tensor::zeros(DType::F32, &[6, 64]).expect("valid shape");
        let tiles = Tensor::from_slice(&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[3, 4])
            .expect("valid shape");
        let visible = Tensor::from_slice(&[0, 69, 0, 70], &[2, 2]).expect("valid shape");
        let cmd = device.command_buffer();
        let q = Tensor::from_slice(&q, &[6, 64]).expect("valid shape");
        iron_kernels::attention(
            &cmd,
            &q,
            &cache.keys,
            &cache.values,
            &tiles,
            &visible,
            &cache.table,
            &out,
            0.125,
            0.0,
        )
        .expect("encodes");
        cmd.run().expect("runs");
        assert_eq!(out.read_f32().expect("readable"), expected);
    });
}
