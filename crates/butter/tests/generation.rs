//! Answers: how they start, go on and end. On tiny checkpoints, which have no tokenizer.

mod common;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use butter::cache::CacheError;
use butter::{
    CancelToken, ContextPolicy, Dispatch, Error, FinishReason, GenerateOptions, LoadOptions, Model,
    SamplingOptions,
};
use common::{Setup, Truth, checkpoint};
use futures_core::Stream;

const NAME: &str = "grouped";

fn model() -> Model {
    Setup { dispatch: Dispatch::Recorded, ..Setup::F32 }.load(&checkpoint(NAME))
}

fn prompt() -> Vec<u32> {
    Truth::of(NAME).tokens("short")
}

/// Tokens do not end the answer.
fn up_to(max_tokens: usize) -> GenerateOptions {
    let max_tokens = Some(max_tokens);
    GenerateOptions { max_tokens, ignore_eos: true, ..GenerateOptions::default() }
}

fn answer(model: &Model, prompt: &[u32], options: GenerateOptions) -> Vec<u32> {
    let chunks = model.generate(prompt, options).expect("valid");
    chunks.flat_map(|chunk| chunk.expect("runs").tokens).collect()
}

fn largest(logits: &[f32]) -> u32 {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    best.expect("a vocabulary") as u32
}

#[test]
fn greedy_answer_takes_the_largest_logits() {
    let model = model();
    let answer = answer(&model, &prompt(), up_to(70));
    let whole = [prompt(), answer.clone()].concat();
    let logits = model.logits(&whole).expect("valid");
    let expected: Vec<u32> = logits.rows().skip(prompt().len() - 1).take(70).map(largest).collect();
    assert_eq!(answer, expected);
}

#[test]
fn last_chunk_says_why_and_what_it_cost() {
    let model = model();
    let mut generator = model.generate(prompt(), up_to(3)).expect("valid");
    let chunks: Vec<_> = generator.by_ref().map(|chunk| chunk.expect("runs")).collect();
    let reasons: Vec<_> = chunks.iter().map(|chunk| chunk.finish_reason).collect();
    assert_eq!(reasons, [None, None, Some(FinishReason::MaxTokens)]);
    let stats = chunks[2].stats;
    assert_eq!((stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens), (37, 0, 3));
    assert!(!stats.prefill_time.is_zero() && !stats.decode_time.is_zero());
    assert!(generator.next().is_none());
}

#[test]
fn token_that_ends_a_turn_ends_the_answer_and_is_no_part_of_it() {
    let plain = model();
    let tokens = answer(&plain, &prompt(), up_to(10));
    let changed = common::ChangedCheckpoint::new(NAME, |config| {
        config["eos_token_id"] = serde_json::json!([tokens[4]]);
    });
    let model = Setup::F32.load(&changed.0);
    let options = GenerateOptions { ignore_eos: false, ..up_to(10) };
    let chunks: Vec<_> = model.generate(prompt(), options).expect("valid").collect();
    let first = tokens.iter().position(|token| *token == tokens[4]).expect("there");
    let last = chunks[first].as_ref().expect("runs");
    assert_eq!((chunks.len(), last.finish_reason), (first + 1, Some(FinishReason::EndOfTurn)));
    assert!(last.tokens.is_empty());
}

#[test]
fn same_seed_gives_same_tokens_whatever_runs_beside_it() {
    let model = model();
    let sampling =
        SamplingOptions { temperature: 1.0, top_k: 50, top_p: 0.9, min_p: 0.01, seed: Some(7) };
    let options = GenerateOptions { sampling, ..up_to(40) };
    let first = answer(&model, &prompt(), options.clone());
    let mut beside = model.generate(prompt(), up_to(40)).expect("valid");
    let mut again = Vec::new();
    for chunk in model.generate(prompt(), options.clone()).expect("valid") {
        again.extend(chunk.expect("runs").tokens);
        beside.next();
    }
    assert_eq!(again, first);
    let other = SamplingOptions { seed: Some(8), ..sampling };
    assert_ne!(answer(&model, &prompt(), GenerateOptions { sampling: other, ..options }), first);
}

#[test]
fn long_prompts_are_computed_in_chunks() {
    let changed = common::ChangedCheckpoint::new(NAME, |config| {
        config["max_position_embeddings"] = serde_json::json!(2048);
    });
    let model = Setup::F32.load(&changed.0);
    let long: Vec<u32> = (0..1100).map(|i| i * 7 % 256).collect();
    let expected = largest(model.logits(&long).expect("valid").rows().last().expect("one"));
    assert_eq!(answer(&model, &long, up_to(1)), [expected]);
}

#[test]
fn session_computes_only_what_is_new() {
    let model = model();
    let session = model.session().expect("a free sequence");
    let run = |prompt: &[u32]| {
        let mut generator = session.generate(prompt, up_to(5)).expect("idle");
        let tokens: Vec<u32> =
            generator.by_ref().flat_map(|chunk| chunk.expect("runs").tokens).collect();
        (tokens, generator.stats().cached_tokens)
    };
    let (first, cached) = run(&prompt());
    assert_eq!(cached, 0);
    let next = [prompt(), first.clone(), vec![9, 10]].concat();
    let (second, cached) = run(&next);
    // The last token of the first answer was never computed.
    assert_eq!(cached, prompt().len() + 4);
    assert_eq!(second, answer(&model, &next, up_to(5)));
    let (again, cached) = run(&prompt());
    assert_eq!((again, cached), (first, prompt().len() - 1));
}

#[test]
fn forked_session_goes_its_own_way() {
    let model = model();
    let session = model.session().expect("a free sequence");
    session
        .generate(prompt(), up_to(3))
        .expect("idle")
        .for_each(|chunk| drop(chunk.expect("runs")));
    let fork = session.fork().expect("a free sequence");
    let (a, b) = ([prompt(), vec![1]].concat(), [prompt(), vec![2]].concat());
    for (session, prompt) in [(&session, &a), (&fork, &b), (&session, &a)] {
        let chunks = session.generate(prompt.as_slice(), up_to(4)).expect("idle");
        let found: Vec<u32> = chunks.flat_map(|chunk| chunk.expect("runs").tokens).collect();
        assert_eq!(found, answer(&model, prompt, up_to(4)));
    }
}

#[test]
fn session_gives_one_answer_at_a_time() {
    let model = model();
    let session = model.session().expect("a free sequence");
    let generator = session.generate(prompt(), up_to(5)).expect("idle");
    let error = session.generate(prompt(), up_to(5)).expect_err("busy");
    assert!(matches!(error, Error::SessionBusy), "{error}");
    drop(generator);
    session.generate(prompt(), up_to(5)).expect("idle again");
}

#[test]
fn dropped_and_cancelled_answers_free_their_memory() {
    let model = model();
    let cancel = CancelToken::default();
    let options = GenerateOptions { cancel: cancel.clone(), ..up_to(100) };
    let mut generator = model.generate(prompt(), options).expect("valid");
    generator.next().expect("more").expect("runs");
    assert!(model.executor().cache().used_bytes() > 0);
    cancel.cancel();
    let last = generator.next().expect("a last chunk").expect("runs");
    assert_eq!(last.finish_reason, Some(FinishReason::Cancelled));
    assert_eq!(model.executor().cache().used_bytes(), 0);

    let mut generator = model.generate(prompt(), up_to(100)).expect("valid");
    generator.next().expect("more").expect("runs");
    drop(generator);
    assert_eq!(model.executor().cache().used_bytes(), 0);
    assert!(model.executor().cache().is_empty());
}

#[test]
fn full_context_ends_as_the_policy_says() {
    let options = LoadOptions {
        context_length: Some(40),
        f32: true,
        threads: Some(1),
        ..LoadOptions::default()
    };
    let model = Model::open(checkpoint(NAME), &options).expect("valid");
    let results: Vec<_> = model.generate(prompt(), up_to(10)).expect("valid").collect();
    // 37 of the prompt and 3 more fit; the token drawn after those needs no room.
    assert_eq!(results.len(), 5);
    let Err(Error::Cache(error)) = &results[4] else { panic!("{:?}", results[4]) };
    assert_eq!(*error, CacheError::ContextFull { context: 40, held: 40, asked: 1 });

    let options = GenerateOptions { context_policy: ContextPolicy::Stop, ..up_to(10) };
    let last = model.generate(prompt(), options).expect("valid").last().expect("chunks");
    assert_eq!(last.expect("no error").finish_reason, Some(FinishReason::ContextFull));

    let long = Truth::of(NAME).tokens("long");
    let error = model.generate(long, up_to(1)).expect_err("too long");
    assert!(error.to_string().contains("40 tokens"), "{error}");
}

#[test]
fn impossible_prompts_are_errors() {
    let model = model();
    let error = model.generate(Vec::new(), up_to(1)).expect_err("empty");
    assert!(matches!(error, Error::EmptyPrompt), "{error}");
    let error = model.generate(vec![256], up_to(1)).expect_err("no such token");
    assert!(matches!(error, Error::TokenOutOfRange { token: 256, vocab_size: 256 }), "{error}");
    let error = model.generate("text", up_to(1)).expect_err("no tokenizer");
    assert!(matches!(error, Error::NoTokenizer { .. }), "{error}");
    let error = model.generate(prompt(), up_to(0)).expect_err("nothing asked for");
    assert!(matches!(error, Error::Options(_)), "{error}");
    assert!(model.executor().cache().is_empty(), "failed prompts leave nothing behind");
}

#[test]
fn stream_yields_what_the_iterator_does() {
    let model = model();
    let mut stream = pin!(model.generate(prompt(), up_to(6)).expect("valid").into_stream());
    let mut cx = Context::from_waker(Waker::noop());
    let mut tokens = Vec::new();
    loop {
        match stream.as_mut().poll_next(&mut cx) {
            Poll::Ready(Some(chunk)) => tokens.extend(chunk.expect("runs").tokens),
            Poll::Ready(None) => break,
            Poll::Pending => {}
        }
    }
    assert_eq!(tokens, answer(&model, &prompt(), up_to(6)));
}
