//! How text is generated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Generation options that make no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A number outside its range.
    #[error("{option} must be {expected}, but is {found}")]
    OutOfRange {
        /// The option.
        option: &'static str,
        /// The values that make sense.
        expected: &'static str,
        /// The value given.
        found: f32,
    },
    /// A stop string without characters would stop everything.
    #[error("stop string number {0} is empty; leave it out")]
    EmptyStop(usize),
    /// Nothing would be generated.
    #[error("max_tokens is 0; ask for at least one token")]
    NoTokens,
}

/// How a token is chosen from its logits.
///
/// The order is that of Hugging Face transformers: temperature, then `top_k`, `top_p`, `min_p`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 takes the most likely token always.
    pub temperature: f32,
    /// Keeps this many of the most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the fewest tokens that hold this much of the probability; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens with at least this share of the most likely one's probability; 0 keeps all.
    pub min_p: f32,
    /// Same seed, same prompt: same tokens. `None` draws one.
    pub seed: Option<u64>,
}

impl SamplingOptions {
    /// The most likely token, always.
    pub const GREEDY: Self =
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: None };

    /// Checks that every number makes sense.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let check = |option, is_valid: bool, expected, found| {
            if is_valid {
                Ok(())
            } else {
                Err(OptionsError::OutOfRange { option, expected, found })
            }
        };
        let Self { temperature, top_k, top_p, min_p, .. } = *self;
        let is_temperature = (0.0..=100.0).contains(&temperature);
        check("temperature", is_temperature, "from 0 to 100", temperature)?;
        check("top_k", i32::try_from(top_k).is_ok(), "below 2^31", top_k as f32)?;
        check("top_p", top_p > 0.0 && top_p <= 1.0, "above 0 and at most 1", top_p)?;
        check("min_p", (0.0..=1.0).contains(&min_p), "from 0 to 1", min_p)
    }
}

impl Default for SamplingOptions {
    /// Greedy.
    fn default() -> Self {
        Self::GREEDY
    }
}

/// One draw of a token: options, and which draw of their seed it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// How to choose; its `seed` is not read.
    pub sampling: SamplingOptions,
    /// The seed.
    pub seed: u64,
    /// Number of the draw, so that each token has random numbers of its own.
    pub number: u32,
}

impl Draw {
    /// The most likely token.
    pub const GREEDY: Self = Self { sampling: SamplingOptions::GREEDY, seed: 0, number: 0 };

    pub(crate) fn is_greedy(&self) -> bool {
        self.sampling.temperature <= 0.0
    }

    pub(crate) fn settings(&self) -> [f32; 4] {
        let SamplingOptions { temperature, top_p, min_p, .. } = self.sampling;
        [temperature, top_p, min_p, 0.0]
    }

    pub(crate) fn choices(&self) -> [i32; 4] {
        let words =
            [self.seed as u32, (self.seed >> 32) as u32, self.number].map(|word| word as i32);
        [self.sampling.top_k as i32, words[0], words[1], words[2]]
    }
}

/// What happens when an answer reaches the end of the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextPolicy {
    /// The generator's next item is an error that says what to do.
    #[default]
    Error,
    /// The answer ends with [`super::FinishReason::ContextFull`].
    Stop,
}

/// How an answer is generated.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// The most tokens of the answer; `None`: until the model ends it or the context is full.
    pub max_tokens: Option<usize>,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// What happens when the context is full.
    pub context_policy: ContextPolicy,
    /// Whether to go on after a token that ends an answer.
    pub ignore_eos: bool,
    /// Ends the generation from another thread.
    pub cancel: CancelToken,
}

impl Default for GenerateOptions {
    /// Greedy, until the model ends the answer.
    fn default() -> Self {
        Self {
            max_tokens: None,
            stop: Vec::new(),
            sampling: SamplingOptions::default(),
            context_policy: ContextPolicy::default(),
            ignore_eos: false,
            cancel: CancelToken::default(),
        }
    }
}

impl GenerateOptions {
    /// Checks that everything makes sense.
    pub fn validate(&self) -> Result<(), OptionsError> {
        self.sampling.validate()?;
        if let Some(empty) = self.stop.iter().position(String::is_empty) {
            return Err(OptionsError::EmptyStop(empty));
        }
        if self.max_tokens == Some(0) { Err(OptionsError::NoTokens) } else { Ok(()) }
    }
}

/// Ends a generation before its next token, or a download; clones end the same one.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks for the end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Draw, GenerateOptions, OptionsError, SamplingOptions};

    #[test]
    fn numbers_out_of_range_are_errors() {
        let sampling = SamplingOptions::default();
        for (option, sampling) in [
            ("temperature", SamplingOptions { temperature: -0.1, ..sampling }),
            ("temperature", SamplingOptions { temperature: f32::NAN, ..sampling }),
            ("top_k", SamplingOptions { top_k: u32::MAX, ..sampling }),
            ("top_p", SamplingOptions { top_p: 0.0, ..sampling }),
            ("top_p", SamplingOptions { top_p: f32::INFINITY, ..sampling }),
            ("min_p", SamplingOptions { min_p: 1.5, ..sampling }),
        ] {
            let error = sampling.validate().expect_err(option);
            assert!(error.to_string().starts_with(option), "{error}");
        }
        assert_eq!(sampling.validate(), Ok(()));
    }

    #[test]
    fn options_without_effect_or_end_are_errors() {
        let stop = vec!["\n".to_owned(), String::new()];
        let options = GenerateOptions { stop, ..GenerateOptions::default() };
        assert_eq!(options.validate(), Err(OptionsError::EmptyStop(1)));
        let options = GenerateOptions { max_tokens: Some(0), ..GenerateOptions::default() };
        assert_eq!(options.validate(), Err(OptionsError::NoTokens));
    }

    #[test]
    fn both_words_of_the_seed_reach_the_device() {
        let sampling = SamplingOptions { top_k: 40, ..SamplingOptions::default() };
        let draw = Draw { sampling, seed: 0xffff_fffe_0000_0003, number: 7 };
        assert_eq!(draw.choices(), [40, 3, -2, 7]);
    }
}
