//! Bounds on logits.

use iron_kernels as kernels;
use iron_runtime::Tensor;

use super::Context;
use crate::Error;

/// Bounds the logits `[tokens, vocab_size]` to `cap * tanh(logit / cap)`, in place.
pub fn soft_cap(cx: &Context<'_>, logits: &Tensor, cap: f32) -> Result<(), Error> {
    Ok(kernels::soft_cap(cx.commands, logits, cap)?)
}
