//! Butter runs language, vision and speech models on this machine.

#![deny(unsafe_code)]

pub mod hub;
pub mod template;
pub mod tokenizer;
pub mod weights;

#[cfg(test)]
mod testing;
