//! Numbers of the wrong type.

use iron_core::syntax::Function;
use iron_macros::kernel;

#[kernel(grid = (n,))]
fn float_plus_integer(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], load(x[all(16)]) + all(16).index());
}

#[kernel(grid = (n,))]
fn scalar_float_times_dimension(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>, scale: f32) {
    store(out[all(16)], load(x[all(16)]) * (scale / n));
}

#[kernel(grid = (n,))]
fn integer_literal_for_a_float(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], load(x[all(16)]) * 2);
}

#[kernel(grid = (n,))]
fn float_literal_for_an_integer(out: TensorMut<i32, (n,)>) {
    store(out[all(16)], all(16).index() + 0.5);
}

#[kernel(grid = (n,))]
fn exponential_of_integers(out: TensorMut<f32, (n,)>) {
    store(out[all(16)], exp(all(16).index()));
}

#[kernel(grid = (n,))]
fn shift_of_floats(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    store(out[all(16)], load(x[all(16)]) << 1.0);
}

#[kernel(grid = (n,))]
fn branch_on_a_tile(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let v = load(x[all(16)]);
    if v > 0.0 {
        store(out[all(16)], v);
    }
}

#[kernel(grid = (n,))]
fn select_by_a_number(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let v = load(x[all(16)]);
    store(out[all(16)], select(v, v, 0.0));
}

#[kernel(grid = (n,))]
fn sum_of_truth_values(x: Tensor<f32, (n,)>, out: TensorMut<i32, (n,)>) {
    store(out[0], sum(load(x[all(16)]) > 0.0));
}

#[kernel(grid = (n,))]
fn a_variable_changes_its_type(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let mut v = load(x[all(16)]);
    v = all(16).index();
    store(out[all(16)], v);
}

#[kernel(grid = (n,))]
fn a_variable_changes_its_shape(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let mut v = load(x[all(16)]);
    v = load(x[all(32)]);
    store(out[all(16)], v);
}

#[kernel(grid = (n,))]
fn zeros_of_nothing(out: TensorMut<f32, (n,)>) {
    store(out[all(16)], zeros((16,)));
}

#[kernel(grid = (n,))]
fn store_of_integers_to_floats(out: TensorMut<f32, (n,)>) {
    store(out[all(16)], all(16).index());
}

#[kernel(grid = (m,))]
fn int8_times_floats<A: Activation>(
    x: Activations<A, (m, k)>,
    y: Tensor<f32, (n, k)>,
    out: TensorMut<f32, (m, n)>,
) {
    let acc = zeros::<f32>((16, 16));
    store(
        out[(all(16), all(16))],
        dot(load(x[(all(16), all(32))]), load(y[(all(16), all(32))]), acc),
    );
}

pub static CASES: &[&Function] = &[
    &FLOAT_PLUS_INTEGER,
    &SCALAR_FLOAT_TIMES_DIMENSION,
    &INTEGER_LITERAL_FOR_A_FLOAT,
    &FLOAT_LITERAL_FOR_AN_INTEGER,
    &EXPONENTIAL_OF_INTEGERS,
    &SHIFT_OF_FLOATS,
    &BRANCH_ON_A_TILE,
    &SELECT_BY_A_NUMBER,
    &SUM_OF_TRUTH_VALUES,
    &A_VARIABLE_CHANGES_ITS_TYPE,
    &A_VARIABLE_CHANGES_ITS_SHAPE,
    &ZEROS_OF_NOTHING,
    &STORE_OF_INTEGERS_TO_FLOATS,
    &INT8_TIMES_FLOATS,
];
