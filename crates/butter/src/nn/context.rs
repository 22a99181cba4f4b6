//! What a forward pass works with.

use iron_runtime::{ActivationKind, Activations, CommandBuffer, DType, Format, Tensor};

use crate::Error;
use crate::arena::{Arena, Scope};
use crate::batch::BatchTensors;
use crate::cache::KvCache;

/// How exactly a model computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Inputs of quantised products in int8, keys and values in f16.
    #[default]
    Fast,
    /// Everything but the weights in f32: for comparisons with a reference.
    F32,
}

impl Precision {
    /// The activations that a product with weights of `format` takes.
    pub fn activations(self, format: Format) -> ActivationKind {
        match self {
            Self::Fast if !format.is_dense() => ActivationKind::Int8,
            _ => ActivationKind::F32,
        }
    }

    /// The element type of keys and values.
    pub fn cache_dtype(self) -> DType {
        match self {
            Self::Fast => DType::F16,
            Self::F32 => DType::F32,
        }
    }
}

/// One forward pass while it is being encoded.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub(crate) commands: &'a CommandBuffer,
    pub(crate) arena: &'a Arena,
    pub(crate) batch: &'a BatchTensors,
    pub(crate) cache: &'a KvCache,
}

impl<'a> Context<'a> {
    /// The number of tokens of the batch, with padding.
    pub fn tokens(&self) -> usize {
        self.batch.tokens
    }

    /// Opens a scope: what is allocated in it may be overwritten once it closes.
    #[must_use = "the scope closes when it is dropped"]
    pub fn scope(&self) -> Scope<'a> {
        self.arena.scope()
    }

    /// A matrix f32 `[rows, width]` of unspecified values in the innermost scope.
    pub fn matrix(&self, rows: usize, width: usize) -> Result<Tensor, Error> {
        self.arena.tensor(DType::F32, &[rows, width])
    }

    /// Activations `[rows, width]` of unspecified values in the innermost scope.
    pub fn activations(
        &self,
        kind: ActivationKind,
        rows: usize,
        width: usize,
    ) -> Result<Activations, Error> {
        self.arena.activations(kind, rows, width)
    }

    /// Lets the calls that `encode` makes run side by side. None may write what another reads or writes.
    pub(crate) fn parallel(
        &self,
        encode: impl FnOnce(&CommandBuffer) -> iron_runtime::Result<()>,
    ) -> Result<(), Error> {
        Ok(self.commands.parallel(encode)?)
    }
}
