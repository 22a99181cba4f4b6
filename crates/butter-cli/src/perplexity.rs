//! `butter perplexity`: how well a model predicts a text.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use butter::Model;
use clap::Args;

use crate::forward::each_logits;
use crate::model::ModelArgs;
use crate::output::{Failure, Terminal, plural};

const EXAMPLES: &str = "\
Examples:
  butter perplexity model.gguf --file wiki.test.raw
  butter perplexity model.gguf --file wiki.test.raw --ctx 1024 --chunks 20
  butter perplexity model.gguf --file wiki.test.raw --f32

The number is that of llama.cpp's `llama-perplexity`: the text's tokens are cut into chunks of --ctx. If the
model's tokenizer starts texts with a token, that token takes the place of each chunk's first. The model sees
a chunk alone and is scored on the tokens of its second half: those after position ctx/2. The perplexity is
e to the mean of -ln p over all of them; lower is better. `±` is one standard error.";

/// Arguments of `butter perplexity`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// The text, UTF-8
    #[arg(long, value_name = "TEXT")]
    file: PathBuf,

    /// Tokens of a chunk
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(4..))]
    ctx: u32,

    /// Stop after this many chunks [default: the whole text]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
}

pub(crate) fn run(args: &PerplexityArgs, terminal: &Terminal) -> Result<(), Failure> {
    let text = fs::read(&args.file).map_err(|error| Failure::io("read", &args.file, &error))?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::error(format!("`{}` is not UTF-8 text (byte {at})", args.file.display()))
            .with_help("convert it with `iconv -t UTF-8`")
    })?;
    let ctx = args.ctx as usize;
    let model = args.model.load(terminal, Some(ctx))?;
    let tokens = tokens(&model, &text)?;
    let available = tokens.len() / ctx;
    if available == 0 {
        return Err(Failure::error(format!(
            "`{}` has {} tokens, which is less than one chunk of {ctx}",
            args.file.display(),
            tokens.len()
        ))
        .with_help("give a longer text, or a smaller --ctx"));
    }
    let chunks = args.chunks.map_or(available, |chunks| available.min(chunks as usize));
    let first_token = starting_token(&model)?;
    let mut score = Score::default();
    let progress = Running::new(terminal, chunks);
    for (index, chunk) in tokens.chunks_exact(ctx).take(chunks).enumerate() {
        let mut chunk = chunk.to_vec();
        if let Some(token) = first_token {
            chunk[0] = token;
        }
        score_chunk(&model, &chunk, &mut score)?;
        progress.show(index + 1, &score);
    }
    progress.clear();
    let mut out = io::stdout().lock();
    writeln!(out, "perplexity {:.4} ± {:.4}", score.perplexity(), score.error())?;
    terminal.note(format!(
        "{} of {ctx} tokens, {} scored",
        plural(chunks, "chunk"),
        plural(score.count, "token")
    ));
    Ok(())
}

/// The text's tokens, with the one that starts a text if the tokenizer adds it. Special tokens that are spelled out in
/// the text are mere characters.
fn tokens(model: &Model, text: &str) -> Result<Vec<u32>, Failure> {
    let mut tokens: Vec<u32> = starting_token(model)?.into_iter().collect();
    tokens.extend(model.tokenizer()?.encode_literal(text)?);
    Ok(tokens)
}

/// The token that the tokenizer puts before every text.
fn starting_token(model: &Model) -> Result<Option<u32>, Failure> {
    let tokenizer = model.tokenizer()?;
    let around = tokenizer.encode("", true)?;
    Ok(tokenizer.bos_id().filter(|bos| around.first() == Some(bos)))
}

/// Scores the tokens of a chunk's second half.
fn score_chunk(model: &Model, chunk: &[u32], score: &mut Score) -> Result<(), Failure> {
    let first = chunk.len() / 2;
    // The logits at a position are about the token after it, so the last position predicts nothing that is known.
    let mut next = chunk[first + 1..].iter();
    each_logits(model, &chunk[..chunk.len() - 1], first, |logits| {
        if let Some(&token) = next.next() {
            score.add(surprise(logits, token as usize));
        }
        Ok(())
    })
}

/// `-ln p` of a token.
fn surprise(logits: &[f32], token: usize) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - largest).exp()).sum();
    sum.ln() - f64::from(logits[token] - largest)
}

/// Sums over scored tokens.
#[derive(Debug, Default)]
struct Score {
    sum: f64,
    squares: f64,
    count: usize,
}

impl Score {
    fn add(&mut self, surprise: f64) {
        self.sum += surprise;
        self.squares += surprise * surprise;
        self.count += 1;
    }

    fn perplexity(&self) -> f64 {
        (self.sum / self.count as f64).exp()
    }

    /// The standard error of the perplexity: that of the mean, carried through the exponential.
    fn error(&self) -> f64 {
        let count = self.count as f64;
        let mean = self.sum / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        (variance / (count - 1.0).max(1.0)).sqrt() * self.perplexity()
    }
}

/// The estimate so far: in one line on a terminal, else a line for every tenth of the text.
struct Running<'a> {
    terminal: &'a Terminal,
    chunks: usize,
    bar: Option<indicatif::ProgressBar>,
}

impl<'a> Running<'a> {
    fn new(terminal: &'a Terminal, chunks: usize) -> Self {
        let bar = terminal.is_animated().then(|| crate::progress::estimate(chunks as u64));
        Self { terminal, chunks, bar }
    }

    fn show(&self, done: usize, score: &Score) {
        let estimate = format!("perplexity {:.4} ± {:.4}", score.perplexity(), score.error());
        match &self.bar {
            Some(bar) => {
                bar.set_message(estimate);
                bar.set_position(done as u64);
            }
            None if done.is_multiple_of(self.chunks.div_ceil(10)) => {
                self.terminal.note(format!("chunk {done} of {}: {estimate}", self.chunks));
            }
            None => {}
        }
    }

    fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Score, surprise};

    #[test]
    fn equal_logits_are_as_surprising_as_the_vocabulary_is_large() {
        let mut score = Score::default();
        for token in 0..4 {
            score.add(surprise(&[7.0; 4], token));
        }
        assert!((score.perplexity() - 4.0).abs() < 1e-12, "{}", score.perplexity());
        assert!(score.error() < 1e-6);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(surprise(&[1000.0, 1000.0], 1), 2f64.ln()));
        assert!(close(surprise(&[-1000.0, 1000.0], 0), 2000.0));
    }
}
