//! Reads and writes that cannot be.

use iron_core::syntax::Function;
use iron_macros::kernel;

#[kernel(grid = (n,))]
fn store_to_read_only(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(x[all(16)], load(out[all(16)]));
}

#[kernel(grid = (n,))]
fn one_weight(w: Quantized<q4_0, (n, k)>, out: TensorMut<f32, (n,)>) {
    store(out[0], load(w[(0, 0)]));
}

#[kernel(grid = (n,))]
fn arithmetic_on_weights(w: Quantized<q4_0, (n, k)>, out: TensorMut<f32, (n, k)>) {
    store(out[(all(16), all(32))], load(w[(all(16), all(32))]) * 2.0);
}

#[kernel(grid = (n,))]
fn decoding_a_matrix(w: Quantized<q4_0, (n, k)>, out: TensorMut<f32, (n, k)>) {
    store(out[(all(16), all(32))], load(w[(all(16), all(32))]).f32());
}

#[kernel(grid = (n,))]
fn weights_with_a_fill(w: Quantized<q4_0, (n, k)>, out: TensorMut<f32, (n, k)>) {
    store(out[(0, all(32))], load_or(w[(0, all(32))], 1.0).f32());
}

#[kernel(grid = (m,))]
fn weights_carried_by_a_loop(
    x: Activations<f32, (m, k)>,
    w: Quantized<q4_0, (n, k)>,
    out: TensorMut<f32, (m, n)>,
) {
    let mut acc = zeros::<f32>((16, 16));
    let mut next = load(w[(all(16), all(32))]);
    for p in tiles(k, 32) {
        acc = dot(load(x[(all(16), p)]), next, acc);
        next = load(w[(all(16), p)]);
    }
    store(out[(all(16), all(16))], acc);
}

#[kernel(grid = (m,))]
fn int8_read_back<A: Activation>(
    x: Tensor<f32, (m, k)>,
    w: Quantized<q4_0, (n, k)>,
    q: ActivationsMut<A, (m, k)>,
    out: TensorMut<f32, (m, n)>,
) {
    store(q[(all(16), all(32))], load(x[(all(16), all(32))]));
    let acc = zeros::<f32>((16, 16));
    store(
        out[(all(16), all(16))],
        dot(load(q[(all(16), all(32))]), load(w[(all(16), all(32))]), acc),
    );
}

#[kernel(grid = (m,))]
fn int8_rows_by_list<A: Activation>(
    x: Tensor<f32, (m, k)>,
    ids: Tensor<i32, (m,)>,
    q: ActivationsMut<A, (m, k)>,
) {
    store(q[(load(ids[all(16)]), all(32))], load(x[(all(16), all(32))]));
}

#[kernel(grid = (m,))]
fn int8_in_short_pieces<A: Activation>(x: Tensor<f32, (m, k)>, q: ActivationsMut<A, (m, k)>) {
    store(q[(0, all(16))], load(x[(0, all(16))]));
}

#[kernel(grid = (m,))]
fn product_before_the_first_column(
    x: Activations<f32, (m, k)>,
    w: Quantized<q4_0, (n, k)>,
    out: TensorMut<f32, (m, n)>,
) {
    let mut acc = zeros::<f32>((16, 16));
    for p in tiles(k, 32) {
        acc = dot(load(x[(all(16), p - 1)]), load(w[(all(16), p)]), acc);
    }
    store(out[(all(16), all(16))], acc);
}

pub static CASES: &[&Function] = &[
    &STORE_TO_READ_ONLY,
    &ONE_WEIGHT,
    &ARITHMETIC_ON_WEIGHTS,
    &DECODING_A_MATRIX,
    &WEIGHTS_WITH_A_FILL,
    &WEIGHTS_CARRIED_BY_A_LOOP,
    &INT8_READ_BACK,
    &INT8_ROWS_BY_LIST,
    &INT8_IN_SHORT_PIECES,
    &PRODUCT_BEFORE_THE_FIRST_COLUMN,
];
