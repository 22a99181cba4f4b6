//! Activations as kernels take them: plain, or int8 with block scales and sums.

use std::ops::Range;

use crate::{ActivationKind, DType, Result, RuntimeError, Tensor};

/// Values that share one scale and one sum in int8 activations.
pub(crate) const INT8_BLOCK: usize = 32;

/// A matrix `[m, k]` of activations; cheap to clone.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "few exist, and a box would be followed at every encode"
)]
pub enum Activations {
    /// Floats as they are.
    Plain(Tensor),
    /// Signed bytes: the value is `q * scale` of its block of 32.
    Int8 {
        /// Quantised values, i8 `[m, k]`.
        q: Tensor,
        /// Scales, f32 `[m, k / 32]`.
        scale: Tensor,
        /// Block sums, f32 `[m, k / 32]`.
        sum: Tensor,
    },
}

impl Activations {
    /// Plain activations from a float tensor of two axes.
    pub fn plain(tensor: Tensor) -> Result<Self> {
        if ActivationKind::plain(tensor.dtype()).is_none() || tensor.rank() != 2 {
            return Err(mismatch(&tensor, "expected floats with two axes".to_owned()));
        }
        Ok(Self::Plain(tensor))
    }

    /// Int8 activations from their three parts.
    pub fn int8(q: Tensor, scale: Tensor, sum: Tensor) -> Result<Self> {
        let &[m, k] = q.shape() else {
            return Err(mismatch(&q, "expected int8 values with two axes".to_owned()));
        };
        if q.dtype() != DType::I8 || !k.is_multiple_of(INT8_BLOCK) {
            return Err(mismatch(
                &q,
                format!("expected int8 values in rows of a multiple of {INT8_BLOCK}"),
            ));
        }
        for part in [&scale, &sum] {
            if part.dtype() != DType::F32 || part.shape() != [m, k / INT8_BLOCK] {
                return Err(mismatch(
                    part,
                    format!("expected f32 scales and sums [{m}, {}]", k / INT8_BLOCK),
                ));
            }
        }
        Ok(Self::Int8 { q, scale, sum })
    }

    /// New int8 activations of zeros.
    pub fn int8_zeros(m: usize, k: usize) -> Result<Self> {
        let blocks = [m, k / INT8_BLOCK];
        Self::int8(
            Tensor::zeros(DType::I8, &[m, k])?,
            Tensor::zeros(DType::F32, &blocks)?,
            Tensor::zeros(DType::F32, &blocks)?,
        )
    }

    /// How they are stored; `None` for a plain tensor that is not of floats.
    #[inline]
    pub fn kind(&self) -> Option<ActivationKind> {
        match self {
            Self::Plain(tensor) => ActivationKind::plain(tensor.dtype()),
            Self::Int8 { .. } => Some(ActivationKind::Int8),
        }
    }

    /// `[m, k]`.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Plain(tensor) | Self::Int8 { q: tensor, .. } => tensor.shape(),
        }
    }

    /// The rows in `range`.
    pub fn rows(&self, range: Range<usize>) -> Result<Self> {
        Ok(match self {
            Self::Plain(tensor) => Self::Plain(tensor.slice(0, range)?),
            Self::Int8 { q, scale, sum } => Self::Int8 {
                q: q.slice(0, range.clone())?,
                scale: scale.slice(0, range.clone())?,
                sum: sum.slice(0, range)?,
            },
        })
    }
}

fn mismatch(tensor: &Tensor, reason: String) -> RuntimeError {
    RuntimeError::Shape { operation: "activations", tensor: format!("{tensor:?}"), reason }
}
