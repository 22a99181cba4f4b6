//! What a model is: its sizes, positions, norms and special tokens, read from Hugging Face's `config.json` or from GGUF
//! metadata into the same struct.
//!
//! Every number is checked against what makes sense before anyone computes with it, and a setting that would change
//! results and is not supported is an error.

mod families;
mod rope;
mod settings;

use std::path::Path;

use iron_core::Format;

use self::families::Family;
use self::settings::{Key, Settings};
use super::WeightsError;
use super::gguf::Gguf;

pub use self::rope::{RopeConfig, RopeLayout, RopeScaling};

/// A model's configuration.
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts about a checkpoint")]
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Hugging Face's name of the architecture, such as `llama` or `gemma3_text`.
    pub model_type: String,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the feed-forward network.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Width of one head; not always `hidden_size / num_heads`.
    pub head_dim: usize,
    /// Rows of the embedding matrix.
    pub vocab_size: usize,
    /// The longest context that the model was made for.
    pub max_position_embeddings: usize,
    /// Added to the mean square inside each RMS norm.
    pub rms_norm_eps: f32,
    /// What a norm adds to its stored weight: 1 for Gemma from Hugging Face, else 0 (llama.cpp's converter has already
    /// added it).
    pub norm_offset: f32,
    /// Attention scores are multiplied by this; usually `1 / sqrt(head_dim)`.
    pub attention_scale: f32,
    /// Rotary position embeddings.
    pub rope: RopeConfig,
    /// Whether the output projection is the embedding matrix.
    pub tie_word_embeddings: bool,
    /// Whether the query, key and value projections have biases.
    pub attention_bias: bool,
    /// Whether the attention's output projection has a bias.
    pub attention_output_bias: bool,
    /// Whether the feed-forward projections have biases.
    pub mlp_bias: bool,
    /// The feed-forward network's activation.
    pub hidden_act: Activation,
    /// How many positions back a [`LayerAttention::Sliding`] layer sees, itself included.
    pub sliding_window: Option<usize>,
    /// What each layer sees; as many as `num_layers`.
    pub layer_attention: Vec<LayerAttention>,
    /// Soft cap of attention scores.
    pub attn_logit_softcap: Option<f32>,
    /// Soft cap of the logits.
    pub final_logit_softcap: Option<f32>,
    /// The token that starts a text.
    pub bos_token_id: Option<u32>,
    /// The tokens that end an answer.
    pub eos_token_ids: Vec<u32>,
    /// The element type that the model was trained or published in, where known.
    pub dtype: Option<Format>,
}

/// The activation of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by the error function.
    Gelu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// What a layer's attention sees of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerAttention {
    /// Everything.
    Full,
    /// The last [`ModelConfig::sliding_window`] positions.
    Sliding,
}

const HIDDEN_SIZE: Key = Key::new("hidden_size", "embedding_length");
const INTERMEDIATE_SIZE: Key = Key::new("intermediate_size", "feed_forward_length");
const NUM_LAYERS: Key = Key::new("num_hidden_layers", "block_count");
const NUM_HEADS: Key = Key::new("num_attention_heads", "attention.head_count");
const NUM_KV_HEADS: Key = Key::new("num_key_value_heads", "attention.head_count_kv");
const HEAD_DIM: Key = Key::new("head_dim", "attention.key_length");
const VALUE_DIM: Key = Key::gguf("attention.value_length");
const CONTEXT: Key = Key::new("max_position_embeddings", "context_length");
const EPS: Key = Key::new("rms_norm_eps", "attention.layer_norm_rms_epsilon");
const WINDOW: Key = Key::new("sliding_window", "attention.sliding_window");
const VOCAB_SIZE: Key = Key::new("vocab_size", "vocab_size");
const ATTN_SOFTCAP: Key = Key::new("attn_logit_softcapping", "attn_logit_softcapping");
const FINAL_SOFTCAP: Key = Key::new("final_logit_softcapping", "final_logit_softcapping");
const EXPERTS: [Key; 3] = [
    Key::new("num_local_experts", "expert_count"),
    Key::huggingface("num_experts"),
    Key::huggingface("n_routed_experts"),
];

/// Caps far above any published model, and low enough that products of a few of them stay in range.
const MOST_LAYERS: u64 = 2048;
const MOST_HEADS: u64 = 4096;
const WIDEST_HEAD: u64 = 4096;
const WIDEST: u64 = 1 << 20;
const LARGEST_VOCABULARY: u64 = 1 << 24;
const LONGEST_CONTEXT: u64 = 1 << 31;

impl ModelConfig {
    /// Reads `config.json`, and `generation_config.json` when there is one, in `folder`.
    pub fn from_folder(folder: &Path) -> Result<Self, WeightsError> {
        let settings = Settings::from_json_file(&folder.join("config.json"))?;
        let mut config = Self::read(&settings)?;
        let generation = folder.join("generation_config.json");
        if generation.is_file() {
            let generation = Settings::from_json_file(&generation)?;
            let mut eos = generation.token_ids("eos_token_id")?;
            eos.extend(&config.eos_token_ids);
            config.eos_token_ids = distinct(eos);
            config.bos_token_id =
                generation.token_ids("bos_token_id")?.first().copied().or(config.bos_token_id);
        }
        Ok(config)
    }

    /// Reads a GGUF file's metadata.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, WeightsError> {
        Self::read(&Settings::from_gguf(gguf)?)
    }

    fn read(settings: &Settings<'_>) -> Result<Self, WeightsError> {
        let family = Family::of(settings)?;
        refuse_unsupported(settings)?;
        let num_layers = settings.require_count(NUM_LAYERS, MOST_LAYERS)?;
        let hidden_size = settings.require_count(HIDDEN_SIZE, WIDEST)?;
        let num_heads = settings.require_count(NUM_HEADS, MOST_HEADS)?;
        let num_kv_heads = settings.count(NUM_KV_HEADS, MOST_HEADS)?.unwrap_or(num_heads);
        if !num_heads.is_multiple_of(num_kv_heads) {
            let expected = format!("a divisor of the {num_heads} query heads");
            return Err(settings.bad(NUM_KV_HEADS, &expected, num_kv_heads));
        }
        let head_dim = read_head_dim(settings, hidden_size, num_heads)?;
        let sliding_window = read_window(settings, family)?;
        let rms_norm_eps = settings.require_number(EPS)? as f32;
        if !(rms_norm_eps > 0.0 && rms_norm_eps < 1.0) {
            return Err(settings.bad(EPS, "between 0 and 1", rms_norm_eps));
        }
        Ok(Self {
            model_type: family.model_type.to_owned(),
            hidden_size,
            intermediate_size: settings.require_count(INTERMEDIATE_SIZE, WIDEST)?,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim,
            vocab_size: read_vocab_size(settings)?,
            max_position_embeddings: settings.require_count(CONTEXT, LONGEST_CONTEXT)?,
            rms_norm_eps,
            norm_offset: if settings.gguf().is_some() { 0.0 } else { family.norm_offset },
            attention_scale: read_attention_scale(
                settings,
                family,
                hidden_size,
                num_heads,
                num_layers,
                head_dim,
            )?,
            rope: RopeConfig::read(settings, family, head_dim)?,
            tie_word_embeddings: match settings.gguf() {
                Some(gguf) => gguf.info("output.weight").is_none(),
                None => settings.boolean("tie_word_embeddings")?.unwrap_or(family.tied_by_default),
            },
            attention_bias: has_bias(
                settings,
                "attention_bias",
                "blk.0.attn_q.bias",
                family.qkv_bias,
            )?,
            attention_output_bias: has_bias(
                settings,
                "attention_bias",
                "blk.0.attn_output.bias",
                false,
            )?,
            mlp_bias: has_bias(settings, "mlp_bias", "blk.0.ffn_up.bias", false)?,
            hidden_act: read_activation(settings, family)?,
            sliding_window,
            layer_attention: read_layer_attention(settings, family, num_layers, sliding_window)?,
            attn_logit_softcap: settings.positive(ATTN_SOFTCAP)?,
            final_logit_softcap: settings.positive(FINAL_SOFTCAP)?,
            bos_token_id: settings.bos_token_id()?,
            eos_token_ids: distinct(settings.eos_token_ids()?),
            dtype: read_dtype(settings)?,
        })
    }
}

/// Settings that no supported family has, and that would silently change results.
fn refuse_unsupported(settings: &Settings<'_>) -> Result<(), WeightsError> {
    for key in EXPERTS {
        if let Some(experts) = settings.integer(key)?.filter(|&experts| experts > 0) {
            return Err(settings.unsupported(
                key,
                &format!("{experts} experts"),
                "models without experts",
            ));
        }
    }
    if settings.boolean("use_bidirectional_attention")? == Some(true) {
        let key = Key::huggingface("use_bidirectional_attention");
        return Err(settings.unsupported(key, "true", "false: models that see the past only"));
    }
    if let Some(quantization) =
        settings.json_field("quantization_config").or(settings.json_field("quantization"))
    {
        let method = quantization
            .get("quant_method")
            .and_then(|method| method.as_str())
            .unwrap_or("of some kind");
        let key = Key::huggingface("quantization_config");
        return Err(settings.unsupported(
            key,
            method,
            "plain F32, F16 or BF16 checkpoints, and GGUF files",
        ));
    }
    Ok(())
}

fn read_head_dim(
    settings: &Settings<'_>,
    hidden_size: usize,
    num_heads: usize,
) -> Result<usize, WeightsError> {
    let head_dim = match settings.count(HEAD_DIM, WIDEST_HEAD)? {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(num_heads) => hidden_size / num_heads,
        None => {
            return Err(settings.bad(
                HIDDEN_SIZE,
                &format!("a multiple of the {num_heads} heads"),
                hidden_size,
            ));
        }
    };
    if let Some(value_dim) =
        settings.count(VALUE_DIM, WIDEST_HEAD)?.filter(|&value_dim| value_dim != head_dim)
    {
        let supported = format!("{head_dim}, the width of the keys");
        return Err(settings.unsupported(VALUE_DIM, &value_dim.to_string(), &supported));
    }
    Ok(head_dim)
}

fn read_vocab_size(settings: &Settings<'_>) -> Result<usize, WeightsError> {
    let Some(gguf) = settings.gguf() else {
        return settings.require_count(VOCAB_SIZE, LARGEST_VOCABULARY);
    };
    // The embedding matrix is what the model computes with; the metadata's number is optional and at times padded.
    match gguf.info("token_embd.weight").map(|info| info.shape.as_slice()) {
        Some(&[rows, _]) if rows as u64 <= LARGEST_VOCABULARY => Ok(rows),
        Some(shape) => {
            let expected = format!("two dimensions, at most {LARGEST_VOCABULARY} rows");
            Err(WeightsError::bad_tensor(
                gguf.path(),
                "token_embd.weight",
                expected,
                format!("{shape:?}"),
            ))
        }
        None => settings.require_count(VOCAB_SIZE, LARGEST_VOCABULARY),
    }
}

fn read_attention_scale(
    settings: &Settings<'_>,
    family: &Family,
    hidden_size: usize,
    num_heads: usize,
    num_layers: usize,
    head_dim: usize,
) -> Result<f32, WeightsError> {
    let scalar = settings.positive(Key::huggingface("query_pre_attn_scalar"))?;
    // llama.cpp knows Gemma 3 27B, whose scale differs, by its 62 layers.
    let is_gemma3_27b =
        settings.gguf().is_some() && family.model_type == "gemma3_text" && num_layers == 62;
    let divisor = match scalar.filter(|_| family.has_query_scalar) {
        Some(scalar) => scalar,
        None if is_gemma3_27b => (hidden_size / num_heads) as f32,
        None => head_dim as f32,
    };
    Ok(divisor.sqrt().recip())
}

fn read_window(settings: &Settings<'_>, family: &Family) -> Result<Option<usize>, WeightsError> {
    if !family.sliding.is_used(settings.boolean("use_sliding_window")?) {
        return Ok(None);
    }
    match settings.integer(WINDOW)? {
        None | Some(0) => Ok(None),
        Some(_) => settings.count(WINDOW, LONGEST_CONTEXT),
    }
}

fn read_layer_attention(
    settings: &Settings<'_>,
    family: &Family,
    num_layers: usize,
    window: Option<usize>,
) -> Result<Vec<LayerAttention>, WeightsError> {
    if window.is_none() {
        return Ok(vec![LayerAttention::Full; num_layers]);
    }
    if let Some(names) = settings.json_field("layer_types") {
        let key = Key::huggingface("layer_types");
        let names = names.as_array().filter(|names| names.len() == num_layers);
        let names = names.ok_or_else(|| {
            settings.bad(key, &format!("a list of {num_layers} names"), "another value")
        })?;
        return names
            .iter()
            .map(|name| match name.as_str() {
                Some("full_attention") => Ok(LayerAttention::Full),
                Some("sliding_attention") => Ok(LayerAttention::Sliding),
                _ => Err(settings.unsupported(
                    key,
                    &name.to_string(),
                    "full_attention, sliding_attention",
                )),
            })
            .collect();
    }
    let pattern = Key::new("sliding_window_pattern", "attention.sliding_window_pattern");
    let pattern = match settings.count(pattern, MOST_LAYERS)? {
        None => settings.count(Key::huggingface("_sliding_window_pattern"), MOST_LAYERS)?,
        given => given,
    };
    let first_sliding = settings.integer(Key::huggingface("max_window_layers"))?;
    Ok((0..num_layers)
        .map(|layer| family.sliding.of_layer(layer, pattern, first_sliding))
        .collect())
}

fn has_bias(
    settings: &Settings<'_>,
    json: &'static str,
    tensor: &str,
    always: bool,
) -> Result<bool, WeightsError> {
    match settings.gguf() {
        Some(gguf) => Ok(gguf.info(tensor).is_some()),
        None => Ok(settings.boolean(json)?.unwrap_or(false) || always),
    }
}

fn read_activation(settings: &Settings<'_>, family: &Family) -> Result<Activation, WeightsError> {
    for key in ["hidden_activation", "hidden_act"] {
        if let Some(name) = settings.text(key)? {
            return match name {
                "silu" | "swish" => Ok(Activation::Silu),
                "gelu" => Ok(Activation::Gelu),
                "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
                other => Err(settings.unsupported(
                    Key::huggingface(key),
                    other,
                    "silu, gelu, gelu_pytorch_tanh",
                )),
            };
        }
    }
    Ok(family.activation)
}

fn read_dtype(settings: &Settings<'_>) -> Result<Option<Format>, WeightsError> {
    let name = match settings.text("dtype")? {
        None => settings.text("torch_dtype")?,
        given => given,
    };
    // Informative only: each tensor says what it is stored as.
    Ok(name.and_then(|name| match name {
        "float32" => Some(Format::F32),
        "float16" => Some(Format::F16),
        "bfloat16" => Some(Format::BF16),
        _ => None,
    }))
}

fn distinct(ids: Vec<u32>) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::with_capacity(ids.len());
    for id in ids {
        if !kept.contains(&id) {
            kept.push(id);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
