//! Names that mean nothing, and calls that do not fit.

use iron_core::syntax::Function;
use iron_macros::kernel;

#[kernel(grid = (n,))]
fn unknown_name(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let value = load(x[all(16)]);
    store(out[all(16)], vaule);
}

#[kernel(grid = (n,))]
fn missing_constant(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(CHUNK)], load(x[all(CHUNK)]));
}

#[kernel(grid = (n,))]
fn tensor_as_a_value(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], x * 2.0);
}

#[kernel(grid = (n,))]
fn unknown_tensor(out: TensorMut<f32, (n,)>) {
    store(out[all(16)], load(input[all(16)]));
}

#[kernel(grid = (n,))]
fn place_without_load(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], x[all(16)] * 2.0);
}

#[kernel(grid = (n,))]
fn unknown_function(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], softplus(load(x[all(16)])));
}

#[kernel(grid = (n,))]
fn misspelled_function(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], sigmod(load(x[all(16)])));
}

#[kernel(grid = (n,))]
fn unknown_method(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], load(x[all(16)]).powi(2));
}

#[kernel(grid = (n,))]
fn missing_argument(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], select(load(x[all(16)]) > 0.0, 1.0));
}

#[kernel(grid = (n,))]
fn missing_grid_axis(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let row = program_id(1);
    store(out[row], load(x[row]));
}

#[kernel]
fn halve(x: Value) -> Value {
    x * 0.5
}

#[kernel(grid = (n,))]
fn helper_with_too_many_arguments(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], halve(load(x[all(16)]), 2.0));
}

#[kernel]
fn countdown(x: Value) -> Value {
    countdown(x - 1.0)
}

#[kernel(grid = (n,))]
fn recursive_helper(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], countdown(load(x[all(16)])));
}

#[kernel(grid = (n,))]
fn kernel_as_a_helper(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    unknown_name(load(x[all(16)]), load(x[all(16)]));
}

pub static HELPERS: &[&Function] = &[&HALVE, &COUNTDOWN, &UNKNOWN_NAME];

pub static CASES: &[&Function] = &[
    &UNKNOWN_NAME,
    &MISSING_CONSTANT,
    &TENSOR_AS_A_VALUE,
    &UNKNOWN_TENSOR,
    &PLACE_WITHOUT_LOAD,
    &UNKNOWN_FUNCTION,
    &MISSPELLED_FUNCTION,
    &UNKNOWN_METHOD,
    &MISSING_ARGUMENT,
    &MISSING_GRID_AXIS,
    &HELPER_WITH_TOO_MANY_ARGUMENTS,
    &RECURSIVE_HELPER,
    &KERNEL_AS_A_HELPER,
];
