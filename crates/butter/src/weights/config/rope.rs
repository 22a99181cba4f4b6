//! The rotary part of a configuration.

use serde_json::Value as Json;

use super::LayerAttention;
use super::families::Family;
use super::settings::{Key, Settings};
use crate::weights::WeightsError;

/// Rotary position embeddings ([RoFormer](https://arxiv.org/abs/2104.09864)).
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// The base of the frequencies.
    pub theta: f64,
    /// The base in sliding-window layers, where it differs; `scaling` does not apply to them then.
    pub local_theta: Option<f64>,
    /// How the frequencies are stretched for long contexts.
    pub scaling: RopeScaling,
    /// How many of a head's values are rotated, from the first: `head_dim` unless the rotation is partial. Even.
    pub dimensions: usize,
    /// Which values form a pair.
    pub layout: RopeLayout,
}

/// How frequencies are stretched for long contexts.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies are divided by `factor`.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// Llama 3.1: low frequencies are divided by `factor`, high ones kept, and those between blended.
    Llama3 {
        /// The divisor of low frequencies.
        factor: f32,
        /// Wavelengths above `original / low_freq_factor` are low frequencies.
        low_freq_factor: f32,
        /// Wavelengths below `original / high_freq_factor` are high frequencies.
        high_freq_factor: f32,
        /// The context before stretching.
        original_max_position_embeddings: usize,
    },
    /// Each frequency is divided by its factor, `[dimensions / 2]`: how GGUF files carry the Llama 3.1 rule
    /// (`rope_freqs.weight`).
    Factors(Vec<f32>),
}

/// Which two values of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// `(i, i + dimensions / 2)`: Hugging Face's layout, llama.cpp's `NEOX`.
    HalfSplit,
    /// `(2i, 2i + 1)`: the original layout, llama.cpp's `NORM`. Its converter permutes the rows of the query and key
    /// projections of Llama-like models to it.
    Interleaved,
}

const THETA: Key = Key::new("rope_theta", "rope.freq_base");
const LOCAL_THETA: Key = Key::new("rope_local_base_freq", "rope.freq_base_swa");
const DIMENSIONS: Key = Key::gguf("rope.dimension_count");
const SCALING: Key = Key::new("rope_scaling", "rope.scaling.type");
const FACTOR: Key = Key::gguf("rope.scaling.factor");
const OLD_FACTOR: Key = Key::gguf("rope.scale_linear");
const ATTENTION_FACTOR: Key = Key::gguf("rope.scaling.attn_factor");
const PARAMETERS: Key = Key::huggingface("rope_parameters");
const PARTIAL: Key = Key::huggingface("partial_rotary_factor");
const SUPPORTED: &str = "default, linear, llama3";
/// llama.cpp's, for files that do not say.
const GGUF_THETA: f64 = 10_000.0;

impl RopeConfig {
    /// The rotation in layers that see `reach` of the past.
    #[must_use]
    pub fn in_layers(&self, reach: LayerAttention) -> Self {
        let all = Self { local_theta: None, ..self.clone() };
        match (reach, self.local_theta) {
            (LayerAttention::Sliding, Some(theta)) => {
                Self { theta, scaling: RopeScaling::None, ..all }
            }
            _ => all,
        }
    }

    pub(super) fn read(
        settings: &Settings<'_>,
        family: &Family,
        head_dim: usize,
    ) -> Result<Self, WeightsError> {
        let rope = match settings.gguf() {
            Some(_) => Self::from_gguf(settings, family, head_dim)?,
            None => Self::from_json(settings, family, head_dim)?,
        };
        for theta in [Some(rope.theta), rope.local_theta].into_iter().flatten() {
            if !(theta.is_finite() && theta >= 1.0) {
                return Err(settings.bad(THETA, "at least 1", theta));
            }
        }
        if rope.dimensions == 0 || rope.dimensions > head_dim || !rope.dimensions.is_multiple_of(2)
        {
            let key =
                if settings.gguf().is_some() { DIMENSIONS } else { Key::huggingface("head_dim") };
            let expected =
                format!("even and at most the head's width, {head_dim}, for the rotated part");
            return Err(settings.bad(key, &expected, rope.dimensions));
        }
        Ok(rope)
    }

    fn from_gguf(
        settings: &Settings<'_>,
        family: &Family,
        head_dim: usize,
    ) -> Result<Self, WeightsError> {
        let dimensions = settings.count(DIMENSIONS, head_dim as u64)?.unwrap_or(head_dim);
        Ok(Self {
            theta: settings.number(THETA)?.unwrap_or(GGUF_THETA),
            local_theta: family
                .local_theta
                .map_or(Ok(None), |usual| local_theta(settings, usual))?,
            scaling: gguf_scaling(settings, dimensions)?,
            dimensions,
            layout: family.gguf_rope,
        })
    }

    /// Transformers 4 has `rope_theta` and `rope_scaling`; transformers 5 puts both, and more, in `rope_parameters`,
    /// which has one object per kind of layer when they differ.
    fn from_json(
        settings: &Settings<'_>,
        family: &Family,
        head_dim: usize,
    ) -> Result<Self, WeightsError> {
        let parameters = settings.json_field("rope_parameters");
        let full = parameters.and_then(|object| object.get("full_attention")).or(parameters);
        let sliding = parameters.and_then(|object| object.get("sliding_attention"));
        let theta = match number_in(settings, full, "rope_theta")? {
            None => settings.number(THETA)?.unwrap_or(family.theta),
            Some(theta) => theta,
        };
        let local_theta = match (family.local_theta, number_in(settings, sliding, "rope_theta")?) {
            (None, None) => None,
            (_, Some(theta)) => Some(theta),
            (Some(usual), None) => local_theta(settings, usual)?,
        };
        if !matches!(json_scaling(settings, PARAMETERS, sliding)?, RopeScaling::None) {
            return Err(settings.unsupported(
                PARAMETERS,
                "scaling of sliding_attention",
                "default there",
            ));
        }
        let scaling = match full {
            Some(object) => json_scaling(settings, PARAMETERS, Some(object))?,
            None => json_scaling(settings, SCALING, settings.json_field("rope_scaling"))?,
        };
        let partial = match number_in(settings, full, "partial_rotary_factor")? {
            None => settings.number(PARTIAL)?.unwrap_or(1.0),
            Some(partial) => partial,
        };
        if !(partial > 0.0 && partial <= 1.0) {
            return Err(settings.bad(PARTIAL, "above 0 and at most 1", partial));
        }
        let dimensions = (head_dim as f64 * partial) as usize;
        Ok(Self { theta, local_theta, scaling, dimensions, layout: RopeLayout::HalfSplit })
    }
}

fn local_theta(settings: &Settings<'_>, usual: f64) -> Result<Option<f64>, WeightsError> {
    Ok(Some(settings.number(LOCAL_THETA)?.unwrap_or(usual)))
}

fn gguf_scaling(settings: &Settings<'_>, dimensions: usize) -> Result<RopeScaling, WeightsError> {
    if let Some(factor) =
        settings.number(ATTENTION_FACTOR)?.filter(|&factor| (factor - 1.0).abs() > 1e-6)
    {
        return Err(settings.unsupported(ATTENTION_FACTOR, &factor.to_string(), "1"));
    }
    let factor = match settings.positive(FACTOR)? {
        None => settings.positive(OLD_FACTOR)?,
        given => given,
    };
    let scaling = match (settings.gguf_text(SCALING)?, factor) {
        // llama.cpp reads a factor without a type as linear.
        (None | Some("linear"), Some(factor)) if (factor - 1.0).abs() > f32::EPSILON => {
            RopeScaling::Linear { factor }
        }
        (None | Some("none" | "linear"), _) => RopeScaling::None,
        (Some(other), _) => return Err(settings.unsupported(SCALING, other, "none, linear")),
    };
    let Some(gguf) = settings.gguf() else { return Ok(scaling) };
    if gguf.info("rope_freqs.weight").is_none() {
        return Ok(scaling);
    }
    let tensor = gguf.tensor("rope_freqs.weight")?;
    let bad = |expected: String, found: String| {
        WeightsError::bad_tensor(gguf.path(), "rope_freqs.weight", expected, found)
    };
    // Before decoding: the shape is the file's word, the width of a head is checked.
    if tensor.shape != [dimensions / 2] {
        return Err(bad(format!("shape [{}]", dimensions / 2), format!("{:?}", tensor.shape)));
    }
    let factors = tensor.to_f32();
    if !factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
        return Err(bad("positive factors".to_owned(), "others".to_owned()));
    }
    if scaling != RopeScaling::None {
        return Err(settings.unsupported(
            SCALING,
            "linear together with rope_freqs.weight",
            "one of the two",
        ));
    }
    Ok(RopeScaling::Factors(factors))
}

fn json_scaling(
    settings: &Settings<'_>,
    key: Key,
    object: Option<&Json>,
) -> Result<RopeScaling, WeightsError> {
    let Some(object) = object else { return Ok(RopeScaling::None) };
    if !object.is_object() {
        return Err(settings.bad(key, "an object", object));
    }
    let kind = object.get("rope_type").or(object.get("type")).filter(|kind| !kind.is_null());
    let kind = match kind {
        None => "default",
        Some(kind) => {
            kind.as_str().ok_or_else(|| settings.bad(key, "an object with a `rope_type`", kind))?
        }
    };
    let required = |name: &'static str| -> Result<f64, WeightsError> {
        let number = number_in(settings, Some(object), name)?.filter(|&number| number > 0.0);
        number.ok_or_else(|| {
            settings.bad(key, &format!("an object with a positive `{name}`"), "one without")
        })
    };
    match kind {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: required("factor")? as f32 }),
        "llama3" => {
            let (low, high) = (required("low_freq_factor")?, required("high_freq_factor")?);
            if low >= high {
                return Err(settings.bad(
                    key,
                    "low_freq_factor below high_freq_factor",
                    format!("{low} and {high}"),
                ));
            }
            let original = required("original_max_position_embeddings")?;
            if original > (1_u64 << 31) as f64 {
                return Err(settings.bad(
                    key,
                    "original_max_position_embeddings up to 2^31",
                    original,
                ));
            }
            Ok(RopeScaling::Llama3 {
                factor: required("factor")? as f32,
                low_freq_factor: low as f32,
                high_freq_factor: high as f32,
                original_max_position_embeddings: original as usize,
            })
        }
        other => Err(settings.unsupported(key, other, SUPPORTED)),
    }
}

/// A finite number in `object`.
fn number_in(
    settings: &Settings<'_>,
    object: Option<&Json>,
    name: &'static str,
) -> Result<Option<f64>, WeightsError> {
    let Some(value) = object.and_then(|object| object.get(name)).filter(|value| !value.is_null())
    else {
        return Ok(None);
    };
    let number = value.as_f64().filter(|number| number.is_finite());
    number.map(Some).ok_or_else(|| settings.bad(Key::huggingface(name), "a number", value))
}
