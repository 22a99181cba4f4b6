//! Random GGUF blocks and what ggml decodes them to, written after `ggml-quants.c` loop by loop.

use half::f16;
use iron_core::Format;

use super::{Random, bytes};

/// `rows` rows of `k` weights: their bytes in `format`, and their values.
pub fn weights(format: Format, rows: usize, k: usize, random: &mut Random) -> (Vec<u8>, Vec<f64>) {
    if let Some(dtype) = dense(format) {
        let stored = bytes(&random.floats(rows * k), dtype);
        let values = super::floats(&stored, dtype).into_iter().map(f64::from).collect();
        return (stored, values);
    }
    let blocks = rows * k / format.block();
    let mut stored = Vec::new();
    let mut values = Vec::new();
    for _ in 0..blocks {
        let mut block: Vec<u8> =
            (0..format.block_bytes()).map(|_| (random.next() >> 13) as u8).collect();
        // Scales of a magnitude that keeps products near 1.
        let mut scale = |at: usize, size: f32| {
            let value = f16::from_f32(random.float() * size);
            block[at..at + 2].copy_from_slice(&value.to_bits().to_le_bytes());
        };
        match format {
            Format::Q8_0 => scale(0, 0.01),
            Format::Q4_0 => scale(0, 0.1),
            Format::Q4_1 => {
                scale(0, 0.1);
                scale(2, 0.5);
            }
            Format::Q4K => {
                scale(0, 0.002);
                scale(2, 0.01);
            }
            Format::Q6K => scale(208, 0.0003),
            _ => unreachable!(),
        }
        values.extend(decode(format, &block));
        stored.extend(block);
    }
    (stored, values)
}

pub fn dense(format: Format) -> Option<iron_core::DType> {
    match format {
        Format::F32 => Some(iron_core::DType::F32),
        Format::F16 => Some(iron_core::DType::F16),
        Format::BF16 => Some(iron_core::DType::BF16),
        _ => None,
    }
}

fn half_at(b: &[u8], at: usize) -> f64 {
    f64::from(f16::from_bits(u16::from_le_bytes([b[at], b[at + 1]])))
}

pub fn decode(format: Format, b: &[u8]) -> Vec<f64> {
    let mut y = Vec::new();
    match format {
        Format::Q8_0 => y.extend((0..32).map(|i| half_at(b, 0) * f64::from(b[2 + i] as i8))),
        Format::Q4_0 => {
            let d = half_at(b, 0);
            y.extend((0..16).map(|i| d * (f64::from(b[2 + i] & 15) - 8.0)));
            y.extend((0..16).map(|i| d * (f64::from(b[2 + i] >> 4) - 8.0)));
        }
        Format::Q4_1 => {
            let (d, m) = (half_at(b, 0), half_at(b, 2));
            y.extend((0..16).map(|i| d * f64::from(b[4 + i] & 15) + m));
            y.extend((0..16).map(|i| d * f64::from(b[4 + i] >> 4) + m));
        }
        Format::Q4K => {
            let (d, min) = (half_at(b, 0), half_at(b, 2));
            let scales = &b[4..16];
            let scale_min = |j: usize| {
                if j < 4 {
                    (scales[j] & 63, scales[j + 4] & 63)
                } else {
                    (
                        (scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4),
                        (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4),
                    )
                }
            };
            for pair in 0..4 {
                let q = &b[16 + 32 * pair..48 + 32 * pair];
                let (sc, m) = scale_min(2 * pair);
                y.extend(
                    q.iter().map(|q| d * f64::from(sc) * f64::from(q & 15) - min * f64::from(m)),
                );
                let (sc, m) = scale_min(2 * pair + 1);
                y.extend(
                    q.iter().map(|q| d * f64::from(sc) * f64::from(q >> 4) - min * f64::from(m)),
                );
            }
        }
        Format::Q6K => {
            let d = half_at(b, 208);
            y.resize(256, 0.0);
            for half in 0..2 {
                let (ql, qh, sc) = (&b[64 * half..], &b[128 + 32 * half..], &b[192 + 8 * half..]);
                let out = &mut y[128 * half..128 * half + 128];
                for l in 0..32 {
                    let is = l / 16;
                    let q = [
                        (ql[l] & 15) | ((qh[l] & 3) << 4),
                        (ql[l + 32] & 15) | (((qh[l] >> 2) & 3) << 4),
                        (ql[l] >> 4) | (((qh[l] >> 4) & 3) << 4),
                        (ql[l + 32] >> 4) | (((qh[l] >> 6) & 3) << 4),
                    ];
                    for (part, q) in q.into_iter().enumerate() {
                        out[l + 32 * part] =
                            d * f64::from(sc[is + 2 * part] as i8) * (f64::from(q) - 32.0);
                    }
                }
            }
        }
        _ => unreachable!(),
    }
    y
}
