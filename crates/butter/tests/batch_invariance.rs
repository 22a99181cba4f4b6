//! One sequence, the same bits: alone, in a batch, in chunks, step by step, with any number of threads, eager or recorded.

mod common;

use std::path::{Path, PathBuf};

use butter::Dispatch;
use common::{Setup, Truth, assert_same_bits, checkpoint, forward};

const DISPATCHES: [Dispatch; 2] = [Dispatch::Eager, Dispatch::Recorded];

/// Logits `[positions, vocab_size]` of `tokens`, computed in chunks of `chunk` beside `others`.
fn logits(path: &Path, setup: Setup, tokens: &[u32], chunk: usize, others: &[&[u32]]) -> Vec<f32> {
    let model = setup.load(path);
    let mut executor = model.executor();
    let sequence = executor.cache_mut().create().expect("a free sequence");
    let others: Vec<_> = others
        .iter()
        .map(|other| (executor.cache_mut().create().expect("a free sequence"), *other))
        .collect();
    let mut found = Vec::new();
    for (index, piece) in tokens.chunks(chunk).enumerate() {
        let mut runs: Vec<_> = others
            .iter()
            .filter_map(|(id, other)| Some((*id, other.chunks(chunk).nth(index)?)))
            .collect();
        // Neither first nor last.
        let at = runs.len().min(1);
        runs.insert(at, (sequence, piece));
        found.extend(forward(&mut executor, &runs).swap_remove(at));
    }
    found
}

/// Compares every way of computing `tokens` with the first.
fn check(path: &Path, f32: bool, tokens: &[u32], others: &[&[u32]]) {
    let one = Setup { f32, threads: 1, dispatch: Dispatch::Eager };
    let expected = logits(path, one, tokens, 256, &[]);
    assert!(expected.iter().all(|logit| logit.is_finite()));
    for threads in [1, 2] {
        for chunk in [1, 7, 64, 256] {
            for dispatch in DISPATCHES {
                let setup = Setup { threads, dispatch, ..one };
                let what = format!("f32 {f32}, {threads} threads, chunks of {chunk}, {dispatch:?}");
                let alone = logits(path, setup, tokens, chunk, &[]);
                assert_same_bits(&format!("alone, {what}"), &alone, &expected);
                let beside = logits(path, setup, tokens, chunk, others);
                assert_same_bits(&format!("in a batch, {what}"), &beside, &expected);
            }
        }
    }
}

fn check_tiny(name: &str, f32: bool) {
    let truth = Truth::of(name);
    let [long, short, fork] = ["long", "short", "fork"].map(|sequence| truth.tokens(sequence));
    check(&checkpoint(name), f32, &long, &[&short, &fork]);
}

#[test]
fn grouped_heads_in_f32() {
    check_tiny("grouped", true);
}

#[test]
fn grouped_heads_with_f16_cache() {
    check_tiny("grouped", false);
}

#[test]
fn bf16_weights() {
    check_tiny("bf16", true);
}

#[test]
fn biases_and_scaled_rope() {
    check_tiny("biases", false);
}

#[test]
fn windows_and_norms_of_heads() {
    check_tiny("gemma3", true);
}

#[test]
fn windows_of_qwen2_with_f16_cache() {
    check_tiny("qwen2", false);
}

/// A fork that does not end at a page's border, against the same tokens alone.
#[test]
fn fork_inside_a_page() {
    let truth = Truth::of("grouped");
    let (long, short) = (truth.tokens("long"), truth.tokens("short"));
    let forked = [&long[..40], &short].concat();
    let setup = Setup { f32: false, threads: 2, dispatch: Dispatch::Eager };
    let alone = logits(&checkpoint("grouped"), setup, &forked, 256, &[]);
    let model = setup.load(&checkpoint("grouped"));
    let mut executor = model.executor();
    let a = executor.cache_mut().create().expect("a free sequence");
    forward(&mut executor, &[(a, &long[..40])]);
    let b = executor.cache_mut().fork(a).expect("a free sequence");
    let both = forward(&mut executor, &[(a, &long[40..]), (b, &short)]);
    let vocab_size = executor.vocab_size();
    assert_same_bits("fork", &both[1], &alone[40 * vocab_size..]);
    let alone = logits(&checkpoint("grouped"), setup, &long, 256, &[]);
    assert_same_bits("original", &both[0], &alone[40 * vocab_size..]);
}

/// A quantised model, whose products take int8. Skipped unless `BUTTER_TEST_MODELS` names a folder with SmolLM2.
#[test]
fn quantised_weights() {
    let folder = std::env::var_os("BUTTER_TEST_MODELS").map(PathBuf::from);
    let Some(path) = folder
        .map(|folder| folder.join("SmolLM2-135M-Instruct.Q4_1.gguf"))
        .filter(|path| path.is_file())
    else {
        eprintln!(
            "skipped: BUTTER_TEST_MODELS names no folder with SmolLM2-135M-Instruct.Q4_1.gguf"
        );
        return;
    };
    let tokens: Vec<u32> = (0..70).map(|i| 1000 + 37 * i % 4000).collect();
    let others: Vec<u32> = (0..30).map(|i| 500 + 53 * i).collect();
    for f32 in [false, true] {
        let one = Setup { f32, threads: 1, dispatch: Dispatch::Eager };
        let expected = logits(&path, one, &tokens, 256, &[]);
        for (threads, chunk, dispatch) in [
            (2, 1, Dispatch::Recorded),
            (1, 1, Dispatch::Eager),
            (2, 7, Dispatch::Eager),
            (2, 70, Dispatch::Eager),
        ] {
            let setup = Setup { threads, dispatch, ..one };
            let what = format!("f32 {f32}, {threads} threads, chunks of {chunk}, {dispatch:?}");
            let beside = logits(&path, setup, &tokens, chunk, &[&others]);
            assert_same_bits(&what, &beside, &expected);
        }
    }
}
