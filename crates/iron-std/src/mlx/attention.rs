//! Attention over a paged cache with an online softmax
//! ([Dao et al. 2022](https://arxiv.org/abs/2205.14135), [Kwon et al. 2023](https://arxiv.org/abs/2309.06180)).

use iron_macros::kernel;

/// Attention of tiles of queries over the keys and values of their sequences.
///
/// A tile is up to `BM` rows: the query heads of one key-value head, for a run of tokens of one sequence. `tiles` lists
/// `[first token, tokens, sequence, 0]`; a tile without tokens does nothing, so the grid may be larger than the work.
/// `visible` gives each token's first and past-the-end key position: causal, windowed and bidirectional attention are
/// all this. Keys are stored `[page, kv_head, head_dim, PAGE]`, values `[page, kv_head, PAGE, head_dim]`.
/// `q` and `out` have one row per (token, head). A positive `soft_cap` bounds the scores to `soft_cap * tanh(s / soft_cap)`.
///
/// Keys are folded page by page in ascending order, whatever the tile, so a token's result does not depend on its batch.
#[kernel(grid = (kv_heads, count), variants(HEAD_DIM = (64, 128, 256, 512), PAGE = (64,)))]
fn attention<C: Float>(
    q: Tensor<f32, (query_rows, head_dim)>,
    k_cache: Tensor<C, (pages, kv_heads, head_dim, PAGE)>,
    v_cache: Tensor<C, (pages, kv_heads, PAGE, head_dim)>,
    tiles: Tensor<i32, { (count, 4) }>,
    visible: Tensor<i32, { (tokens, 2) }>,
    page_table: Tensor<i32, (sequences, max_pages)>,
    out: TensorMut<f32, (query_rows, head_dim)>,
    scale: f32,
    soft_cap: f32,
) {
    let (kv_head, tile) = (program_id(0), program_id(1));
    let first = load(tiles[(tile, 0)]);
    let tile_tokens = load(tiles[(tile, 1)]);
    let sequence = load(tiles[(tile, 2)]);
    let heads = query_rows / tokens;
    let group = heads / kv_heads;

    let r = all(BM).index();
    let is_row = r < tile_tokens * group;
    let token = select(is_row, first + r / group, -1);
    let row = select(is_row, token * heads + kv_head * group + r % group, -1);
    let begin = load(visible[(token, 0)]);
    let end = load(visible[(token, 1)]);
    let first_key = min(select(is_row, begin, max_pages * PAGE));
    let past_key = max(select(is_row, end, 0));

    let queries = load(q[(row, all(HEAD_DIM))]) * scale;
    let mut highest = full::<f32>((BM,), NEG_INFINITY);
    let mut total = zeros::<f32>((BM,));
    let mut acc = zeros::<f32>((BM, HEAD_DIM));
    for p in range(first_key / PAGE, past_key.div_ceil(PAGE)) {
        let page = load(page_table[(sequence, p)]);
        let keys = load(k_cache[(page, kv_head, all(HEAD_DIM), all(PAGE))]);
        let mut scores = dot(queries, keys.t(), zeros::<f32>((BM, PAGE)));
        if soft_cap > 0.0 {
            scores = tanh(scores / soft_cap) * soft_cap;
        }
        let position = (p * PAGE + all(PAGE).index()).expand(0);
        let is_visible = position >= begin.expand(1) && position < end.expand(1);
        scores = select(is_visible, scores, NEG_INFINITY);

        let new_highest = highest.max(max(scores, 1));
        // A row that has seen nothing yet keeps its empty state: e^(-inf - 0) is 0.
        let base = select(new_highest == NEG_INFINITY, 0.0, new_highest);
        let shrink = exp(highest - base);
        let weights = exp(scores - base.expand(1));
        total = total * shrink + sum(weights, 1);
        let values = load(v_cache[(page, kv_head, all(PAGE), all(HEAD_DIM))]);
        acc = dot(weights, values.t(), acc * shrink.expand(1));
        highest = new_highest;
    }
    let divisor = select(total == 0.0, 1.0, total);
    store(out[(row, all(HEAD_DIM))], acc / divisor.expand(1));
}

/// The reference of [`ATTENTION`] for one query: keys and values `[positions, head_dim]`.
pub fn attention_reference(
    q: &[f64],
    keys: &[Vec<f64>],
    values: &[Vec<f64>],
    scale: f64,
    soft_cap: f64,
) -> Vec<f64> {
    let scores: Vec<f64> = keys
        .iter()
        .map(|key| {
            let score = q.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() * scale;
            if soft_cap > 0.0 { (score / soft_cap).tanh() * soft_cap } else { score }
        })
        .collect();
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut out = vec![0.0; q.len()];
    for (weight, value) in weights.iter().zip(values) {
        for (o, v) in out.iter_mut().zip(value) {
            *o += weight / total * v;
        }
    }
    out
}
