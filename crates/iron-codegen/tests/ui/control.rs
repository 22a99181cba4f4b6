//! Variables, loops and branches.

use iron_core::syntax::Function;
use iron_macros::kernel;

#[kernel(grid = (n,))]
fn assignment_without_mut(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let v = load(x[all(16)]);
    v = v * 2.0;
    store(out[all(16)], v);
}

#[kernel(grid = (n,))]
fn assignment_to_an_unknown_name(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    total += load(x[all(16)]);
    store(out[all(16)], total);
}

#[kernel(grid = (n,))]
fn branches_that_differ(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let v = if n > 4 { load(x[all(16)]) } else { 0.0 };
    store(out[all(16)], v);
}

#[kernel(grid = (n,))]
fn a_branch_without_a_value(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    let v = if n > 4 {
        load(x[0])
    };
    store(out[all(16)], v);
}

#[kernel(grid = (n,))]
fn a_value_that_nobody_uses(x: Tensor<f32, (n,)>, out: TensorMut<f32, (n,)>) {
    load(x[all(16)]);
    store(out[all(16)], 0.0);
}

#[kernel(grid = (n,))]
fn a_pattern_of_three(out: TensorMut<f32, (n,)>) {
    let (a, b, c) = (program_id(0), 1);
    store(out[a], 0.0);
}

#[kernel(grid = (n,))]
fn the_value_of_a_store(out: TensorMut<f32, (n,)>) {
    let v = store(out[all(16)], 0.0);
}

pub static CASES: &[&Function] = &[
    &ASSIGNMENT_WITHOUT_MUT,
    &ASSIGNMENT_TO_AN_UNKNOWN_NAME,
    &BRANCHES_THAT_DIFFER,
    &A_BRANCH_WITHOUT_A_VALUE,
    &A_VALUE_THAT_NOBODY_USES,
    &A_PATTERN_OF_THREE,
    &THE_VALUE_OF_A_STORE,
];
