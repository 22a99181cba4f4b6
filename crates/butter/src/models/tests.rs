//! A random quantised model: the same bits however its tokens are computed. Dense models are in `tests/`.

use half::f16;

use crate::batch::{Run, WantedLogits};
use crate::cache::SequenceId;
use crate::testing::TestFolder;
use crate::weights::gguf::builder::Builder;
use crate::{Dispatch, Executor, LoadOptions, Model};

/// Numbers without a pattern, the same in each run.
struct Noise(u64);

impl Noise {
    /// xorshift64*.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 40) as u8).collect()
    }

    fn half(&mut self, around: f32) -> [u8; 2] {
        let spread = 0.5 + (self.next() >> 40) as f32 / (1 << 24) as f32;
        f16::from_f32(around * spread).to_le_bytes()
    }

    /// `elements` values of ggml's type `kind`, with a standard deviation of about `1 / sqrt(columns)`.
    fn blocks(&mut self, kind: Kind, elements: usize, columns: usize) -> Vec<u8> {
        let size = (columns as f32).sqrt().recip();
        let mut data = Vec::new();
        for _ in 0..elements / kind.block() {
            match kind {
                Kind::Q8_0 => {
                    data.extend(self.half(size / 73.0));
                    data.extend(self.bytes(32));
                }
                Kind::Q4_0 => {
                    data.extend(self.half(size / 4.6));
                    data.extend(self.bytes(16));
                }
                Kind::Q4_1 => {
                    data.extend(self.half(size / 4.6));
                    data.extend(self.half(-7.5 * size / 4.6));
                    data.extend(self.bytes(16));
                }
                Kind::Q4K => {
                    data.extend(self.half(size / 150.0));
                    data.extend(self.half(size / 20.0));
                    data.extend(self.bytes(12 + 128));
                }
                Kind::Q6K => {
                    data.extend(self.bytes(128 + 64 + 16));
                    data.extend(self.half(size / 1300.0));
                }
            }
        }
        data
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Q8_0,
    Q4_0,
    Q4_1,
    Q4K,
    Q6K,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q6K => 14,
        }
    }

    fn block(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }
}

const HIDDEN: usize = 256;
const VOCABULARY: usize = 96;

/// Two layers whose matrices are of different types, as in files for daily use.
fn mixed_model(folder: &TestFolder) -> Model {
    let mut noise = Noise(42);
    let tokens: Vec<String> = (0..VOCABULARY).map(|token| format!("t{token}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut builder = Builder::default()
        .string("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .u32("llama.context_length", 256)
        .u32("llama.embedding_length", HIDDEN as u32)
        .u32("llama.feed_forward_length", 512)
        .u32("llama.attention.head_count", 6)
        .u32("llama.attention.head_count_kv", 2)
        .u32("llama.attention.key_length", 128)
        .u32("llama.attention.value_length", 128)
        .u32("llama.rope.dimension_count", 128)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "smollm")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &[1; VOCABULARY])
        .strings("tokenizer.ggml.merges", &[]);
    let mut matrix = |builder: Builder, name: &str, rows: usize, columns: usize, kind: Kind| {
        let data = noise.blocks(kind, rows * columns, columns);
        builder.tensor(name, &[columns as u64, rows as u64], kind.number(), &data)
    };
    builder = matrix(builder, "token_embd.weight", VOCABULARY, HIDDEN, Kind::Q6K);
    for layer in 0..2 {
        for (role, rows, columns, kinds) in [
            ("attn_q", 768, HIDDEN, [Kind::Q4K, Kind::Q4_0]),
            ("attn_k", 256, HIDDEN, [Kind::Q4K, Kind::Q8_0]),
            ("attn_v", 256, HIDDEN, [Kind::Q6K, Kind::Q4_1]),
            ("attn_output", HIDDEN, 768, [Kind::Q4_1, Kind::Q4K]),
            ("ffn_gate", 512, HIDDEN, [Kind::Q4_0, Kind::Q4K]),
            ("ffn_up", 512, HIDDEN, [Kind::Q4_1, Kind::Q8_0]),
            ("ffn_down", HIDDEN, 512, [Kind::Q8_0, Kind::Q6K]),
        ] {
            let name = format!("blk.{layer}.{role}.weight");
            builder = matrix(builder, &name, rows, columns, kinds[layer]);
        }
    }
    let ones: Vec<u8> = (0..HIDDEN).flat_map(|_| 1.0_f32.to_le_bytes()).collect();
    for name in
        ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm", "blk.1.attn_norm", "blk.1.ffn_norm"]
    {
        builder = builder.tensor(&format!("{name}.weight"), &[HIDDEN as u64], 0, &ones);
    }
    open(&builder.write(folder.path()), false, 1, Dispatch::Eager)
}

fn open(path: &std::path::Path, f32: bool, threads: usize, dispatch: Dispatch) -> Model {
    let threads = Some(threads);
    let options = LoadOptions { f32, threads, dispatch, prewarm: false, ..LoadOptions::default() };
    Model::open(path, &options).expect("a valid model")
}

/// Appends each sequence's next `chunk` tokens and returns the logits of the first sequence.
fn logits(model: &Model, sequences: &[Vec<u32>], chunk: usize) -> Vec<f32> {
    let mut executor = model.executor();
    let ids: Vec<SequenceId> =
        sequences.iter().map(|_| executor.cache_mut().create().expect("free")).collect();
    let mut found = Vec::new();
    for start in (0..sequences[0].len()).step_by(chunk) {
        let mut batch = executor.batch();
        let mut first = 0;
        for (id, tokens) in ids.iter().zip(sequences) {
            let piece: Vec<u32> = tokens.iter().skip(start).take(chunk).copied().collect();
            if piece.is_empty() {
                continue;
            }
            append(&mut executor, &mut batch, *id, &piece);
            first = if first == 0 { piece.len() } else { first };
        }
        let logits = executor.logits(&batch).expect("valid");
        found.extend(&logits[..first * VOCABULARY]);
    }
    for id in ids {
        executor.cache_mut().release(id).expect("live");
    }
    found
}

fn append(
    executor: &mut Executor,
    batch: &mut crate::batch::Batch,
    id: SequenceId,
    tokens: &[u32],
) {
    let start = executor.cache_mut().append(id, tokens.len()).expect("room");
    let run = Run::tokens(id, start, tokens).with_logits(WantedLogits::All);
    batch.push(&run).expect("valid");
}

fn sequences() -> Vec<Vec<u32>> {
    let mut noise = Noise(7);
    let mut tokens = |count: usize| -> Vec<u32> {
        (0..count).map(|_| (noise.next() >> 33) as u32 % VOCABULARY as u32).collect()
    };
    vec![tokens(140), tokens(37), tokens(90)]
}

#[test]
fn quantised_logits_have_the_same_bits_alone_batched_chunked_stepped_and_recorded() {
    let folder = TestFolder::new();
    let path = mixed_model(&folder).path().to_owned();
    let sequences = sequences();
    for f32 in [false, true] {
        let one = open(&path, f32, 1, Dispatch::Eager);
        let expected = logits(&one, &sequences[..1], 140);
        let deviation =
            expected.iter().map(|logit| logit * logit).sum::<f32>() / expected.len() as f32;
        assert!((0.01..1e4).contains(&deviation), "logits of a sensible size, not {deviation}");
        for threads in [1, 2] {
            for dispatch in [Dispatch::Eager, Dispatch::Recorded] {
                let model = open(&path, f32, threads, dispatch);
                for (chunk, count) in [(1, 1), (1, 3), (3, 3), (50, 3), (140, 3)] {
                    let found = logits(&model, &sequences[..count], chunk);
                    let same = found
                        .iter()
                        .map(|logit| logit.to_bits())
                        .eq(expected.iter().map(|logit| logit.to_bits()));
                    assert!(
                        same,
                        "f32 {f32}, {threads} threads, {dispatch:?}, chunks of {chunk}, {count} sequences"
                    );
                }
            }
        }
    }
}

#[test]
fn fast_mode_stays_near_f32() {
    let folder = TestFolder::new();
    let fast = mixed_model(&folder);
    let exact = open(fast.path(), true, 1, Dispatch::Eager);
    let (found, expected) =
        (logits(&fast, &sequences()[..1], 140), logits(&exact, &sequences()[..1], 140));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    let cosine = dot(&found, &expected) / (dot(&found, &found) * dot(&expected, &expected)).sqrt();
    assert!(cosine > 0.999, "cosine {cosine}");
    assert_ne!(found, expected, "the fast mode computes in int8");
}
