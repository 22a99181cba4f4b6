//! From a prompt to a stream of text.

mod chunk;
mod generator;
mod options;
mod sequence;
mod session;
mod stop;
mod stream;

pub use self::chunk::{Chunk, FinishReason, Stats};
pub use self::generator::Generator;
pub use self::options::{
    CancelToken, ContextPolicy, Draw, GenerateOptions, OptionsError, SamplingOptions,
};
pub use self::session::Session;
pub use self::stream::GeneratorStream;

pub(crate) use self::sequence::HeldSequence;

/// What a model continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text, which is encoded with the tokens that the model wants around a text.
    Text(String),
    /// Tokens, as they are.
    Tokens(Vec<u32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Self {
        Self::Tokens(tokens)
    }
}

impl From<&[u32]> for Prompt {
    fn from(tokens: &[u32]) -> Self {
        Self::Tokens(tokens.to_vec())
    }
}
