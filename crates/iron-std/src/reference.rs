//! References shared by several kernels: random weights in storage formats, and their exact decoding.

use iron_core::{Format, Scale, dequantize};

/// A small deterministic generator (SplitMix64), so that tests need no crate and no seed files.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `[-1, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    /// `count` values uniform in `[-scale, scale)`.
    pub fn values(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| self.unit() * scale).collect()
    }

    /// Uniform below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }
}

/// Random weights in a file's layout: any bits for the codes, and scales that make values of about -1 to 1.
pub fn random_weights(random: &mut Random, format: Format, elements: usize) -> Vec<u8> {
    let Some(packing) = format.packing() else { return random_floats(random, format, elements) };
    let largest_code = f32::from((1_u16 << packing.bits) - 1);
    let largest_scale = match packing.scale {
        Scale::Half => 1.0,
        Scale::TwoLevel { bits, signed } => f32::from((1_u16 << (bits - u8::from(signed))) - 1),
    };
    // A minimum under two levels is subtracted, one of a half is added.
    let minimum = if packing.scale == Scale::Half { -0.5 } else { 0.5 / largest_scale };
    let magnitudes = [1.0 / (largest_code * largest_scale), minimum];
    let mut bytes: Vec<u8> = (0..elements / format.block() * format.block_bytes())
        .map(|_| random.bits() as u8)
        .collect();
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for (at, magnitude) in packing.halves.iter().zip(magnitudes) {
            let bits = f16_bits(magnitude * (0.5 + random.unit().abs()));
            block[*at..at + 2].copy_from_slice(&bits.to_le_bytes());
        }
    }
    bytes
}

/// Random plain floats.
fn random_floats(random: &mut Random, format: Format, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * format.block_bytes());
    for _ in 0..count {
        let value = random.unit();
        match format {
            Format::F16 => bytes.extend(f16_bits(value).to_le_bytes()),
            Format::BF16 => bytes.extend(&value.to_le_bytes()[2..]),
            _ => bytes.extend(value.to_le_bytes()),
        }
    }
    bytes
}

/// The values of weights in a file's layout, as ggml's reference decoders define them.
pub fn decode(format: Format, bytes: &[u8]) -> Vec<f64> {
    let mut values = vec![0.0; bytes.len() / format.block_bytes() * format.block()];
    dequantize(format, bytes, &mut values);
    values.into_iter().map(f64::from).collect()
}

/// Half-precision bits near a value of moderate size: rounds towards zero, which is enough for test data.
pub fn f16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 255) as i32 - 127 + 15;
    let sign = (bits >> 16 & 0x8000) as u16;
    if exponent <= 0 {
        sign
    } else {
        sign | (exponent.min(30) as u16) << 10 | (bits >> 13 & 1023) as u16
    }
}
