//! Elementwise kernels: gated activations, sums.

use iron_macros::kernel;

/// `out = silu(gate) * up`, the gate of SwiGLU ([Shazeer 2020](https://arxiv.org/abs/2002.05202)).
#[kernel(grid = (n.div_ceil(BLOCK), rows))]
fn silu_mul<A: Activation>(
    gate: Tensor<f32, (rows, n)>,
    up: Tensor<f32, (rows, n)>,
    out: ActivationsMut<A, (rows, n)>,
) {
    let (j, row) = (tile_id(0, BLOCK), program_id(1));
    let g = load(gate[(row, j)]);
    store(out[(row, j)], g * sigmoid(g) * load(up[(row, j)]));
}

/// `out = gelu(gate) * up` with the tanh approximation of GELU ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).
#[kernel(grid = (n.div_ceil(BLOCK), rows))]
fn gelu_mul<A: Activation>(
    gate: Tensor<f32, (rows, n)>,
    up: Tensor<f32, (rows, n)>,
    out: ActivationsMut<A, (rows, n)>,
) {
    let (j, row) = (tile_id(0, BLOCK), program_id(1));
    let g = load(gate[(row, j)]);
    let inner = 0.7978845608028654 * (g + 0.044715 * g * g * g);
    store(out[(row, j)], 0.5 * g * (1.0 + tanh(inner)) * load(up[(row, j)]));
}

/// `out = gelu(gate) * up` with the exact GELU, by the error function.
#[kernel(grid = (n.div_ceil(BLOCK), rows))]
fn gelu_erf_mul<A: Activation>(
    gate: Tensor<f32, (rows, n)>,
    up: Tensor<f32, (rows, n)>,
    out: ActivationsMut<A, (rows, n)>,
) {
    let (j, row) = (tile_id(0, BLOCK), program_id(1));
    let g = load(gate[(row, j)]);
    store(out[(row, j)], 0.5 * g * (1.0 + erf(g * 0.7071067811865476)) * load(up[(row, j)]));
}

/// `out = a + b`.
#[kernel(grid = (n.div_ceil(BLOCK), rows))]
fn add(a: Tensor<f32, (rows, n)>, b: Tensor<f32, (rows, n)>, out: TensorMut<f32, (rows, n)>) {
    let (j, row) = (tile_id(0, BLOCK), program_id(1));
    store(out[(row, j)], load(a[(row, j)]) + load(b[(row, j)]));
}

/// `x += bias` for every row.
#[kernel(grid = (n.div_ceil(BLOCK), rows))]
fn add_bias(x: TensorMut<f32, (rows, n)>, bias: Tensor<f32, (n,)>) {
    let (j, row) = (tile_id(0, BLOCK), program_id(1));
    store(x[(row, j)], load(x[(row, j)]) + load(bias[j]));
}

/// `x = cap * tanh(x / cap)`, which keeps logits between `-cap` and `cap` ([Gemma team 2024](https://arxiv.org/abs/2408.00118)).
#[kernel(grid = (n.div_ceil(BLOCK), rows))]
fn soft_cap(x: TensorMut<f32, (rows, n)>, cap: f32) {
    let (j, row) = (tile_id(0, BLOCK), program_id(1));
    store(x[(row, j)], cap * tanh(load(x[(row, j)]) / cap));
}

/// The reference of [`SILU_MUL`].
pub fn silu_mul_reference(gate: f64, up: f64) -> f64 {
    gate / (1.0 + (-gate).exp()) * up
}

/// The reference of [`GELU_MUL`].
pub fn gelu_mul_reference(gate: f64, up: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
    0.5 * gate * (1.0 + inner.tanh()) * up
}
