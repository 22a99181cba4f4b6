//! Gemma 3 ([Gemma team 2025](https://arxiv.org/abs/2503.19786)).
//!
//! Reference: `models/gemma3/modeling_gemma3.py` of Hugging Face transformers.

use std::ops::Range;

use iron_runtime::Tensor;

use super::{load_lm_head, load_mlp, load_norm};
use crate::Error;
use crate::models::Decoder;
use crate::nn::{
    self, Context, Embedding, GatedMlp, Linear, LinearInput, Loader, Residual, RmsNorm, Rope,
    WantedInput, normalize, project, soft_cap,
};
use crate::weights::config::ModelConfig;

#[derive(Debug)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    /// Over each head.
    q_norm: RmsNorm,
    k_norm: RmsNorm,
    rope: Rope,
    core: nn::Attention,
}

impl Attention {
    fn load(loader: &Loader<'_>, config: &ModelConfig, layer: usize) -> Result<Self, Error> {
        let (hidden, head_dim) = (config.hidden_size, config.head_dim);
        let (q_size, kv_size) = (config.num_heads * head_dim, config.num_kv_heads * head_dim);
        let (bias, output_bias) = (config.attention_bias, config.attention_output_bias);
        let (eps, offset) = (config.rms_norm_eps, config.norm_offset);
        let rope = config.rope.in_layers(config.layer_attention[layer]);
        Ok(Self {
            q_proj: loader.linear("q_proj", q_size, hidden, bias)?,
            k_proj: loader.linear("k_proj", kv_size, hidden, bias)?,
            v_proj: loader.linear("v_proj", kv_size, hidden, bias)?,
            o_proj: loader.linear("o_proj", hidden, q_size, output_bias)?,
            q_norm: loader.rms_norm("q_norm", head_dim, eps, offset)?,
            k_norm: loader.rms_norm("k_norm", head_dim, eps, offset)?,
            rope: Rope::new(loader.device(), &rope, head_dim)?,
            // The configuration has a cap of scores, from Gemma 2, that the reference does not apply.
            core: nn::Attention { soft_cap: None, ..nn::Attention::of_layer(config, layer) },
        })
    }

    fn wanted_input(&self) -> WantedInput {
        WantedInput::by(&[&self.q_proj, &self.k_proj, &self.v_proj])
    }

    fn forward(&self, cx: &Context<'_>, x: &LinearInput, out: &Tensor) -> Result<(), Error> {
        let _scope = cx.scope();
        let queries = || cx.matrix(cx.tokens(), self.q_proj.out_features());
        let keys = || cx.matrix(cx.tokens(), self.k_proj.out_features());
        let (q_raw, k_raw, v) = (queries()?, keys()?, keys()?);
        project(cx, x, &[(&self.q_proj, &q_raw), (&self.k_proj, &k_raw), (&self.v_proj, &v)])?;
        let (q, k) = (queries()?, keys()?);
        normalize(cx, &[(&self.q_norm, &q_raw, &q), (&self.k_norm, &k_raw, &k)])?;
        self.rope.forward(cx, &q, &k)?;
        let heads = self.core.forward(cx, &q, &k, &v, WantedInput::by(&[&self.o_proj]))?;
        self.o_proj.forward(cx, &heads, out)
    }
}

/// A block with a norm on both sides of each sub-layer.
#[derive(Debug)]
struct Block {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    pre_feedforward_layernorm: RmsNorm,
    mlp: GatedMlp,
    post_feedforward_layernorm: RmsNorm,
}

impl Block {
    fn load(loader: &Loader<'_>, config: &ModelConfig, layer: usize) -> Result<Self, Error> {
        let norm = |name| load_norm(loader, config, name);
        Ok(Self {
            input_layernorm: norm("input_layernorm")?,
            self_attn: Attention::load(&loader.at("self_attn"), config, layer)?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm")?,
            mlp: load_mlp(&loader.at("mlp"), config)?,
            post_feedforward_layernorm: norm("post_feedforward_layernorm")?,
        })
    }

    fn forward(&self, cx: &Context<'_>, x: &mut Residual) -> Result<(), Error> {
        let _scope = cx.scope();
        let output = cx.matrix(x.stream().dim(0)?, x.stream().dim(1)?)?;
        let normed = self.input_layernorm.forward(cx, x, self.self_attn.wanted_input())?;
        x.add(|delta| {
            self.self_attn.forward(cx, &normed, &output)?;
            normalize(cx, &[(&self.post_attention_layernorm, &output, delta)])
        })?;
        let normed = self.pre_feedforward_layernorm.forward(cx, x, self.mlp.wanted_input())?;
        x.add(|delta| {
            self.mlp.forward(cx, &normed, &output)?;
            normalize(cx, &[(&self.post_feedforward_layernorm, &output, delta)])
        })
    }
}

/// A Gemma 3 model.
#[derive(Debug)]
pub(crate) struct Gemma3 {
    hidden_size: usize,
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: RmsNorm,
    lm_head: Linear,
    final_logit_softcap: Option<f32>,
}

impl Gemma3 {
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
            final_logit_softcap: config.final_logit_softcap,
        })
    }
}

impl Decoder for Gemma3 {
    fn embed(&self, cx: &Context<'_>) -> Result<Residual, Error> {
        let x = Residual::new(cx, cx.tokens(), self.hidden_size)?;
        // The reference rounds the factor to the type of the embeddings. We compute in f32, as it does for comparisons.
        let scale = (self.hidden_size as f64).sqrt() as f32;
        self.embed_tokens.forward(cx, scale, x.stream())?;
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
        if let Some(cap) = self.final_logit_softcap {
            soft_cap(cx, &logits, cap)?;
        }
        Ok(logits)
    }
}
