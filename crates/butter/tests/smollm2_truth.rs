//! SmolLM2-135M-Instruct Q4_1 against exact f32 of the same weights: see `tests/data/README.md`.
//!
//! Skipped unless `BUTTER_TEST_MODELS` names a folder with the model.

mod common;

use std::path::{Path, PathBuf};

use butter::{Dispatch, GenerateOptions, Model};
use common::{Setup, Truth};

const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

fn model(f32: bool) -> Option<(Model, Truth)> {
    let folder = std::env::var_os("BUTTER_TEST_MODELS").map(PathBuf::from);
    let Some(path) = folder.map(|folder| folder.join(MODEL)).filter(|path| path.is_file()) else {
        eprintln!("skipped: BUTTER_TEST_MODELS names no folder with {MODEL}");
        return None;
    };
    let truth =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/smollm2_truth.safetensors");
    let model = Setup { f32, threads: 2, dispatch: Dispatch::Recorded }.load(&path);
    Some((model, Truth::read(&truth)))
}

fn log_sum_exp(logits: impl Iterator<Item = f32> + Clone) -> f64 {
    let most = logits.clone().fold(f32::NEG_INFINITY, f32::max);
    f64::from(most) + logits.map(|logit| f64::from(logit - most).exp()).sum::<f64>().ln()
}

/// Calls `check` with the number of each position over all windows, and our logits there.
fn for_each_position(model: &Model, truth: &Truth, mut check: impl FnMut(usize, &[f32])) {
    let tokens = truth.integers("window.tokens");
    let length = truth.shape("window.tokens")[1];
    for (window, tokens) in tokens.chunks_exact(length).enumerate() {
        let tokens: Vec<u32> = tokens.iter().map(|&token| token as u32).collect();
        let logits = model.logits(&tokens).expect("valid");
        for (position, row) in logits.rows().enumerate() {
            check(window * length + position, row);
        }
    }
}

#[test]
fn f32_logits_equal_exact_f32() {
    let Some((model, truth)) = model(true) else { return };
    let (top_ids, top) = (truth.integers("window.top_ids"), truth.floats("window.top_logits"));
    let (ids, strided) = (truth.integers("window.strided_ids"), truth.floats("window.strided"));
    let (lse, mean) = (truth.floats("window.lse"), truth.floats("window.mean"));
    let max_abs = truth.floats("window.max_abs");
    let count = truth.shape("window.top_ids")[2];
    let mut largest = 0.0_f64;
    for_each_position(&model, &truth, |at, logits| {
        let mut compare = |what: &str, found: f64, expected: f32| {
            let difference = (found - f64::from(expected)).abs();
            assert!(difference <= 1e-3, "{what} at {at}: {found}, not {expected}");
            largest = largest.max(difference);
        };
        for rank in at * count..(at + 1) * count {
            compare("logit", logits[top_ids[rank] as usize].into(), top[rank]);
        }
        for (sample, &id) in ids.iter().enumerate() {
            compare("logit", logits[id as usize].into(), strided[at * ids.len() + sample]);
        }
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit)).sum();
        compare("mean", sum / logits.len() as f64, mean[at]);
        let found = logits.iter().fold(0.0_f32, |most, logit| most.max(logit.abs()));
        compare("largest magnitude", found.into(), max_abs[at]);
        compare("log-sum-exp", log_sum_exp(logits.iter().copied()), lse[at]);
    });
    eprintln!("largest difference {largest:.2e}");
}

#[test]
fn f32_greedy_answers_equal_exact_f32() {
    let Some((model, truth)) = model(true) else { return };
    let (prompts, expected) = (truth.integers("greedy.prompt"), truth.integers("greedy.tokens"));
    let (longest, length) = (truth.shape("greedy.prompt")[1], truth.shape("greedy.tokens")[1]);
    for (prompt, expected) in prompts.chunks_exact(longest).zip(expected.chunks_exact(length)) {
        let prompt: Vec<u32> =
            prompt.iter().take_while(|&&token| token >= 0).map(|&token| token as u32).collect();
        let max_tokens = Some(length);
        let options =
            GenerateOptions { max_tokens, ignore_eos: true, ..GenerateOptions::default() };
        let chunks = model.generate(prompt, options).expect("valid");
        let found: Vec<u32> = chunks.flat_map(|chunk| chunk.expect("runs").tokens).collect();
        let expected: Vec<u32> = expected.iter().map(|&token| token as u32).collect();
        assert_eq!(found, expected);
    }
}

/// The bound is that of activations in int8 per 32 with f32 scales, measured with transformers, with some room.
#[test]
fn fast_mode_diverges_little_from_exact_f32() {
    const MOST: f64 = 5e-3;
    let Some((model, truth)) = model(false) else { return };
    let (top_ids, top) = (truth.integers("window.top_ids"), truth.floats("window.top_logits"));
    let (lse, rest) = (truth.floats("window.lse"), truth.floats("window.rest_lse"));
    let count = truth.shape("window.top_ids")[2];
    let (mut total, mut same, mut positions) = (0.0, 0, 0);
    for_each_position(&model, &truth, |at, logits| {
        let ours = log_sum_exp(logits.iter().copied());
        let ranks = at * count..(at + 1) * count;
        let mut others = logits.to_vec();
        let mut divergence = 0.0;
        for rank in ranks.clone() {
            let id = top_ids[rank] as usize;
            let p = f64::from(top[rank] - lse[at]);
            divergence += p.exp() * (p - (f64::from(logits[id]) - ours));
            others[id] = f32::NEG_INFINITY;
        }
        let p = f64::from(rest[at] - lse[at]);
        divergence += p.exp() * (p - (log_sum_exp(others.iter().copied()) - ours));
        total += divergence;
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        same += usize::from(best == Some(top_ids[ranks.start] as usize));
        positions += 1;
    });
    let (mean, agreement) = (total / f64::from(positions), same as f64 / f64::from(positions));
    eprintln!("KL divergence {mean:.2e}, top-1 agreement {agreement:.3}");
    assert!(mean < MOST, "KL divergence {mean}");
}
