//! Rows picked by index: token embeddings, and the positions whose logits are wanted.

use iron_macros::kernel;

/// `out[i] = table[ids[i]] * scale`, decoding quantised tables. Ids outside the table read its nearest row.
#[kernel(grid = (hidden.div_ceil(BLOCK), rows))]
fn embed<W: Format>(
    table: Quantized<W, (vocab, hidden)>,
    ids: Tensor<i32, (rows,)>,
    out: TensorMut<f32, (rows, hidden)>,
    scale: f32,
) {
    let (j, row) = (tile_id(0, BLOCK), program_id(1));
    let id = load(ids[row]).max(0).min(vocab - 1);
    store(out[(row, j)], load(table[(id, j)]).f32() * scale);
}

/// `out[i] = x[ids[i]]`. Ids outside `x` give zeros.
#[kernel(grid = (n.div_ceil(BLOCK), count))]
fn take_rows(
    x: Tensor<f32, (rows, n)>,
    ids: Tensor<i32, (count,)>,
    out: TensorMut<f32, (count, n)>,
) {
    let (j, i) = (tile_id(0, BLOCK), program_id(1));
    let id = load(ids[i]);
    let mut value = zeros::<f32>((BLOCK,));
    if id >= 0 && id < rows {
        value = load(x[(id, j)]);
    }
    store(out[(i, j)], value);
}
