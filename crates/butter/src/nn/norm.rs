//! Root-mean-square norms over the residual stream.

use iron_kernels as kernels;
use iron_runtime::{Activations, Tensor};

use super::{Context, LinearInput, WantedInput};
use crate::Error;

/// The residual stream, and what the last sub-layer wants to add to it.
///
/// The sum is left to the next norm, which reads the stream anyway.
#[derive(Clone, Debug)]
pub struct Residual {
    stream: Tensor,
    delta: Tensor,
    is_pending: bool,
}

impl Residual {
    /// A stream f32 `[rows, hidden_size]` in the innermost scope; the caller fills [`Residual::stream`].
    pub fn new(cx: &Context<'_>, rows: usize, hidden_size: usize) -> Result<Self, Error> {
        let (stream, delta) = (cx.matrix(rows, hidden_size)?, cx.matrix(rows, hidden_size)?);
        Ok(Self { stream, delta, is_pending: false })
    }

    /// The stream without what is still to be added.
    pub fn stream(&self) -> &Tensor {
        &self.stream
    }

    /// Lets `write` write a sub-layer's output, to be added before the next norm.
    pub fn add(&mut self, write: impl FnOnce(&Tensor) -> Result<(), Error>) -> Result<(), Error> {
        self.is_pending = true;
        write(&self.delta)
    }

    /// The rows whose logits the batch wants.
    pub fn wanted_rows(self, cx: &Context<'_>) -> Result<Self, Error> {
        let Some(wanted) = &cx.batch.wanted else { return Ok(self) };
        let rows = Self::new(cx, cx.batch.wanted_rows, self.stream.dim(1)?)?;
        cx.parallel(|commands| {
            kernels::take_rows(commands, &self.stream, wanted, &rows.stream)?;
            if self.is_pending {
                kernels::take_rows(commands, &self.delta, wanted, &rows.delta)?;
            }
            Ok(())
        })?;
        Ok(Self { is_pending: self.is_pending, ..rows })
    }
}

/// `x / sqrt(mean(x²) + eps) * (weight + offset)`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    pub(super) weight: Tensor,
    pub(super) eps: f32,
    pub(super) offset: f32,
}

impl RmsNorm {
    /// Adds what is pending to the residual stream and norms it into the input of the next products, in one pass.
    pub fn forward(
        &self,
        cx: &Context<'_>,
        x: &mut Residual,
        wanted: WantedInput,
    ) -> Result<LinearInput, Error> {
        let (rows, width) = (x.stream.dim(0)?, x.stream.dim(1)?);
        let is_pending = std::mem::take(&mut x.is_pending);
        let Self { weight, eps, offset } = self;
        LinearInput::produce(cx, rows, width, wanted, |out| {
            if is_pending {
                let (stream, delta) = (&x.stream, &x.delta);
                kernels::add_rms_norm(cx.commands, stream, delta, weight, out, *eps, *offset)
            } else {
                kernels::rms_norm(cx.commands, &x.stream, weight, out, *eps, *offset)
            }
        })
    }
}

/// Norms matrices side by side, each `[tokens, n * width]` into another of the same shape. `width` is its norm's: `n` is 1
/// where a norm is over whole rows, and the number of heads where it is over heads.
pub fn normalize(cx: &Context<'_>, norms: &[(&RmsNorm, &Tensor, &Tensor)]) -> Result<(), Error> {
    cx.parallel(|commands| {
        norms.iter().try_for_each(|(RmsNorm { weight, eps, offset }, x, out)| {
            let width = weight.elements();
            let pieces = [x.elements() / width.max(1), width];
            let out = Activations::plain(out.reshape(&pieces)?)?;
            kernels::rms_norm(commands, &x.reshape(&pieces)?, weight, &out, *eps, *offset)
        })
    })
}
