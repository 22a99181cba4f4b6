//! Products with weight matrices.

use iron_kernels as kernels;
use iron_runtime::{ActivationKind, Activations, QuantizedTensor, Tensor};

use super::Context;
use crate::Error;

/// `y = x · wᵀ + b`.
#[derive(Clone, Debug)]
pub struct Linear {
    pub(super) weight: QuantizedTensor,
    pub(super) bias: Option<Tensor>,
    pub(super) input: ActivationKind,
}

impl Linear {
    /// The same product with its input left in floats, for the few small matrices where rounding the input costs most.
    #[must_use]
    pub fn with_plain_input(self) -> Self {
        Self { input: ActivationKind::F32, ..self }
    }

    /// Width of the input.
    pub fn in_features(&self) -> usize {
        self.weight.cols()
    }

    /// Width of the output.
    pub fn out_features(&self) -> usize {
        self.weight.rows()
    }

    /// The product into `out`, f32 `[tokens, out_features]`.
    pub fn forward(&self, cx: &Context<'_>, x: &LinearInput, out: &Tensor) -> Result<(), Error> {
        project(cx, x, &[(self, out)])
    }
}

/// Several products of the same input, side by side.
pub fn project(
    cx: &Context<'_>,
    x: &LinearInput,
    products: &[(&Linear, &Tensor)],
) -> Result<(), Error> {
    cx.parallel(|commands| {
        products.iter().try_for_each(|(linear, out)| {
            kernels::matmul(commands, x.of_kind(linear.input), &linear.weight, out)
        })
    })?;
    cx.parallel(|commands| {
        products.iter().try_for_each(|(linear, out)| match &linear.bias {
            Some(bias) => kernels::add_bias(commands, out, bias),
            None => Ok(()),
        })
    })
}

/// In which forms an input is wanted by the products that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedInput {
    plain: bool,
    int8: bool,
}

impl WantedInput {
    /// The forms that `linears` want.
    pub fn by(linears: &[&Linear]) -> Self {
        let wants = |kind| linears.iter().any(|linear| linear.input == kind);
        let int8 = wants(ActivationKind::Int8);
        Self {
            plain: !int8 || linears.iter().any(|linear| linear.input != ActivationKind::Int8),
            int8,
        }
    }
}

/// The input of one or more products, in each form that they want.
#[derive(Clone, Debug)]
pub struct LinearInput {
    main: Activations,
    /// Int8, when `main` is plain and both are wanted.
    also: Option<Activations>,
}

impl LinearInput {
    /// An input `[rows, width]` that `write` writes: in int8 right away when nobody wants floats.
    pub(super) fn produce(
        cx: &Context<'_>,
        rows: usize,
        width: usize,
        wanted: WantedInput,
        write: impl FnOnce(&Activations) -> iron_runtime::Result<()>,
    ) -> Result<Self, Error> {
        let kind = if wanted.plain { ActivationKind::F32 } else { ActivationKind::Int8 };
        let main = cx.activations(kind, rows, width)?;
        write(&main)?;
        let mut input = Self { main, also: None };
        if let (true, true, Activations::Plain(plain)) = (wanted.plain, wanted.int8, &input.main) {
            let int8 = cx.activations(ActivationKind::Int8, rows, width)?;
            kernels::quantize(cx.commands, plain, &int8)?;
            input.also = Some(int8);
        }
        Ok(input)
    }

    /// Floats f32 `[rows, width]`, converted as `wanted`.
    pub fn from_matrix(
        cx: &Context<'_>,
        matrix: &Tensor,
        wanted: WantedInput,
    ) -> Result<Self, Error> {
        let mut input = Self { main: Activations::plain(matrix.clone())?, also: None };
        if wanted.int8 {
            let int8 = cx.activations(ActivationKind::Int8, matrix.dim(0)?, matrix.dim(1)?)?;
            kernels::quantize(cx.commands, matrix, &int8)?;
            input.also = Some(int8);
        }
        Ok(input)
    }

    fn of_kind(&self, kind: ActivationKind) -> &Activations {
        match &self.also {
            Some(int8) if kind == ActivationKind::Int8 => int8,
            _ => &self.main,
        }
    }
}
