//! Butter runs language, vision and speech models on this machine.
//!
//! ```no_run
//! use butter::{GenerateOptions, LoadOptions, Model};
//!
//! let model = Model::load("SmolLM2-135M-Instruct.Q4_1.gguf", &LoadOptions::default())?;
//! for chunk in model.generate("The capital of France is", GenerateOptions::default())? {
//!     print!("{}", chunk?.text);
//! }
//! # Ok::<(), butter::Error>(())
//! ```

#![deny(unsafe_code)]

mod arena;
pub mod batch;
pub mod cache;
mod capabilities;
mod error;
mod executor;
pub mod generate;
pub mod hub;
mod lifecycle;
mod model;
pub mod models;
pub mod nn;
pub mod placement;
pub mod template;
pub mod tokenizer;
pub mod weights;

#[cfg(test)]
mod testing;

pub use self::capabilities::{Capabilities, Capability};
pub use self::error::Error;
pub use self::executor::{Dispatch, Executor};
pub use self::generate::{
    CancelToken, Chunk, ContextPolicy, FinishReason, GenerateOptions, Generator, GeneratorStream,
    Prompt, SamplingOptions, Session, Stats,
};
pub use self::lifecycle::{EventListeners, LoadOptions, ModelEvent, ModelState};
pub use self::model::{Logits, Model};

pub use iron_runtime::IsaLevel;
