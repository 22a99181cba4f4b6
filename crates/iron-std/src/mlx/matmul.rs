//! Products of activations with weights.

use iron_macros::kernel;

/// `out = x · wᵀ`.
#[kernel(grid = (m.div_ceil(BM), n.div_ceil(BN)))]
fn matmul<A: Activation, W: Format>(
    x: Activations<A, (m, k)>,
    w: Quantized<W, (n, k)>,
    out: TensorMut<f32, (m, n)>,
) {
    let (i, j) = (tile_id(0, BM), tile_id(1, BN));
    let mut acc = zeros::<f32>((BM, BN));
    for p in tiles(k, BK) {
        acc = dot(load(x[(i, p)]), load(w[(j, p)]), acc);
    }
    store(out[(i, j)], acc);
}

/// The reference of [`MATMUL`]: row-major `x` `[m, k]` and `w` `[n, k]`.
pub fn matmul_reference(x: &[f64], w: &[f64], m: usize, n: usize, k: usize) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            out[i * n + j] = (0..k).map(|p| x[i * k + p] * w[j * k + p]).sum();
        }
    }
    out
}
