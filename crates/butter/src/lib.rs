//! Butter runs language, vision and speech models on this machine.

#![deny(unsafe_code)]

#[cfg(test)]
mod testing;
pub mod tokenizer;
pub mod weights;
