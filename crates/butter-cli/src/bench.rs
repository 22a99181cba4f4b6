//! `butter bench`: how fast a model is on this machine, and how fast it could be.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use butter::Model;
use butter::batch::{Run, WantedLogits};
use butter::cache::SequenceId;
use butter::generate::Draw;
use butter::weights::Weights;
use butter::weights::config::LayerAttention;
use clap::Args;
use iron_runtime::{measure_read_bandwidth, peak_rss};
use serde_json::{Value, json};

use crate::forward::{prefill, with_sequence};
use crate::model::ModelArgs;
use crate::output::{Failure, Style, Terminal, bytes, paint};
use crate::profile::Profile;

/// Decode steps that are profiled.
const PROFILED_STEPS: usize = 8;

const EXAMPLES: &str = "\
Examples:
  butter bench smollm2
  butter bench model.gguf -p 2048 -n 256 -r 10
  butter bench model.gguf --depth 4096                decode with a long text in the cache
  butter bench model.gguf --threads 4 --json
  butter bench model.gguf --profile                   where the time goes, kernel by kernel

Numbers are medians over the repetitions, with the least and the most beside them, as of llama-bench's pp and
tg. The memory bandwidth is measured in the same run by the same threads. What a decoded token reads is the
weights as they lie in the file, without an embedding matrix of which it needs one row, and the keys and
values of the text before it; the share is how much of the bandwidth that comes to.";

/// Arguments of `butter bench`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// Tokens of the prompt
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,

    /// Tokens to decode
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    decode: u32,

    /// Tokens in the cache before the first is decoded
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    depth: u32,

    /// How often each is measured
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Show the time of each kernel too
    #[arg(long)]
    profile: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &BenchArgs, terminal: &Terminal) -> Result<(), Failure> {
    let path = args.model.resolve(terminal)?;
    let context = args.prompt.max(args.depth.saturating_add(args.decode)) as usize;
    let options = args.model.options(terminal, Some(context));
    let start = Instant::now();
    let model = Model::open(&path, &options)?;
    let load_time = start.elapsed();
    let bench = Bench { model: &model, prompt: prompt(&model, context), terminal };
    let (prompt_tokens, decode_tokens, depth) =
        (args.prompt as usize, args.decode as usize, args.depth as usize);
    let prefill =
        bench.repeat("prefill", args.repetitions, || bench.prefill_time(prompt_tokens))?;
    let decode =
        bench.repeat("decode", args.repetitions, || bench.decode_time(depth, decode_tokens))?;
    let profiles = args.profile.then(|| bench.profiles(prompt_tokens, depth)).transpose()?;
    // Before the bandwidth is measured, which takes memory of its own.
    let peak_memory = peak_rss().ok();
    terminal.note("measuring the memory bandwidth");
    let report = Report {
        name: path
            .file_name()
            .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into()),
        device: model.device().name(),
        threads: model.device().threads(),
        isa: model.device().isa().name(),
        full_precision: args.model.compute.full_precision,
        load_time,
        prefill: Rates::new(prompt_tokens, &prefill),
        decode: Rates::new(decode_tokens, &decode),
        prompt_tokens,
        decode_tokens,
        depth,
        peak_memory,
        read_bandwidth: measure_read_bandwidth(model.device())?,
        weight_bytes: weight_bytes(&path)?,
        cache_bytes: cache_bytes(&model, depth + decode_tokens / 2),
        profiles,
    };
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", report.to_json())?;
    } else {
        report.write(&mut out)?;
    }
    Ok(())
}

/// Tokens that are neither all alike nor special on purpose: their number says nothing to the kernels.
fn prompt(model: &Model, length: usize) -> Vec<u32> {
    let vocab_size = model.config().vocab_size as u64;
    let mut state = 1_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocab_size) as u32
    };
    (0..length).map(|_| next()).collect()
}

struct Bench<'a> {
    model: &'a Model,
    prompt: Vec<u32>,
    terminal: &'a Terminal,
}

impl Bench<'_> {
    /// Measures once for warming up, then as often as asked.
    fn repeat(
        &self,
        what: &str,
        times: u32,
        measure: impl Fn() -> Result<Duration, Failure>,
    ) -> Result<Vec<Duration>, Failure> {
        self.terminal.note(format!("measuring {what}"));
        measure()?;
        (0..times).map(|_| measure()).collect()
    }

    /// How long it takes to read a prompt and choose the token after it.
    fn prefill_time(&self, tokens: usize) -> Result<Duration, Failure> {
        with_sequence(self.model, |id| {
            let start = Instant::now();
            // Batches as large as possible; only the last one computes logits.
            let limit = self.model.executor().max_batch();
            let (before, last) = self.prompt[..tokens].split_at((tokens - 1) / limit * limit);
            prefill(self.model, id, before)?;
            self.step(id, last)?;
            Ok(start.elapsed())
        })
    }

    /// How long it takes to decode so many tokens behind `depth` others.
    fn decode_time(&self, depth: usize, tokens: usize) -> Result<Duration, Failure> {
        with_sequence(self.model, |id| {
            prefill(self.model, id, &self.prompt[..depth])?;
            let mut token = self.prompt[depth];
            let start = Instant::now();
            for _ in 0..tokens {
                token = self.step(id, &[token])?;
            }
            Ok(start.elapsed())
        })
    }

    /// Brings tokens into the cache and chooses the one after them.
    fn step(&self, id: SequenceId, tokens: &[u32]) -> Result<u32, Failure> {
        let mut executor = self.model.executor();
        let start = executor.cache_mut().append(id, tokens.len())?;
        let mut batch = executor.batch();
        batch.push(&Run::tokens(id, start, tokens).with_logits(WantedLogits::Last))?;
        Ok(executor.sample(&batch, &[Draw::GREEDY])?[0])
    }

    /// Profiles of one batch of the prompt, and of decode steps.
    fn profiles(&self, prompt_tokens: usize, depth: usize) -> Result<[Profile; 2], Failure> {
        self.terminal.note("profiling");
        let profile = |id, tokens: &[u32]| {
            let mut executor = self.model.executor();
            let start = executor.cache_mut().append(id, tokens.len())?;
            let mut batch = executor.batch();
            batch.push(&Run::tokens(id, start, tokens).with_logits(WantedLogits::Last))?;
            Ok::<_, Failure>(executor.profile(&batch, &[Draw::GREEDY])?)
        };
        let batch = prompt_tokens.min(self.model.executor().max_batch());
        let read = with_sequence(self.model, |id| profile(id, &self.prompt[..batch]))?;
        let decoded = with_sequence(self.model, |id| {
            prefill(self.model, id, &self.prompt[..depth])?;
            let steps = self.prompt[depth..].iter().take(PROFILED_STEPS);
            let timings: Vec<_> =
                steps.map(|&token| profile(id, &[token])).collect::<Result<_, _>>()?;
            Ok(Profile::new(&timings.concat(), timings.len()))
        })?;
        Ok([Profile::new(&read, 1), decoded])
    }
}

/// What a decoded token reads of the file: all tensors but an embedding matrix that is not the output matrix too.
fn weight_bytes(path: &Path) -> Result<u64, Failure> {
    const EMBEDDING: &str = "model.embed_tokens.weight";
    let weights = Weights::open(path)?;
    let has_output = weights.contains("lm_head.weight");
    let names = weights.names().into_iter().filter(|&name| !(has_output && name == EMBEDDING));
    let mut sum = 0;
    for name in names {
        sum += weights.get(name)?.bytes.len() as u64;
    }
    Ok(sum)
}

/// What a token with `position` others before it reads of the cache.
fn cache_bytes(model: &Model, position: usize) -> u64 {
    let config = model.config();
    let executor = model.executor();
    let cache = executor.cache().options();
    let per_position = 2 * cache.num_kv_heads * cache.head_dim * cache.dtype.size();
    let seen = |attention: &LayerAttention| match (attention, config.sliding_window) {
        (LayerAttention::Sliding, Some(window)) => position.min(window),
        _ => position,
    };
    config.layer_attention.iter().map(|attention| (seen(attention) * per_position) as u64).sum()
}

/// Tokens per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    median: f64,
    least: f64,
    most: f64,
}

impl Rates {
    fn new(tokens: usize, times: &[Duration]) -> Self {
        let mut rates: Vec<f64> =
            times.iter().map(|time| tokens as f64 / time.as_secs_f64().max(1e-9)).collect();
        rates.sort_by(f64::total_cmp);
        let (low, high) = (rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
        Self { median: f64::midpoint(low, high), least: rates[0], most: rates[rates.len() - 1] }
    }

    fn to_json(self) -> Value {
        json!({ "median": self.median, "min": self.least, "max": self.most })
    }
}

#[derive(Debug)]
struct Report {
    name: String,
    device: String,
    threads: usize,
    isa: &'static str,
    full_precision: bool,
    load_time: Duration,
    prefill: Rates,
    decode: Rates,
    prompt_tokens: usize,
    decode_tokens: usize,
    depth: usize,
    peak_memory: Option<u64>,
    /// Bytes per second.
    read_bandwidth: f64,
    weight_bytes: u64,
    cache_bytes: u64,
    profiles: Option<[Profile; 2]>,
}

impl Report {
    fn bytes_per_token(&self) -> u64 {
        self.weight_bytes + self.cache_bytes
    }

    fn share(&self) -> f64 {
        self.bytes_per_token() as f64 * self.decode.median / self.read_bandwidth
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let precision = if self.full_precision { ", f32" } else { "" };
        let at = match self.depth {
            0 => String::new(),
            depth => format!(" behind {depth}"),
        };
        writeln!(out, "{}  {}{precision}", paint(Style::Bold, &self.name), self.device)?;
        let mut field = |name: &str, value: String| writeln!(out, "  {name:<22} {value}");
        let rates = |rates: Rates| {
            format!("{:>9.1} tokens/s  ({:.1} to {:.1})", rates.median, rates.least, rates.most)
        };
        field(&format!("prefill {}", self.prompt_tokens), rates(self.prefill))?;
        field(&format!("decode {}{at}", self.decode_tokens), rates(self.decode))?;
        field("load", format!("{:>9.3} s", self.load_time.as_secs_f64()))?;
        if let Some(peak) = self.peak_memory {
            field("peak memory", format!("{:>12}", bytes(peak)))?;
        }
        field("read bandwidth", format!("{:>9.1} GB/s", self.read_bandwidth / 1e9))?;
        let read = format!(
            "{:>12}  ({} weights, {} cache)",
            bytes(self.bytes_per_token()),
            bytes(self.weight_bytes),
            bytes(self.cache_bytes)
        );
        field("a token reads", read)?;
        field("share of bandwidth", format!("{:>9.1} %", self.share() * 100.0))?;
        if let Some([prefill, decode]) = &self.profiles {
            prefill.write(out, "Prefill, one batch")?;
            decode.write(out, "Decode, one token")?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let mut json = json!({
            "model": self.name,
            "device": self.device,
            "threads": self.threads,
            "isa": self.isa,
            "f32": self.full_precision,
            "load_seconds": self.load_time.as_secs_f64(),
            "prompt_tokens": self.prompt_tokens,
            "decode_tokens": self.decode_tokens,
            "depth": self.depth,
            "prefill_tokens_per_second": self.prefill.to_json(),
            "decode_tokens_per_second": self.decode.to_json(),
            "peak_memory_bytes": self.peak_memory,
            "read_bandwidth_bytes_per_second": self.read_bandwidth,
            "weight_bytes_per_token": self.weight_bytes,
            "cache_bytes_per_token": self.cache_bytes,
            "share_of_read_bandwidth": self.share(),
        });
        if let Some([prefill, decode]) = &self.profiles {
            json["profile"] = json!({ "prefill": prefill.to_json(), "decode": decode.to_json() });
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Rates;

    #[test]
    fn median_of_an_even_number_is_between_the_middle_two() {
        let times = [1, 2, 4, 8].map(Duration::from_secs);
        assert_eq!(Rates::new(8, &times), Rates { median: 3.0, least: 1.0, most: 8.0 });
        assert_eq!(Rates::new(8, &times[..1]), Rates { median: 8.0, least: 8.0, most: 8.0 });
    }
}
