//! Llama ([Touvron et al. 2023](https://arxiv.org/abs/2307.09288), [Llama team 2024](https://arxiv.org/abs/2407.21783)).
//!
//! Reference: `models/llama/modeling_llama.py` of Hugging Face transformers.

use std::ops::Range;

use iron_runtime::Tensor;

use super::{load_lm_head, load_mlp, load_norm};
use crate::Error;
use crate::models::Decoder;
use crate::nn::{
    self, Context, Embedding, GatedMlp, Linear, LinearInput, Loader, Residual, RmsNorm, Rope,
    WantedInput, project,
};
use crate::weights::config::ModelConfig;

#[derive(Debug)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    rope: Rope,
    core: nn::Attention,
}

impl Attention {
    fn load(loader: &Loader<'_>, config: &ModelConfig, layer: usize) -> Result<Self, Error> {
        let (hidden, head_dim) = (config.hidden_size, config.head_dim);
        let (q_size, kv_size) = (config.num_heads * head_dim, config.num_kv_heads * head_dim);
        let (bias, output_bias) = (config.attention_bias, config.attention_output_bias);
        Ok(Self {
            q_proj: loader.linear("q_proj", q_size, hidden, bias)?,
            k_proj: loader.linear("k_proj", kv_size, hidden, bias)?,
            // A quarter of what int8 inputs cost in KL divergence on SmolLM2, for 2.5 % of its weights.
            v_proj: loader.linear("v_proj", kv_size, hidden, bias)?.with_plain_input(),
            o_proj: loader.linear("o_proj", hidden, q_size, output_bias)?,
            rope: Rope::new(loader.device(), &config.rope, head_dim)?,
            core: nn::Attention::of_layer(config, layer),
        })
    }

    fn wanted_input(&self) -> WantedInput {
        WantedInput::by(&[&self.q_proj, &self.k_proj, &self.v_proj])
    }

    fn forward(&self, cx: &Context<'_>, x: &LinearInput, out: &Tensor) -> Result<(), Error> {
        let _scope = cx.scope();
        let q = cx.matrix(cx.tokens(), self.q_proj.out_features())?;
        let k = cx.matrix(cx.tokens(), self.k_proj.out_features())?;
        let v = cx.matrix(cx.tokens(), self.v_proj.out_features())?;
        project(cx, x, &[(&self.q_proj, &q), (&self.k_proj, &k), (&self.v_proj, &v)])?;
        self.rope.forward(cx, &q, &k)?;
        let heads = self.core.forward(cx, &q, &k, &v, WantedInput::by(&[&self.o_proj]))?;
        self.o_proj.forward(cx, &heads, out)
    }
}

#[derive(Debug)]
struct Block {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: GatedMlp,
}

impl Block {
    fn load(loader: &Loader<'_>, config: &ModelConfig, layer: usize) -> Result<Self, Error> {
        Ok(Self {
            input_layernorm: load_norm(loader, config, "input_layernorm")?,
            self_attn: Attention::load(&loader.at("self_attn"), config, layer)?,
            post_attention_layernorm: load_norm(loader, config, "post_attention_layernorm")?,
            mlp: load_mlp(&loader.at("mlp"), config)?,
        })
    }

    fn forward(&self, cx: &Context<'_>, x: &mut Residual) -> Result<(), Error> {
        let _scope = cx.scope();
        let normed = self.input_layernorm.forward(cx, x, self.self_attn.wanted_input())?;
        x.add(|out| self.self_attn.forward(cx, &normed, out))?;
        let normed = self.post_attention_layernorm.forward(cx, x, self.mlp.wanted_input())?;
        x.add(|out| self.mlp.forward(cx, &normed, out))
    }
}

/// A Llama model.
#[derive(Debug)]
pub(crate) struct Llama {
    hidden_size: usize,
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: RmsNorm,
    lm_head: Linear,
}

impl Llama {
    /// Binds the tensors `model.*` and, unless the embeddings are tied, `lm_head`.
    pub(crate) fn load(loader: &Loader<'_>, config: &ModelConfig) -> Result<Self, Error> {
        let model = loader.at("model");
        let embed_tokens =
            model.embedding("embed_tokens", config.vocab_size, config.hidden_size)?;
        let layers =
            (0..config.num_layers).map(|layer| Block::load(&model.layer(layer), config, layer));
        Ok(Self {
            hidden_size: config.hidden_size,
            layers: layers.collect::<Result<_, Error>>()?,
            norm: load_norm(&model, config, "norm")?,
            lm_head: load_lm_head(loader, config, &embed_tokens)?,
            embed_tokens,
        })
    }
}

impl Decoder for Llama {
    fn embed(&self, cx: &Context<'_>) -> Result<Residual, Error> {
        let x = Residual::new(cx, cx.tokens(), self.hidden_size)?;
        self.embed_tokens.forward(cx, 1.0, x.stream())?;
        Ok(x)
    }

    fn layers(
        &self,
        cx: &Context<'_>,
        layers: Range<usize>,
        x: &mut Residual,
    ) -> Result<(), Error> {
        self.layers[layers].iter().try_for_each(|block| block.forward(cx, x))
    }

    fn logits(&self, cx: &Context<'_>, x: Residual) -> Result<Tensor, Error> {
        let mut x = x.wanted_rows(cx)?;
        let normed = self.norm.forward(cx, &mut x, WantedInput::by(&[&self.lm_head]))?;
        let logits = cx.matrix(x.stream().dim(0)?, self.lm_head.out_features())?;
        self.lm_head.forward(cx, &normed, &logits)?;
        Ok(logits)
    }
}
