//! Running batches: uploading, encoding, replaying, reading back.

use std::collections::HashMap;

use iron_kernels as kernels;
use iron_runtime::{CommandBuffer, DType, DispatchTiming, Recording, Tensor};

use crate::Error;
use crate::arena::Arena;
use crate::batch::{Batch, BatchError, BatchTensors, DeviceBatch};
use crate::cache::{CacheOptions, KvCache};
use crate::generate::Draw;
use crate::models::Decoder;
use crate::nn::{Context, Precision};
use crate::placement::Placement;
use crate::weights::config::ModelConfig;

/// How forward passes reach the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// Every kernel call is encoded anew.
    Eager,
    /// Decode steps are encoded once for each batch size and then replayed.
    #[default]
    Recorded,
}

/// What an executor is made for.
#[derive(Clone, Debug)]
pub(crate) struct ExecutorOptions {
    pub(crate) precision: Precision,
    pub(crate) dispatch: Dispatch,
    pub(crate) context_length: usize,
    pub(crate) max_sequences: usize,
    pub(crate) cache_bytes: Option<u64>,
    /// The most tokens of one batch.
    pub(crate) max_batch: usize,
}

/// A model with its cache on its devices: runs one batch at a time.
///
/// This is the level for schedulers of many sequences. [`crate::Model::generate`] is the one for programs that want text.
#[derive(Debug)]
pub struct Executor {
    // Before what they point into.
    recordings: HashMap<Step, Recorded>,
    model: Box<dyn Decoder>,
    placement: Placement,
    cache: KvCache,
    inputs: DeviceBatch,
    sampler: SamplerBuffers,
    arena: Arena,
    dispatch: Dispatch,
    vocab_size: usize,
}

/// What distinguishes recordings of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    sequences: usize,
    output: Output,
}

/// What a forward pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Output {
    /// Keys and values only.
    Cache,
    /// Logits.
    Logits,
    /// The most likely tokens.
    Greedy,
    /// Drawn tokens.
    Sampled,
}

/// A decode step: one recording for each segment.
#[derive(Debug)]
struct Recorded {
    segments: Vec<Recording>,
    logits: Tensor,
}

/// What the sampling kernel reads and writes.
#[derive(Debug)]
struct SamplerBuffers {
    /// `[temperature, top_p, min_p, 0]` for each row.
    settings: Tensor,
    /// `[top_k, seed, seed, draw]` for each row.
    choices: Tensor,
    tokens: Tensor,
}

impl Executor {
    pub(crate) fn new(
        model: Box<dyn Decoder>,
        config: &ModelConfig,
        placement: Placement,
        options: &ExecutorOptions,
    ) -> Result<Self, Error> {
        let device = placement.main_device().clone();
        let rows = options.max_batch.max(options.max_sequences.next_power_of_two());
        let cache = KvCache::new(
            &device,
            CacheOptions {
                num_layers: config.num_layers,
                num_kv_heads: config.num_kv_heads,
                head_dim: config.head_dim,
                dtype: options.precision.cache_dtype(),
                context_length: options.context_length,
                max_sequences: options.max_sequences,
                byte_limit: options.cache_bytes,
            },
        )?;
        let group = config.num_heads / config.num_kv_heads;
        let hidden_size = config.hidden_size;
        Ok(Self {
            recordings: HashMap::new(),
            model,
            cache,
            inputs: DeviceBatch::new(&device, rows, hidden_size, group, config.sliding_window)?,
            sampler: SamplerBuffers {
                settings: device.tensor(DType::F32, &[rows, 4])?,
                choices: device.tensor(DType::I32, &[rows, 4])?,
                tokens: device.tensor(DType::I32, &[rows])?,
            },
            arena: Arena::new(device),
            placement,
            dispatch: options.dispatch,
            vocab_size: config.vocab_size,
        })
    }

    /// An empty batch for this model.
    pub fn batch(&self) -> Batch {
        Batch::new(self.inputs.hidden_size())
    }

    /// The most tokens that one batch may have.
    pub fn max_batch(&self) -> usize {
        self.inputs.capacity()
    }

    /// The number of logits of one token.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The cache of keys and values.
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// The cache, for starting, growing and ending sequences.
    pub fn cache_mut(&mut self) -> &mut KvCache {
        &mut self.cache
    }

    /// Runs a batch for its keys and values only.
    pub fn prefill(&mut self, batch: &Batch) -> Result<(), Error> {
        self.run(batch, Output::Cache).map(drop)
    }

    /// Runs a batch and returns the logits of its wanted tokens, `[wanted rows, vocab_size]`.
    pub fn logits(&mut self, batch: &Batch) -> Result<Vec<f32>, Error> {
        let rows = batch.wanted_rows();
        let output = if rows == 0 { Output::Cache } else { Output::Logits };
        match self.run(batch, output)? {
            Some(logits) => Ok(logits.narrow(0, 0, rows)?.read()?),
            None => Ok(Vec::new()),
        }
    }

    /// Runs a batch and draws a token for each of its wanted tokens.
    pub fn sample(&mut self, batch: &Batch, draws: &[Draw]) -> Result<Vec<u32>, Error> {
        let output = self.prepare(batch, draws)?;
        self.run(batch, output)?;
        let drawn = self.sampler.tokens.narrow(0, 0, draws.len())?.read::<i32>()?;
        Ok(drawn.into_iter().map(|token| token as u32).collect())
    }

    /// Does what [`Executor::sample`] does, one kernel call at a time, and returns the time of each.
    pub fn profile(&mut self, batch: &Batch, draws: &[Draw]) -> Result<Vec<DispatchTiming>, Error> {
        let output = self.prepare(batch, draws)?;
        let tensors = self.inputs.upload(batch, &self.cache, 0)?;
        let _scope = self.arena.scope();
        let mut timings = Vec::new();
        self.encode(&tensors, output, |commands| {
            timings.extend(commands.run_profiled()?);
            Ok(())
        })?;
        Ok(timings)
    }

    /// Hands the draws of a batch to the device; returns what the batch is for.
    fn prepare(&self, batch: &Batch, draws: &[Draw]) -> Result<Output, Error> {
        let rows = batch.wanted_rows();
        if draws.len() != rows {
            return Err(BatchError::Samplers { rows, found: draws.len() }.into());
        }
        self.write_draws(draws)?;
        Ok(match draws {
            [] => Output::Cache,
            draws if draws.iter().all(Draw::is_greedy) => Output::Greedy,
            _ => Output::Sampled,
        })
    }

    /// Runs a batch; returns its logits, which are there until the next run.
    fn run(&mut self, batch: &Batch, output: Output) -> Result<Option<Tensor>, Error> {
        if self.dispatch == Dispatch::Recorded && batch.is_decode() && output != Output::Cache {
            let sequences = batch.tokens().next_power_of_two();
            return self.replay(batch, Step { sequences, output }).map(Some);
        }
        let tensors = self.inputs.upload(batch, &self.cache, 0)?;
        let _scope = self.arena.scope();
        self.encode(&tensors, output, |commands| Ok(commands.run()?))
    }

    /// Runs a decode step from its recording, which is made at its first use.
    fn replay(&mut self, batch: &Batch, step: Step) -> Result<Tensor, Error> {
        let tensors = self.inputs.upload(batch, &self.cache, step.sequences)?;
        if !self.recordings.contains_key(&step) {
            let _scope = self.arena.scope();
            let mut segments = Vec::new();
            let logits = self.encode(&tensors, step.output, |commands| {
                segments.push(commands.finish());
                Ok(())
            })?;
            if let Some(logits) = logits {
                self.recordings.insert(step, Recorded { segments, logits });
            }
        }
        let Recorded { segments, logits } = &self.recordings[&step];
        for segment in segments {
            segment.run()?;
        }
        Ok(logits.clone())
    }

    /// Encodes each segment of a forward pass and hands its commands to `submit`.
    fn encode(
        &self,
        tensors: &BatchTensors,
        output: Output,
        mut submit: impl FnMut(CommandBuffer) -> Result<(), Error>,
    ) -> Result<Option<Tensor>, Error> {
        let segments = self.placement.segments();
        let last = segments.len() - 1;
        let (mut residual, mut logits) = (None, None);
        for (index, segment) in segments.into_iter().enumerate() {
            let commands = segment.device.command_buffer();
            let (arena, cache) = (&self.arena, &self.cache);
            let cx = Context { commands: &commands, arena, batch: tensors, cache };
            let mut x = match residual.take() {
                Some(x) => x,
                None => self.model.embed(&cx)?,
            };
            self.model.layers(&cx, segment.layers, &mut x)?;
            if index < last {
                residual = Some(x);
            } else if output != Output::Cache {
                let computed = self.model.logits(&cx, x)?;
                self.sampler.encode(&cx, &computed, output)?;
                logits = Some(computed);
            }
            submit(commands)?;
        }
        Ok(logits)
    }

    fn write_draws(&self, draws: &[Draw]) -> Result<(), Error> {
        let limit = self.sampler.settings.dim(0)?;
        if draws.len() > limit {
            return Err(BatchError::TooLarge { tokens: draws.len(), limit }.into());
        }
        let settings: Vec<f32> = draws.iter().flat_map(Draw::settings).collect();
        let choices: Vec<i32> = draws.iter().flat_map(Draw::choices).collect();
        self.sampler.settings.narrow(0, 0, draws.len())?.write(&settings)?;
        Ok(self.sampler.choices.narrow(0, 0, draws.len())?.write(&choices)?)
    }
}

impl SamplerBuffers {
    /// Encodes the choice of a token for each row of logits.
    fn encode(&self, cx: &Context<'_>, logits: &Tensor, output: Output) -> Result<(), Error> {
        let rows = logits.dim(0)?;
        let tokens = self.tokens.narrow(0, 0, rows)?;
        match output {
            Output::Cache | Output::Logits => {}
            Output::Greedy => kernels::argmax(cx.commands, logits, &tokens)?,
            Output::Sampled => {
                let settings = self.settings.narrow(0, 0, rows)?;
                let choices = self.choices.narrow(0, 0, rows)?;
                let weights = cx.matrix(rows, logits.dim(1)?)?;
                kernels::sample(cx.commands, logits, &settings, &choices, &weights, &tokens)?;
            }
        }
        Ok(())
    }
}
