//! Tiles that do not fit together.

use iron_core::syntax::Function;
use iron_macros::kernel;

#[kernel(grid = (m,))]
fn dot_over_different_k(
    x: Tensor<f32, (m, k)>,
    w: Quantized<q4_0, (n, k)>,
    out: TensorMut<f32, (m, n)>,
) {
    let acc = zeros::<f32>((16, 16));
    let product = dot(load(x[(all(16), all(64))]), load(w[(all(16), all(32))]), acc);
    store(out[(all(16), all(16))], product);
}

#[kernel(grid = (m,))]
fn dot_of_untransposed(
    x: Tensor<f32, (m, k)>,
    y: Tensor<f32, (k, n)>,
    out: TensorMut<f32, (m, n)>,
) {
    let acc = zeros::<f32>((16, 32));
    let product = dot(load(x[(all(16), all(64))]), load(y[(all(64), all(32))]), acc);
    store(out[(all(16), all(32))], product);
}

#[kernel(grid = (m,))]
fn tiles_that_do_not_combine(x: Tensor<f32, (m, k)>, out: TensorMut<f32, (m, k)>) {
    let tile = load(x[(all(16), all(32))]);
    store(out[(all(16), all(32))], tile + sum(tile, 1));
}

#[kernel(grid = (m,))]
fn too_few_indices(x: Tensor<f32, (m, k)>, out: TensorMut<f32, (m, k)>) {
    let row = program_id(0);
    store(out[(row, all(32))], load(x[row]));
}

#[kernel(grid = (m,))]
fn store_of_another_shape(x: Tensor<f32, (m, k)>, out: TensorMut<f32, (m, k)>) {
    let row = program_id(0);
    store(out[(row, all(64))], load(x[(row, all(32))]));
}

#[kernel(grid = (m,))]
fn transpose_of_a_row(x: Tensor<f32, (m, k)>, out: TensorMut<f32, (m, k)>) {
    let row = program_id(0);
    store(out[(row, all(32))], load(x[(row, all(32))]).t());
}

#[kernel(grid = (m,))]
fn expand_past_the_end(x: Tensor<f32, (m, k)>, out: TensorMut<f32, (m, k)>) {
    let row = program_id(0);
    let wide = load(x[(row, all(32))]).expand(2);
    store(out[(all(32), all(32))], wide);
}

#[kernel(grid = (m,))]
fn reduce_over_a_missing_axis(x: Tensor<f32, (m, k)>, out: TensorMut<f32, (m,)>) {
    store(out[all(16)], sum(load(x[(all(16), all(32))]), 2));
}

#[kernel(grid = (m,))]
fn index_with_a_matrix(
    x: Tensor<f32, (m, k)>,
    ids: Tensor<i32, (m, k)>,
    out: TensorMut<f32, (m, k)>,
) {
    let which = load(ids[(all(4), all(4))]);
    store(out[(0, all(16))], load(x[(which, all(16))]));
}

pub static CASES: &[&Function] = &[
    &DOT_OVER_DIFFERENT_K,
    &DOT_OF_UNTRANSPOSED,
    &TILES_THAT_DO_NOT_COMBINE,
    &TOO_FEW_INDICES,
    &STORE_OF_ANOTHER_SHAPE,
    &TRANSPOSE_OF_A_ROW,
    &EXPAND_PAST_THE_END,
    &REDUCE_OVER_A_MISSING_AXIS,
    &INDEX_WITH_A_MATRIX,
];
