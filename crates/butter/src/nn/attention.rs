//! Attention over the paged cache.

use iron_kernels as kernels;
use iron_runtime::Tensor;

use super::{Context, LinearInput, WantedInput};
use crate::Error;
use crate::weights::config::{LayerAttention, ModelConfig};

/// Scaled dot-product attention of one layer, between its projections.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Which layer of the cache.
    pub layer: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Bounds scores to `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
    /// All positions, or a sliding window.
    pub reach: LayerAttention,
}

impl Attention {
    /// The attention that `config` describes for `layer`.
    pub fn of_layer(config: &ModelConfig, layer: usize) -> Self {
        Self {
            layer,
            num_heads: config.num_heads,
            num_kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            scale: config.attention_scale,
            soft_cap: config.attn_logit_softcap,
            reach: config.layer_attention[layer],
        }
    }

    /// Stores the keys and values `[tokens, kv_heads * head_dim]`, then attends with the queries
    /// `[tokens, heads * head_dim]` to all that is stored. The result is the input of the output projection.
    pub fn forward(
        &self,
        cx: &Context<'_>,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        wanted: WantedInput,
    ) -> Result<LinearInput, Error> {
        let (cache, batch) = (cx.cache.layer(self.layer), cx.batch);
        let (keys, values) = (&cache.keys, &cache.values);
        let (k, v) = (k.split_axis(1, self.head_dim)?, v.split_axis(1, self.head_dim)?);
        kernels::append_kv(cx.commands, &k, &v, &batch.slots, keys, values)?;

        let tokens = cx.tokens();
        let out = cx.matrix(tokens, self.num_heads * self.head_dim)?;
        let rows = [tokens * self.num_heads, self.head_dim];
        let visible = match self.reach {
            LayerAttention::Full => &batch.visible,
            LayerAttention::Sliding => &batch.visible_window,
        };
        kernels::attention(
            cx.commands,
            &q.reshape(&rows)?,
            keys,
            values,
            &batch.tiles,
            visible,
            cx.cache.page_table(),
            &out.reshape(&rows)?,
            self.scale,
            self.soft_cap.unwrap_or(0.0),
        )?;
        LinearInput::from_matrix(cx, &out, wanted)
    }
}
