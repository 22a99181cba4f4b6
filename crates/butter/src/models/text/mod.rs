//! Models from text to text.

pub(crate) mod llama;
