//! Everything that can go wrong.

use std::path::PathBuf;

use iron_runtime::RuntimeError;

use crate::batch::BatchError;
use crate::cache::CacheError;
use crate::generate::OptionsError;
use crate::hub::HubError;
use crate::template::TemplateError;
use crate::tokenizer::TokenizerError;
use crate::weights::WeightsError;

/// Why a model could not be loaded or run. Messages say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model's files could not be found or fetched.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The weights or the configuration.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The chat template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The tokenizer, or a text that it cannot encode.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The device.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The cache of keys and values.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A batch that cannot be run.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Generation options that make no sense.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A model of an architecture that is not implemented.
    #[error("`{}` is a `{found}` model, which is not supported; supported: {known}", path.display())]
    UnknownArchitecture {
        /// The model's file or folder.
        path: PathBuf,
        /// Its architecture.
        found: String,
        /// The architectures that are implemented.
        known: String,
    },
    /// A setting that the model's implementation cannot honour.
    #[error("`{}`: {reason}", path.display())]
    UnsupportedModel {
        /// The model's file or folder.
        path: PathBuf,
        /// What is not supported, and what is.
        reason: String,
    },
    /// A weight matrix cannot be brought into the device's layout.
    #[error("`{}`: tensor `{tensor}`: {reason}; download the file again or convert it anew", path.display())]
    Pack {
        /// The model's file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Why.
        reason: String,
    },
    /// Text for a model that came without a tokenizer.
    #[error("`{}` has no tokenizer.json; put the model's own there, or give prompts as tokens", path.display())]
    NoTokenizer {
        /// The model's file or folder.
        path: PathBuf,
    },
    /// A prompt without tokens.
    #[error("the prompt is empty and the model has no token that starts a text; write something")]
    EmptyPrompt,
    /// A token that the model does not have.
    #[error("token {token} does not exist: this model's are 0 to {}", vocab_size - 1)]
    TokenOutOfRange {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A longer context than the model was made for.
    #[error(
        "a context of {asked} tokens was asked for, but the model was made for {model}; ask for at most {model}"
    )]
    ContextTooLong {
        /// The context asked for.
        asked: usize,
        /// The model's own.
        model: usize,
    },
    /// A load option that makes no sense.
    #[error("load option `{option}` is {found}; expected {expected}")]
    LoadOption {
        /// The option.
        option: &'static str,
        /// What it is.
        found: String,
        /// What it can be.
        expected: &'static str,
    },
    /// A session that already answers.
    #[error(
        "this session is generating; let the answer end, or drop its generator, before the next one"
    )]
    SessionBusy,
}
