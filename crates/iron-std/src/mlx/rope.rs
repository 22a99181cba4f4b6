//! Rotary position embeddings ([Su et al. 2021](https://arxiv.org/abs/2104.09864)).

use iron_macros::kernel;

/// Rotates the pairs `(x[i], x[i + half])` of every head in place: the layout of Hugging Face checkpoints.
///
/// `inv_freq` holds `half` inverse frequencies, so that scaled variants differ only in that table; `scale` multiplies
/// sine and cosine (YaRN's attention factor; 1 otherwise).
#[kernel(grid = (rows,))]
fn rope(
    x: TensorMut<f32, (rows, heads, head_dim)>,
    positions: Tensor<i32, (rows,)>,
    inv_freq: Tensor<f32, (half,)>,
    scale: f32,
) {
    let row = program_id(0);
    let position = load(positions[row]).f32();
    for j in tiles(half, BLOCK) {
        let angle = load(inv_freq[j]) * position;
        let c = cos(angle) * scale;
        let s = sin(angle) * scale;
        for head in 0..heads {
            let a = load(x[(row, head, j)]);
            let b = load(x[(row, head, j + half)]);
            store(x[(row, head, j)], a * c - b * s);
            store(x[(row, head, j + half)], b * c + a * s);
        }
    }
}

/// Rotates the pairs `(x[2 i], x[2 i + 1])` of every head in place: the layout of GGUF files of the Llama family.
#[kernel(grid = (rows,))]
fn rope_interleaved(
    x: TensorMut<f32, (rows, heads, head_dim)>,
    positions: Tensor<i32, (rows,)>,
    inv_freq: Tensor<f32, (half,)>,
    scale: f32,
) {
    let row = program_id(0);
    let position = load(positions[row]).f32();
    for j in tiles(half, BLOCK) {
        let angle = load(inv_freq[j]) * position;
        let c = cos(angle) * scale;
        let s = sin(angle) * scale;
        for head in 0..heads {
            let a = load(x[(row, head, j * 2)]);
            let b = load(x[(row, head, j * 2 + 1)]);
            store(x[(row, head, j * 2)], a * c - b * s);
            store(x[(row, head, j * 2 + 1)], b * c + a * s);
        }
    }
}

/// The reference of [`ROPE`] and [`ROPE_INTERLEAVED`] for one head at one position.
pub fn rope_reference(
    x: &[f64],
    inv_freq: &[f64],
    position: f64,
    scale: f64,
    interleaved: bool,
) -> Vec<f64> {
    let half = inv_freq.len();
    let mut out = x.to_vec();
    for (i, frequency) in inv_freq.iter().enumerate() {
        let (sin, cos) = (frequency * position).sin_cos();
        let (first, second) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
        out[first] = (x[first] * cos - x[second] * sin) * scale;
        out[second] = (x[second] * cos + x[first] * sin) * scale;
    }
    out
}
