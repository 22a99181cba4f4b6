//! Root-mean-square normalisation ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)).

use iron_macros::kernel;

/// `out = x / sqrt(mean(x²) + eps) * (weight + offset)` for each row; `offset` is 1 where checkpoints store `weight - 1`.
#[kernel(grid = (rows,))]
fn rms_norm<A: Activation>(
    x: Tensor<f32, (rows, n)>,
    weight: Tensor<f32, (n,)>,
    out: ActivationsMut<A, (rows, n)>,
    eps: f32,
    offset: f32,
) {
    let row = program_id(0);
    let mut squares = zeros::<f32>((BLOCK,));
    for j in tiles(n, BLOCK) {
        let v = load(x[(row, j)]);
        squares += v * v;
    }
    let scale = rsqrt(sum(squares) / n.f32() + eps);
    for j in tiles(n, BLOCK) {
        store(out[(row, j)], load(x[(row, j)]) * scale * (load(weight[j]) + offset));
    }
}

/// `residual += delta`, then the root-mean-square norm of the result: the step between two sub-layers in one pass.
#[kernel(grid = (rows,))]
fn add_rms_norm<A: Activation>(
    residual: TensorMut<f32, (rows, n)>,
    delta: Tensor<f32, (rows, n)>,
    weight: Tensor<f32, (n,)>,
    out: ActivationsMut<A, (rows, n)>,
    eps: f32,
    offset: f32,
) {
    let row = program_id(0);
    let mut squares = zeros::<f32>((BLOCK,));
    for j in tiles(n, BLOCK) {
        let v = load(residual[(row, j)]) + load(delta[(row, j)]);
        store(residual[(row, j)], v);
        squares += v * v;
    }
    let scale = rsqrt(sum(squares) / n.f32() + eps);
    for j in tiles(n, BLOCK) {
        store(out[(row, j)], load(residual[(row, j)]) * scale * (load(weight[j]) + offset));
    }
}

/// The reference of [`RMS_NORM`] for one row.
pub fn rms_norm_reference(x: &[f64], weight: &[f64], eps: f64, offset: f64) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + eps).sqrt();
    x.iter().zip(weight).map(|(v, w)| v * scale * (w + offset)).collect()
}
