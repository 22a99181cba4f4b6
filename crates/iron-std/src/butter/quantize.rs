//! Activations into the form a product wants.

use iron_macros::kernel;

/// Stores `x` as activations of kind `A`: int8 blocks of 32 with scale and sum, or plain floats.
#[kernel(grid = (n.div_ceil(BLOCK), rows))]
fn quantize<A: Activation>(x: Tensor<f32, (rows, n)>, out: ActivationsMut<A, (rows, n)>) {
    let (j, row) = (tile_id(0, BLOCK), program_id(1));
    store(out[(row, j)], load(x[(row, j)]));
}

/// The reference of [`QUANTIZE`] for one block of 32: values, scale, scale times their sum.
pub fn quantize_reference(x: &[f32]) -> (Vec<i8>, f32, f32) {
    let highest = x.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
    let scale = highest / 127.0;
    let inverse = if highest > 0.0 { 127.0 / highest } else { 0.0 };
    let q: Vec<i8> = x.iter().map(|v| (v * inverse).round_ties_even() as i8).collect();
    let sum = q.iter().map(|q| i32::from(*q)).sum::<i32>() as f32 * scale;
    (q, scale, sum)
}
