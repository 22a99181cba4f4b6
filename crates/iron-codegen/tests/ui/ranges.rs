//! Ranges used as something else.

use iron_core::syntax::Function;
use iron_macros::kernel;

#[kernel(grid = (n,))]
fn range_times_a_number(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let j = tile_id(0, 16);
    store(out[j * n], load(x[j]));
}

#[kernel(grid = (n,))]
fn range_divided(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let j = tile_id(0, 16);
    store(out[j / 2], load(x[j]));
}

#[kernel(grid = (n,))]
fn range_as_a_tile(out: TensorMut<i32, (n,)>) {
    let j = tile_id(0, 16);
    store(out[j], j);
}

#[kernel(grid = (n,))]
fn positions_of_a_tile(x: Tensor<f32, (n,)>, out: TensorMut<i32, (n,)>) {
    store(out[all(16)], load(x[all(16)]).index());
}

#[kernel(grid = (n,))]
fn length_known_only_at_run_time(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(n)], load(x[all(n)]));
}

#[kernel(grid = (n,))]
fn length_of_zero(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16 - 16)], load(x[all(16)]));
}

#[kernel(grid = (n,))]
fn range_changed_in_a_loop(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let mut j = tile_id(0, 16);
    for p in 0..4 {
        j = j + 16;
    }
    store(out[j], load(x[j]));
}

#[kernel(grid = (n,))]
fn load_of_no_place(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], load(n));
}

pub static CASES: &[&Function] = &[
    &RANGE_TIMES_A_NUMBER,
    &RANGE_DIVIDED,
    &RANGE_AS_A_TILE,
    &POSITIONS_OF_A_TILE,
    &LENGTH_KNOWN_ONLY_AT_RUN_TIME,
    &LENGTH_OF_ZERO,
    &RANGE_CHANGED_IN_A_LOOP,
    &LOAD_OF_NO_PLACE,
];
