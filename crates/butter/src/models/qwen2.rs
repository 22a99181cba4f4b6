//! Qwen 2 and 2.5 ([Qwen team 2024](https://arxiv.org/abs/2407.10671)).

use super::{Family, text};
use crate::capabilities::{Capabilities, Capability};

/// Llama with biases on queries, keys and values and, in the layers from `max_window_layers` on, a sliding window: both
/// are settings of the configuration, so the model is Llama's.
///
/// Reference: `models/qwen2/modeling_qwen2.py` of Hugging Face transformers.
pub static FAMILY: Family = Family {
    name: "qwen2",
    model_types: &["qwen2"],
    architectures: &["Qwen2ForCausalLM"],
    capabilities: Capabilities::of(&[Capability::TextIn, Capability::TextOut]),
    load: |loader, config| Ok(Box::new(text::llama::Llama::load(loader, config)?)),
};
