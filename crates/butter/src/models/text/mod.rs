//! Models from text to text.

pub(crate) mod gemma3;
pub(crate) mod llama;

use crate::Error;
use crate::nn::{Embedding, GatedMlp, Linear, Loader, RmsNorm};
use crate::weights::config::ModelConfig;

/// The feed-forward network under `mlp`.
fn load_mlp(loader: &Loader<'_>, config: &ModelConfig) -> Result<GatedMlp, Error> {
    let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
    Ok(GatedMlp {
        gate_proj: loader.linear("gate_proj", intermediate, hidden, config.mlp_bias)?,
        up_proj: loader.linear("up_proj", intermediate, hidden, config.mlp_bias)?,
        down_proj: loader.linear("down_proj", hidden, intermediate, config.mlp_bias)?,
        activation: config.hidden_act,
    })
}

/// A norm over the residual stream.
fn load_norm(loader: &Loader<'_>, config: &ModelConfig, name: &str) -> Result<RmsNorm, Error> {
    loader.rms_norm(name, config.hidden_size, config.rms_norm_eps, config.norm_offset)
}

/// The output layer: the embeddings where they are tied, else `lm_head`.
fn load_lm_head(
    loader: &Loader<'_>,
    config: &ModelConfig,
    embed_tokens: &Embedding,
) -> Result<Linear, Error> {
    if config.tie_word_embeddings {
        return Ok(embed_tokens.as_linear());
    }
    loader.linear("lm_head", config.vocab_size, config.hidden_size, false)
}
