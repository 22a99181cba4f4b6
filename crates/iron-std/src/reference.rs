//! References shared by several kernels: random weights in storage formats, and their exact decoding.

use iron_core::Format;

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

/// Random weights in a file's layout: any bits for the codes, sensible scales.
pub fn random_weights(random: &mut Random, format: Format, elements: usize) -> Vec<u8> {
    let blocks = elements / format.block();
    let mut bytes = Vec::with_capacity(blocks * format.block_bytes());
    for _ in 0..blocks {
        let start = bytes.len();
        bytes.extend((0..format.block_bytes()).map(|_| random.bits() as u8));
        let block = &mut bytes[start..];
        let mut scale = |at: usize, magnitude: f32, random: &mut Random| {
            let bits = f16_bits(magnitude * (0.5 + random.unit().abs()));
            block[at..at + 2].copy_from_slice(&bits.to_le_bytes());
        };
        match format {
            Format::F32 => block.copy_from_slice(&random.unit().to_le_bytes()),
            Format::F16 => {
                let bits = f16_bits(random.unit());
                block.copy_from_slice(&bits.to_le_bytes());
            }
            Format::BF16 => {
                let bits = (random.unit().to_bits() >> 16) as u16;
                block.copy_from_slice(&bits.to_le_bytes());
            }
            Format::Q8_0 => scale(0, 0.01, random),
            Format::Q4_0 => scale(0, 0.1, random),
            Format::Q4_1 => {
                scale(0, 0.1, random);
                scale(2, -0.5, random);
            }
            Format::Q4K => {
                scale(0, 0.003, random);
                scale(2, 0.02, random);
            }
            Format::Q6K => scale(208, 0.0005, random),
        }
    }
    bytes
}

/// The exact values of weights in a file's layout, as ggml's reference decoders define them.
pub fn decode(format: Format, bytes: &[u8]) -> Vec<f64> {
    let half = |at: usize, block: &[u8]| {
        f64::from(f16_value(u16::from_le_bytes([block[at], block[at + 1]])))
    };
    let mut out = Vec::new();
    for block in bytes.chunks_exact(format.block_bytes()) {
        match format {
            Format::F32 => {
                out.push(f64::from(f32::from_le_bytes([block[0], block[1], block[2], block[3]])));
            }
            Format::F16 => out.push(half(0, block)),
            Format::BF16 => out.push(f64::from(f32::from_bits(
                u32::from(u16::from_le_bytes([block[0], block[1]])) << 16,
            ))),
            Format::Q8_0 => {
                out.extend(block[2..].iter().map(|q| f64::from(*q as i8) * half(0, block)));
            }
            Format::Q4_0 => {
                let code = |at: usize| f64::from(nibble(&block[2..], at)) - 8.0;
                out.extend((0..32).map(|at| code(at) * half(0, block)));
            }
            Format::Q4_1 => {
                out.extend((0..32).map(|at| {
                    f64::from(nibble(&block[4..], at)) * half(0, block) + half(2, block)
                }));
            }
            Format::Q4K => {
                for sub in 0..8 {
                    let (scale, minimum) = q4k_scale(&block[4..16], sub);
                    for at in 0..32 {
                        let byte = block[16 + sub / 2 * 32 + at];
                        let code = if sub % 2 == 0 { byte & 15 } else { byte >> 4 };
                        out.push(
                            half(0, block) * f64::from(scale) * f64::from(code)
                                - half(2, block) * f64::from(minimum),
                        );
                    }
                }
            }
            Format::Q6K => {
                for at in 0..256 {
                    let (part, lane) = (at / 128, at % 128);
                    let (quarter, column) = (lane / 32, lane % 32);
                    let low = block[part * 64 + (quarter % 2) * 32 + column];
                    let low = if quarter < 2 { low & 15 } else { low >> 4 };
                    let high = block[128 + part * 32 + column] >> (2 * quarter) & 3;
                    let code = i32::from(low | high << 4) - 32;
                    let scale = block[192 + at / 16] as i8;
                    out.push(half(208, block) * f64::from(scale) * f64::from(code));
                }
            }
        }
    }
    out
}

/// ggml's order: the low nibbles of 16 bytes, then the high ones.
fn nibble(codes: &[u8], at: usize) -> u8 {
    if at < 16 { codes[at] & 15 } else { codes[at - 16] >> 4 }
}

/// The 6-bit scale and minimum of a sub-block of `Q4_K`.
fn q4k_scale(packed: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (packed[sub] & 63, packed[sub + 4] & 63)
    } else {
        (
            packed[sub + 4] & 15 | packed[sub - 4] >> 6 << 4,
            packed[sub + 4] >> 4 | packed[sub] >> 6 << 4,
        )
    }
}

/// The value of half-precision bits.
pub fn f16_value(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f32::from(bits & 1023) / 1024.0;
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-14),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1.0 + fraction) * 2.0_f32.powi(exponent - 15),
    }
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
