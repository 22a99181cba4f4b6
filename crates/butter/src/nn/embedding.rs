//! Token embeddings.

use iron_kernels as kernels;
use iron_runtime::{QuantizedTensor, Tensor};

use super::{Context, Linear, Precision};
use crate::Error;

/// One row for each token.
#[derive(Clone, Debug)]
pub struct Embedding {
    pub(super) table: QuantizedTensor,
    pub(super) precision: Precision,
}

impl Embedding {
    /// The rows of the batch's tokens, times `scale`, into `out`, f32 `[tokens, hidden_size]`; embeddings that the batch
    /// brings along are taken as they are.
    pub fn forward(&self, cx: &Context<'_>, scale: f32, out: &Tensor) -> Result<(), Error> {
        match (&cx.batch.ids, &cx.batch.embeddings) {
            (Some(ids), _) => kernels::embed(cx.commands, &self.table, ids, out, scale)?,
            (None, Some(rows)) => {
                kernels::take_rows(cx.commands, rows, &cx.batch.row_numbers, out)?;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// The same matrix as the output projection.
    pub fn as_linear(&self) -> Linear {
        let input = self.precision.activations(self.table.format());
        Linear { weight: self.table.clone(), bias: None, input }
    }
}
