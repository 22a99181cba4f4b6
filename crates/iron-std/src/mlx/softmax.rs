//! Softmax and argmax along rows.

use iron_macros::kernel;

/// `out = e^(x - max) / sum(e^(x - max))` for each row.
#[kernel(grid = (rows,))]
fn softmax(x: Tensor<f32, (rows, n)>, out: TensorMut<f32, (rows, n)>) {
    let row = program_id(0);
    let mut highest = full::<f32>((BLOCK,), NEG_INFINITY);
    for j in tiles(n, BLOCK) {
        highest = highest.max(load_or(x[(row, j)], NEG_INFINITY));
    }
    let top = max(highest);
    let mut totals = zeros::<f32>((BLOCK,));
    for j in tiles(n, BLOCK) {
        let e = exp(load_or(x[(row, j)], NEG_INFINITY) - top);
        store(out[(row, j)], e);
        totals += e;
    }
    let scale = 1.0 / sum(totals);
    for j in tiles(n, BLOCK) {
        store(out[(row, j)], load(out[(row, j)]) * scale);
    }
}

/// The position of the largest element of each row; of equal ones the first.
#[kernel(grid = (rows,))]
fn argmax(x: Tensor<f32, (rows, n)>, out: TensorMut<i32, (rows,)>) {
    let row = program_id(0);
    let mut best = full::<f32>((BLOCK,), NEG_INFINITY);
    let mut at = zeros::<i32>((BLOCK,));
    for j in tiles(n, BLOCK) {
        let v = load_or(x[(row, j)], NEG_INFINITY);
        let better = v > best;
        best = select(better, v, best);
        at = select(better, j.index(), at);
    }
    let top = max(best);
    store(out[row], min(select(best == top, at, n)));
}

/// The reference of [`SOFTMAX`] for one row.
pub fn softmax_reference(x: &[f64]) -> Vec<f64> {
    let highest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = x.iter().map(|v| (v - highest).exp()).collect();
    let total: f64 = e.iter().sum();
    e.into_iter().map(|v| v / total).collect()
}

/// The reference of [`ARGMAX`] for one row.
pub fn argmax_reference(x: &[f64]) -> usize {
    let mut best = 0;
    for (at, v) in x.iter().enumerate() {
        if *v > x[best] {
            best = at;
        }
    }
    best
}
