//! Llama, and what is built like it.

use super::{Family, text};
use crate::capabilities::{Capabilities, Capability};

/// Llama 1 to 3, SmolLM, TinyLlama, Mistral 7B.
pub static FAMILY: Family = Family {
    name: "llama",
    model_types: &["llama", "mistral"],
    architectures: &["LlamaForCausalLM", "MistralForCausalLM"],
    capabilities: Capabilities::of(&[Capability::TextIn, Capability::TextOut]),
    load: |loader, config| Ok(Box::new(text::llama::Llama::load(loader, config)?)),
};
