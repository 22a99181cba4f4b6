//! A loaded model.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iron_runtime::{CpuOptions, Device};

use crate::Error;
use crate::batch::{Run, WantedLogits};
use crate::capabilities::Capabilities;
use crate::executor::{Executor, ExecutorOptions};
use crate::generate::{Draw, GenerateOptions, Generator, HeldSequence, Prompt, Session};
use crate::lifecycle::{LoadOptions, ModelEvent};
use crate::models::{Decoder, Family};
use crate::nn::{Loader, Precision};
use crate::placement::Placement;
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use crate::weights::Weights;
use crate::weights::config::ModelConfig;

/// Tokens of one forward pass, at most.
const MAX_BATCH: usize = 512;

/// Tokens whose logits are computed at once for [`Model::logits`]: a large vocabulary's take a megabyte each.
const LOGITS_CHUNK: usize = 64;

/// A model that is ready to answer. Clones share everything.
#[derive(Clone, Debug)]
pub struct Model(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    path: PathBuf,
    family: &'static Family,
    config: ModelConfig,
    pub(crate) tokenizer: Option<Tokenizer>,
    chat_template: Option<ChatTemplate>,
    pub(crate) context_length: usize,
    turn_ends: Vec<u32>,
    device: Device,
    executor: Mutex<Executor>,
}

/// The logits of every position of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    /// `[positions, vocab_size]`.
    pub values: Vec<f32>,
    /// Size of the vocabulary.
    pub vocab_size: usize,
}

impl Logits {
    /// The logits after each position.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.vocab_size)
    }
}

impl Model {
    /// Loads the model that `reference` names, fetching it first if need be: a file or folder, a short name, or a place
    /// to fetch from (see [`crate::hub::Reference::parse`]). The listeners in `options` are told how far it is.
    pub fn load(reference: &str, options: &LoadOptions) -> Result<Self, Error> {
        let mut on_event = |event| options.events.tell(&ModelEvent::Downloading(event));
        let path = options.hub.resolve(reference, &mut on_event, options.cancel.flag());
        told(options, path.map_err(Error::from).and_then(|path| load(&path, options)))
    }

    /// Like [`Model::load`], for a file or folder that is there.
    pub fn open(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Self, Error> {
        told(options, load(path.as_ref(), options))
    }

    /// The file or folder that the model was loaded from.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Sizes and settings.
    pub fn config(&self) -> &ModelConfig {
        &self.0.config
    }

    /// Name of the family, such as `llama`.
    pub fn family(&self) -> &'static str {
        self.0.family.name
    }

    /// What the model can do.
    pub fn capabilities(&self) -> Capabilities {
        self.0.family.capabilities
    }

    /// The longest conversation in tokens.
    pub fn context_length(&self) -> usize {
        self.0.context_length
    }

    /// The device that computes.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Text to tokens and back.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`] for a folder without one: such a model takes prompts as tokens only, and its chunks have no
    /// text.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.0.tokenizer()
    }

    /// Conversations to prompts; `None` for models that were not made for chat.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.0.chat_template.as_ref()
    }

    /// Runs batches of many sequences, for schedulers. Generators and sessions wait while it is locked.
    pub fn executor(&self) -> MutexGuard<'_, Executor> {
        self.0.executor()
    }

    /// Continues a prompt.
    pub fn generate(
        &self,
        prompt: impl Into<Prompt>,
        options: GenerateOptions,
    ) -> Result<Generator, Error> {
        let prompt = self.0.encode(prompt.into())?;
        let sequence = HeldSequence::new(&self.0)?;
        Generator::new(Arc::clone(&self.0), &prompt, options, sequence, None)
    }

    /// Starts a chat whose prompts reuse what is in the cache.
    pub fn session(&self) -> Result<Session, Error> {
        Ok(Session::new(Arc::clone(&self.0), HeldSequence::new(&self.0)?))
    }

    /// The logits after each of `tokens`.
    pub fn logits(&self, tokens: &[u32]) -> Result<Logits, Error> {
        self.0.check_prompt(tokens)?;
        let mut sequence = HeldSequence::new(&self.0)?;
        let mut values = Vec::new();
        for chunk in tokens.chunks(LOGITS_CHUNK) {
            let id = sequence.id;
            values.extend(sequence.extend(chunk, |executor, start| {
                let mut batch = executor.batch();
                batch.push(&Run::tokens(id, start, chunk).with_logits(WantedLogits::All))?;
                executor.logits(&batch)
            })?);
        }
        Ok(Logits { values, vocab_size: self.0.config.vocab_size })
    }
}

impl Inner {
    pub(crate) fn executor(&self) -> MutexGuard<'_, Executor> {
        // A panic leaves no half-done state that matters: lengths are set before, values are computed again.
        self.executor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        let missing = || Error::NoTokenizer { path: self.path.clone() };
        self.tokenizer.as_ref().ok_or_else(missing)
    }

    /// The tokens of a prompt.
    pub(crate) fn encode(&self, prompt: Prompt) -> Result<Vec<u32>, Error> {
        match prompt {
            Prompt::Tokens(tokens) => Ok(tokens),
            Prompt::Text(text) => {
                let tokens = self.tokenizer()?.encode(&text, true)?;
                if tokens.is_empty() {
                    return Ok(self.config.bos_token_id.into_iter().collect());
                }
                Ok(tokens)
            }
        }
    }

    /// Checks that there are tokens and that the model has them all.
    pub(crate) fn check_prompt(&self, tokens: &[u32]) -> Result<(), Error> {
        let vocab_size = self.config.vocab_size;
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        match tokens.iter().find(|&&token| token as usize >= vocab_size) {
            Some(&token) => Err(Error::TokenOutOfRange { token, vocab_size }),
            None => Ok(()),
        }
    }

    /// Whether a token ends an answer.
    pub(crate) fn ends_turn(&self, token: u32) -> bool {
        self.turn_ends.contains(&token)
    }
}

/// Tells the listeners of a failure.
fn told(options: &LoadOptions, result: Result<Model, Error>) -> Result<Model, Error> {
    if let Err(error) = &result {
        options.events.tell(&ModelEvent::Failed { message: error.to_string() });
    }
    result
}

fn load(path: &Path, options: &LoadOptions) -> Result<Model, Error> {
    let weights = Weights::open(path)?;
    let config = weights.config()?;
    let family = Family::of(&weights, &config)?;
    check_capabilities(path, family, options)?;
    let context_length = context_length(&config, options)?;
    let tokenizer =
        has_tokenizer(&weights).then(|| Tokenizer::from_weights(&weights)).transpose()?;
    let chat_template = ChatTemplate::from_weights(&weights)?;
    let device = Device::cpu(CpuOptions { threads: options.threads, isa: options.isa })?;
    let precision = if options.f32 { Precision::F32 } else { Precision::Fast };
    let placement = Placement::single(device.clone(), config.num_layers);
    let model = load_weights(&weights, &config, family, &placement, precision, options)?;
    let executor = ExecutorOptions {
        precision,
        dispatch: options.dispatch,
        context_length,
        max_sequences: options.max_sequences,
        cache_bytes: options.cache_bytes,
        max_batch: MAX_BATCH,
    };
    let executor = Executor::new(model, &config, placement, &executor)?;
    let mut turn_ends = config.eos_token_ids.clone();
    turn_ends.extend(tokenizer.iter().flat_map(Tokenizer::turn_end_ids));
    let model = Model(Arc::new(Inner {
        path: path.to_owned(),
        family,
        config,
        tokenizer,
        chat_template,
        context_length,
        turn_ends,
        device,
        executor: Mutex::new(executor),
    }));
    options.events.tell(&ModelEvent::Loaded { path: path.to_owned() });
    if options.prewarm {
        prewarm(&model)?;
    }
    options.events.tell(&ModelEvent::Ready);
    Ok(model)
}

/// Whether there is a tokenizer: GGUF files hold theirs, other weights have it beside them.
fn has_tokenizer(weights: &Weights) -> bool {
    let path = weights.path();
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    weights.gguf().is_some() || folder.join("tokenizer.json").is_file()
}

fn load_weights(
    weights: &Weights,
    config: &ModelConfig,
    family: &Family,
    placement: &Placement,
    precision: Precision,
    options: &LoadOptions,
) -> Result<Box<dyn Decoder>, Error> {
    let (total, done) = (weights.names().len(), Cell::new(0));
    let loaded = |tensor: &str| {
        done.set(done.get() + 1);
        let (tensor, done) = (tensor.to_owned(), done.get());
        options.events.tell(&ModelEvent::Loading { tensor, done, total });
    };
    (family.load)(&Loader::new(weights, placement, precision, &loaded), config)
}

/// Computes one token as an answer's are computed, so that weights are in memory and the step is recorded.
fn prewarm(model: &Model) -> Result<(), Error> {
    let mut sequence = HeldSequence::new(&model.0)?;
    let (id, tokens) = (sequence.id, [model.0.config.bos_token_id.unwrap_or(0)]);
    sequence.extend(&tokens, |executor, start| {
        let mut batch = executor.batch();
        batch.push(&Run::tokens(id, start, &tokens).with_logits(WantedLogits::Last))?;
        executor.sample(&batch, &[Draw::GREEDY]).map(drop)
    })
}

fn check_capabilities(path: &Path, family: &Family, options: &LoadOptions) -> Result<(), Error> {
    let missing = options.capabilities.unwrap_or_default().without(family.capabilities);
    if missing == Capabilities::default() {
        return Ok(());
    }
    let reason = format!(
        "a {} model cannot do {missing}; it can do {}; choose another model or ask for less",
        family.name, family.capabilities
    );
    Err(Error::UnsupportedModel { path: path.to_owned(), reason })
}

fn context_length(config: &ModelConfig, options: &LoadOptions) -> Result<usize, Error> {
    let model = config.max_position_embeddings;
    if options.max_sequences == 0 || options.max_sequences > MAX_BATCH {
        let found = options.max_sequences.to_string();
        return Err(Error::LoadOption {
            option: "max_sequences",
            found,
            expected: "from 1 to 512",
        });
    }
    match options.context_length {
        None => Ok(model),
        Some(0) => Err(Error::LoadOption {
            option: "context_length",
            found: "0".to_owned(),
            expected: "at least 1 token",
        }),
        Some(asked) if asked > model => Err(Error::ContextTooLong { asked, model }),
        Some(asked) => Ok(asked),
    }
}
