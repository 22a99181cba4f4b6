//! Rotary position embeddings ([Su et al. 2021](https://arxiv.org/abs/2104.09864)).

use std::f64::consts::TAU;

use iron_kernels as kernels;
use iron_runtime::{Device, Tensor};

use super::Context;
use crate::Error;
use crate::weights::config::{RopeConfig, RopeLayout, RopeScaling};

/// Rotates queries and keys by their positions.
#[derive(Clone, Debug)]
pub struct Rope {
    inv_freq: Tensor,
    layout: RopeLayout,
    head_dim: usize,
}

impl Rope {
    /// The rotation that `config` describes for heads of width `head_dim`.
    pub fn new(device: &Device, config: &RopeConfig, head_dim: usize) -> Result<Self, Error> {
        let inv_freq = inverse_frequencies(config);
        let table = device.tensor(iron_runtime::DType::F32, &[inv_freq.len()])?;
        table.write(&inv_freq)?;
        Ok(Self { inv_freq: table, layout: config.layout, head_dim })
    }

    /// Rotates queries `[tokens, heads * head_dim]` and keys `[tokens, kv_heads * head_dim]` in place.
    pub fn forward(&self, cx: &Context<'_>, q: &Tensor, k: &Tensor) -> Result<(), Error> {
        let rotate = match self.layout {
            RopeLayout::HalfSplit => kernels::rope,
            RopeLayout::Interleaved => kernels::rope_interleaved,
        };
        let (q, k) = (q.split_axis(1, self.head_dim)?, k.split_axis(1, self.head_dim)?);
        cx.parallel(|commands| {
            rotate(commands, &q, &cx.batch.positions, &self.inv_freq, 1.0)?;
            rotate(commands, &k, &cx.batch.positions, &self.inv_freq, 1.0)
        })
    }
}

/// Radians per position of each pair.
fn inverse_frequencies(config: &RopeConfig) -> Vec<f32> {
    let pairs = config.dimensions / 2;
    let frequency = |pair: usize| config.theta.powf(-(pair as f64) / pairs as f64);
    (0..pairs).map(|pair| scaled(&config.scaling, frequency(pair), pair) as f32).collect()
}

fn scaled(scaling: &RopeScaling, frequency: f64, pair: usize) -> f64 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / f64::from(*factor),
        RopeScaling::Factors(factors) => frequency / f64::from(factors[pair]),
        // `_compute_llama3_parameters` of Hugging Face transformers.
        &RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            let [factor, low, high] = [factor, low_freq_factor, high_freq_factor].map(f64::from);
            let turns = original_max_position_embeddings as f64 * frequency / TAU;
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 - kept) * frequency / factor + kept * frequency
        }
    }
}

#[cfg(test)]
mod tests {
    use super::inverse_frequencies;
    use crate::weights::config::{RopeConfig, RopeLayout, RopeScaling};

    fn frequencies(scaling: RopeScaling) -> Vec<f32> {
        let layout = RopeLayout::HalfSplit;
        let (theta, local_theta, dimensions) = (500_000.0, None, 8);
        inverse_frequencies(&RopeConfig { theta, local_theta, scaling, dimensions, layout })
    }

    fn assert_close(found: &[f32], expected: &[f32]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
        }
        assert_eq!(found.len(), expected.len());
    }

    #[test]
    fn unscaled_frequencies_are_powers_of_theta() {
        let root = 500_000.0_f32.sqrt().recip();
        assert_close(&frequencies(RopeScaling::None), &[1.0, root.sqrt(), root, root.powf(1.5)]);
    }

    /// Expected values from `_compute_llama3_parameters` of transformers 4.57 with these settings.
    #[test]
    fn llama3_scaling_keeps_high_and_divides_low_frequencies() {
        let found = frequencies(RopeScaling::Llama3 {
            factor: 32.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        });
        let plain = frequencies(RopeScaling::None);
        let turns = 8192.0 * plain[2] / std::f32::consts::TAU;
        let smooth = (turns - 1.0) / 3.0;
        let blended = (1.0 - smooth) * plain[2] / 32.0 + smooth * plain[2];
        assert_close(&found, &[plain[0], plain[1], blended, plain[3] / 32.0]);
    }
}
