//! What a family's configuration leaves unsaid.

use super::settings::{Key, Settings};
use super::{Activation, LayerAttention, RopeLayout};
use crate::weights::WeightsError;

/// The defaults of one architecture. A family that the models module implements has its row here.
#[derive(Debug)]
pub(super) struct Family {
    /// Hugging Face's `model_type`.
    pub(super) model_type: &'static str,
    /// llama.cpp's `general.architecture`.
    gguf: Option<&'static str>,
    /// How llama.cpp's converter leaves the rows of the query and key projections. Hugging Face is half-split always.
    pub(super) gguf_rope: RopeLayout,
    /// What a norm adds to its weight in Hugging Face's checkpoints.
    pub(super) norm_offset: f32,
    /// Whether `tie_word_embeddings` is true when `config.json` does not say.
    pub(super) tied_by_default: bool,
    /// Whether query, key and value projections have biases though `config.json` never says so.
    pub(super) qkv_bias: bool,
    /// The activation when `config.json` does not say, and of every GGUF file.
    pub(super) activation: Activation,
    /// Which layers see a window only, when there is one.
    pub(super) sliding: SlidingLayers,
    /// Whether `query_pre_attn_scalar` sets the attention's scale.
    pub(super) has_query_scalar: bool,
    /// The rotary base when `config.json` does not say.
    pub(super) theta: f64,
    /// The rotary base of windowed layers, when it differs from the others'.
    pub(super) local_theta: Option<f64>,
}

/// Which layers of a family are windowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlidingLayers {
    /// None, whatever the configuration says: the reference implementation does not read it.
    Never,
    /// All of them.
    All,
    /// Those from `max_window_layers` on, or from this one, in models that say `use_sliding_window`.
    FromMaxWindowLayers(u64),
    /// All but every n-th one, where n is this unless the configuration says another.
    AllButEvery(usize),
}

const LLAMA: Family = Family {
    model_type: "llama",
    gguf: Some("llama"),
    gguf_rope: RopeLayout::Interleaved,
    norm_offset: 0.0,
    tied_by_default: false,
    qkv_bias: false,
    activation: Activation::Silu,
    sliding: SlidingLayers::Never,
    has_query_scalar: false,
    theta: 10_000.0,
    local_theta: None,
};

const FAMILIES: [Family; 5] = [
    LLAMA,
    Family { model_type: "mistral", gguf: None, sliding: SlidingLayers::All, ..LLAMA },
    Family {
        model_type: "qwen2",
        gguf: Some("qwen2"),
        gguf_rope: RopeLayout::HalfSplit,
        qkv_bias: true,
        sliding: SlidingLayers::FromMaxWindowLayers(28),
        ..LLAMA
    },
    Family {
        model_type: "qwen3",
        gguf: Some("qwen3"),
        gguf_rope: RopeLayout::HalfSplit,
        sliding: SlidingLayers::FromMaxWindowLayers(28),
        ..LLAMA
    },
    Family {
        model_type: "gemma3_text",
        gguf: Some("gemma3"),
        gguf_rope: RopeLayout::HalfSplit,
        norm_offset: 1.0,
        tied_by_default: true,
        activation: Activation::GeluTanh,
        sliding: SlidingLayers::AllButEvery(6),
        has_query_scalar: true,
        theta: 1_000_000.0,
        local_theta: Some(10_000.0),
        ..LLAMA
    },
];

impl Family {
    /// The family that `settings` name.
    pub(super) fn of(settings: &Settings<'_>) -> Result<&'static Self, WeightsError> {
        let huggingface = Key::huggingface("model_type");
        let (key, name) = match (settings.architecture(), settings.text("model_type")?) {
            (Some(architecture), _) => (Key::gguf_absolute("general.architecture"), architecture),
            (None, Some(model_type)) => (huggingface, model_type),
            (None, None) => return Err(settings.missing(huggingface, "text")),
        };
        let is_gguf = settings.gguf().is_some();
        let name_of = |family: &Family| if is_gguf { family.gguf } else { Some(family.model_type) };
        FAMILIES.iter().find(|family| name_of(family) == Some(name)).ok_or_else(|| {
            let known: Vec<&str> = FAMILIES.iter().filter_map(name_of).collect();
            settings.unsupported(key, name, &known.join(", "))
        })
    }
}

impl SlidingLayers {
    /// Whether a window counts, given what `config.json` says of `use_sliding_window`.
    pub(super) fn is_used(self, said: Option<bool>) -> bool {
        match self {
            Self::Never => false,
            Self::All | Self::AllButEvery(_) => true,
            Self::FromMaxWindowLayers(_) => said.unwrap_or(false),
        }
    }

    /// What `layer` sees in a model that has a window.
    pub(super) fn of_layer(
        self,
        layer: usize,
        pattern: Option<usize>,
        first_sliding: Option<u64>,
    ) -> LayerAttention {
        let sliding = match self {
            Self::Never => false,
            Self::All => true,
            Self::FromMaxWindowLayers(usual) => layer as u64 >= first_sliding.unwrap_or(usual),
            Self::AllButEvery(usual) => !(layer + 1).is_multiple_of(pattern.unwrap_or(usual)),
        };
        if sliding { LayerAttention::Sliding } else { LayerAttention::Full }
    }
}
