//! The models, one family a file, and the registry that finds a model's family.

pub mod gemma3;
pub mod llama;
pub mod qwen2;
mod text;

use std::fmt;
use std::ops::Range;

use iron_runtime::Tensor;

use crate::Error;
use crate::capabilities::Capabilities;
use crate::nn::{Context, Loader, Residual};
use crate::weights::Weights;
use crate::weights::config::ModelConfig;

/// Makes a model from its tensors.
pub type Load = fn(&Loader<'_>, &ModelConfig) -> Result<Box<dyn Decoder>, Error>;

/// A family of models that share an implementation.
#[derive(Debug)]
pub struct Family {
    /// Name of the family.
    pub name: &'static str,
    /// `model_type`s of `config.json`; GGUF architectures are translated to these.
    pub model_types: &'static [&'static str],
    /// `architectures` of `config.json`.
    pub architectures: &'static [&'static str],
    /// What its models can do.
    pub capabilities: Capabilities,
    /// Makes the model of a configuration.
    pub load: Load,
}

/// Every family.
pub const FAMILIES: &[&Family] = &[&llama::FAMILY, &qwen2::FAMILY, &gemma3::FAMILY];

impl Family {
    /// The family of a model.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownArchitecture`] lists the known ones.
    pub fn of(weights: &Weights, config: &ModelConfig) -> Result<&'static Self, Error> {
        let model_type = config.model_type.as_str();
        let known = || FAMILIES.iter().flat_map(|family| family.model_types).copied();
        let family =
            FAMILIES.iter().copied().find(|family| family.model_types.contains(&model_type));
        family.ok_or_else(|| Error::UnknownArchitecture {
            path: weights.path().to_owned(),
            found: model_type.to_owned(),
            known: known().collect::<Vec<_>>().join(", "),
        })
    }
}

/// A model that computes logits from tokens.
///
/// The parts are separate so that layers can be on several devices: a segment of a forward pass is [`Decoder::layers`]
/// with some of the layers, the first one after [`Decoder::embed`], the last one before [`Decoder::logits`].
pub trait Decoder: fmt::Debug + Send + Sync {
    /// The residual stream before the first layer, `[tokens, hidden_size]`.
    fn embed(&self, cx: &Context<'_>) -> Result<Residual, Error>;

    /// Passes the residual stream through some of the layers.
    fn layers(&self, cx: &Context<'_>, layers: Range<usize>, x: &mut Residual)
    -> Result<(), Error>;

    /// Logits of the wanted tokens, f32 `[wanted rows, vocab_size]`.
    fn logits(&self, cx: &Context<'_>, x: Residual) -> Result<Tensor, Error>;
}

#[cfg(test)]
mod tests;
