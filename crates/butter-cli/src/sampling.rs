//! The arguments that say how tokens are chosen, and when an answer ends.

use butter::{ContextPolicy, GenerateOptions, SamplingOptions};
use clap::Args;

use crate::output::Failure;

/// How an answer is generated.
#[derive(Args, Debug)]
pub(crate) struct SamplingArgs {
    /// How freely tokens are chosen; 0 takes the most likely one always
    #[arg(
        help_heading = "Answer",
        long,
        value_name = "T",
        default_value_t = 0.7,
        allow_negative_numbers = true
    )]
    temperature: f32,

    /// Choose among this many of the most likely tokens; 0: all
    #[arg(help_heading = "Answer", long, value_name = "K", default_value_t = 0)]
    top_k: u32,

    /// Choose among the fewest tokens that hold this much of the probability; 1: all
    #[arg(
        help_heading = "Answer",
        long,
        value_name = "P",
        default_value_t = 0.95,
        allow_negative_numbers = true
    )]
    top_p: f32,

    /// Choose among tokens with at least this share of the most likely one's probability; 0: all
    #[arg(
        help_heading = "Answer",
        long,
        value_name = "P",
        default_value_t = 0.05,
        allow_negative_numbers = true
    )]
    min_p: f32,

    /// Same seed, same prompt, same model: same answer [default: a new one each time]
    #[arg(help_heading = "Answer", long, value_name = "N")]
    seed: Option<u64>,

    /// End the answer after this many tokens [default: when the model ends it]
    #[arg(help_heading = "Answer", long, short = 'n', value_name = "N")]
    max_tokens: Option<usize>,

    /// End the answer before this text; may be given several times
    #[arg(help_heading = "Answer", long, value_name = "TEXT")]
    stop: Vec<String>,
}

impl SamplingArgs {
    /// The options of one answer.
    pub(crate) fn options(&self) -> Result<GenerateOptions, Failure> {
        let options = GenerateOptions {
            max_tokens: self.max_tokens,
            stop: self.stop.clone(),
            sampling: SamplingOptions {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                seed: self.seed,
            },
            context_policy: ContextPolicy::Stop,
            ..GenerateOptions::default()
        };
        options.validate()?;
        Ok(options)
    }

    /// Whether the answer depends on the seed.
    pub(crate) fn is_random(&self) -> bool {
        self.temperature > 0.0
    }
}
