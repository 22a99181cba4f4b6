//! Each family in f32 against Hugging Face transformers, on tiny checkpoints.

#[path = "../common/mod.rs"]
mod common;

use butter::Dispatch;
use common::{
    ChangedCheckpoint, Setup, TOLERANCE, Truth, assert_close, checkpoint, forward,
    largest_difference,
};
use serde_json::Value as Json;

fn whole_prompts(name: &str) {
    let (model, truth) = (Setup::F32.load(&checkpoint(name)), Truth::of(name));
    for sequence in ["long", "short", "fork", "resumed"] {
        let found = model.logits(&truth.tokens(sequence)).expect("a valid prompt");
        assert_close(sequence, &found.values, &truth.logits(sequence));
    }
}

/// Chunks whose borders are not those of pages.
fn chunked_prompt(name: &str) {
    let (model, truth) = (Setup::F32.load(&checkpoint(name)), Truth::of(name));
    let mut executor = model.executor();
    let sequence = executor.cache_mut().create().expect("a free sequence");
    let mut found = Vec::new();
    for chunk in truth.tokens("long").chunks(41) {
        found.extend(forward(&mut executor, &[(sequence, chunk)]).concat());
    }
    assert_close("long", &found, &truth.logits("long"));
}

fn single_steps(name: &str, dispatch: Dispatch) {
    let model = Setup { dispatch, ..Setup::F32 }.load(&checkpoint(name));
    let truth = Truth::of(name);
    let mut executor = model.executor();
    let sequence = executor.cache_mut().create().expect("a free sequence");
    let mut found = Vec::new();
    for token in truth.tokens("long") {
        found.extend(forward(&mut executor, &[(sequence, &[token])]).concat());
    }
    assert_close("long", &found, &truth.logits("long"));
}

/// Three sequences side by side, of which one is then forked and one truncated.
fn ragged_batches(name: &str) {
    let (model, truth) = (Setup::F32.load(&checkpoint(name)), Truth::of(name));
    let [long, short, fork, resumed] =
        ["long", "short", "fork", "resumed"].map(|sequence| truth.tokens(sequence));
    let (shared, kept) = (truth.number("fork.shared"), truth.number("resumed.kept"));
    let vocab_size = model.config().vocab_size;

    let mut executor = model.executor();
    let cache = executor.cache_mut();
    let (a, b) = (cache.create().expect("free"), cache.create().expect("free"));
    let first = forward(&mut executor, &[(a, &long[..shared]), (b, &short)]);
    assert_close("long", &first[0], &truth.logits("long")[..shared * vocab_size]);
    assert_close("short", &first[1], &truth.logits("short"));

    let c = executor.cache_mut().fork(a).expect("a free sequence");
    executor.cache_mut().truncate(b, kept).expect("shorter");
    let runs = [(b, &resumed[kept..]), (a, &long[shared..]), (c, &fork[shared..])];
    let second = forward(&mut executor, &runs);
    assert_close("resumed", &second[0], &truth.logits("resumed")[kept * vocab_size..]);
    assert_close("long", &second[1], &truth.logits("long")[shared * vocab_size..]);
    assert_close("fork", &second[2], &truth.logits("fork")[shared * vocab_size..]);
}

/// A changed setting moves the logits by at least 100 times the tolerance.
#[track_caller]
fn assert_change_shows(name: &str, change: impl FnOnce(&mut Json)) {
    let (changed, truth) = (ChangedCheckpoint::new(name, change), Truth::of(name));
    let found = Setup::F32.load(&changed.0).logits(&truth.tokens("long")).expect("valid");
    let difference = largest_difference(&found.values, &truth.logits("long"));
    assert!(difference > 100.0 * TOLERANCE, "{name}: only {difference}");
}

/// The same weights as GGUF: names, settings and norms by llama.cpp's conventions.
fn gguf_twin(name: &str) {
    let model = Setup::F32.load(&checkpoint(name).join("model.gguf"));
    let truth = Truth::of(name);
    let found = model.logits(&truth.tokens("long")).expect("a valid prompt");
    assert_close("long", &found.values, &truth.logits("long"));
}

macro_rules! for_each_checkpoint {
    ($($name:ident)*) => {$(
        mod $name {
            use butter::Dispatch;

            use crate as tests;

            const NAME: &str = stringify!($name);

            #[test]
            fn whole_prompts() {
                tests::whole_prompts(NAME);
            }

            #[test]
            fn chunked_prompt() {
                tests::chunked_prompt(NAME);
            }

            #[test]
            fn single_steps() {
                tests::single_steps(NAME, Dispatch::Eager);
            }

            #[test]
            fn recorded_single_steps() {
                tests::single_steps(NAME, Dispatch::Recorded);
            }

            #[test]
            fn ragged_batches_with_fork_and_truncation() {
                tests::ragged_batches(NAME);
            }
        }
    )*};
}

mod gemma3;
mod llama;
mod qwen2;
