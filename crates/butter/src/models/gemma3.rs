//! Gemma 3, the models for text.

use super::{Family, text};
use crate::capabilities::{Capabilities, Capability};

/// Gemma 3 270M and 1B, and the text part of the larger ones in GGUF files.
pub static FAMILY: Family = Family {
    name: "gemma3",
    model_types: &["gemma3_text"],
    architectures: &["Gemma3ForCausalLM"],
    capabilities: Capabilities::of(&[Capability::TextIn, Capability::TextOut]),
    load: |loader, config| Ok(Box::new(text::gemma3::Gemma3::load(loader, config)?)),
};
