//! Gated feed-forward networks ([Shazeer 2020](https://arxiv.org/abs/2002.05202)).

use iron_kernels as kernels;
use iron_runtime::Tensor;

use super::{Context, Linear, LinearInput, WantedInput, project};
use crate::Error;
use crate::weights::config::Activation;

/// `down(act(gate(x)) * up(x))`.
#[derive(Clone, Debug)]
pub struct GatedMlp {
    /// To the activation.
    pub gate_proj: Linear,
    /// What the activation gates.
    pub up_proj: Linear,
    /// Back to the residual stream.
    pub down_proj: Linear,
    /// The gate's activation.
    pub activation: Activation,
}

impl GatedMlp {
    /// The forms in which the input is wanted.
    pub fn wanted_input(&self) -> WantedInput {
        WantedInput::by(&[&self.gate_proj, &self.up_proj])
    }

    /// The network's output into `out`, f32 `[tokens, hidden_size]`.
    pub fn forward(&self, cx: &Context<'_>, x: &LinearInput, out: &Tensor) -> Result<(), Error> {
        let _scope = cx.scope();
        let (rows, width) = (out.dim(0)?, self.gate_proj.out_features());
        let (gate, up) = (cx.matrix(rows, width)?, cx.matrix(rows, width)?);
        project(cx, x, &[(&self.gate_proj, &gate), (&self.up_proj, &up)])?;
        let multiply = match self.activation {
            Activation::Silu => kernels::silu_mul,
            Activation::Gelu => kernels::gelu_erf_mul,
            Activation::GeluTanh => kernels::gelu_mul,
        };
        let wanted = WantedInput::by(&[&self.down_proj]);
        let hidden = LinearInput::produce(cx, rows, width, wanted, |hidden| {
            multiply(cx.commands, &gate, &up, hidden)
        })?;
        self.down_proj.forward(cx, &hidden, out)
    }
}
