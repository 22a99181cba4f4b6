//! Writing keys and values into the paged cache.

use iron_macros::kernel;

/// Stores each token's key and value at its slot (`page * PAGE + offset`); a negative slot stores nothing.
///
/// Keys lie transposed, `[page, kv_head, head_dim, PAGE]`, so that attention reads 16 tokens of one component at once.
#[kernel(grid = (kv_heads, tokens), variants(PAGE = (64,)))]
fn append_kv<C: Float>(
    k: Tensor<f32, (tokens, kv_heads, head_dim)>,
    v: Tensor<f32, (tokens, kv_heads, head_dim)>,
    slots: Tensor<i32, (tokens,)>,
    k_cache: TensorMut<C, (pages, kv_heads, head_dim, PAGE)>,
    v_cache: TensorMut<C, (pages, kv_heads, PAGE, head_dim)>,
) {
    let (head, token) = (program_id(0), program_id(1));
    let slot = load(slots[token]);
    if slot >= 0 && slot < pages * PAGE {
        let page = slot / PAGE;
        let offset = slot % PAGE;
        for j in tiles(head_dim, BLOCK) {
            store(k_cache[(page, head, j, offset)], load(k[(token, head, j)]));
            store(v_cache[(page, head, offset, j)], load(v[(token, head, j)]));
        }
    }
}
