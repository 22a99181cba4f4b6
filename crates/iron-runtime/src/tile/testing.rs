//! Running one generic test body on every instruction set of this machine.

use super::Portable;
use super::isa::Isa;
use crate::IsaLevel;

/// A test body that is generic over the instruction set. `run` must be `#[inline(always)]`.
pub(super) trait OnIsa {
    /// What the body computes.
    type Output;
    /// The body.
    unsafe fn run<I: Isa>(&self) -> Self::Output;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn avx512<B: OnIsa>(body: &B) -> B::Output {
    unsafe { body.run::<super::Avx512>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<B: OnIsa>(body: &B) -> B::Output {
    unsafe { body.run::<super::Avx2>() }
}

/// The body's results on every available level, the portable one last.
pub(super) fn on_every_level<B: OnIsa>(body: &B) -> Vec<(IsaLevel, B::Output)> {
    let mut out = vec![];
    for level in IsaLevel::ALL.into_iter().filter(|level| level.is_available()) {
        // SAFETY: the level is available; the body keeps the contracts of what it calls.
        let result = unsafe {
            match level {
                #[cfg(target_arch = "x86_64")]
                IsaLevel::Avx512 => avx512(body),
                #[cfg(target_arch = "x86_64")]
                IsaLevel::Avx2 => avx2(body),
                _ => body.run::<Portable>(),
            }
        };
        out.push((level, result));
    }
    out
}

/// A small deterministic generator (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform in -1..1.
    pub(super) fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(super) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}

/// Storage bytes of random weights with sensible scales, and the ggml reference's dequantisation of them.
pub(super) fn random_weights(format: iron_core::Format, n: usize, k: usize, seed: u64) -> Vec<u8> {
    use iron_core::Format;
    let mut random = Random(seed);
    let mut out = random.bytes(format.storage_bytes(n * k).unwrap());
    for block in out.chunks_exact_mut(format.block_bytes()) {
        let mut half = |at: usize, low: f32, high: f32| {
            let x = low + (high - low) * (random.float() * 0.5 + 0.5);
            block[at..at + 2].copy_from_slice(&half::f16::from_f32(x).to_le_bytes());
        };
        match format {
            Format::Q8_0 | Format::Q4_0 => half(0, -0.02, 0.02),
            Format::Q4_1 => {
                half(0, 0.005, 0.02);
                half(2, -0.1, 0.0);
            }
            Format::Q4K => {
                half(0, 0.0001, 0.0005);
                half(2, 0.0001, 0.002);
            }
            Format::Q6K => half(208, -0.0002, 0.0002),
            Format::F32 | Format::F16 | Format::BF16 => unreachable!(),
        }
    }
    out
}

/// Row-major dequantisation, written after ggml's `dequantize_row_*`.
pub(super) fn dequantize(format: iron_core::Format, storage: &[u8]) -> Vec<f32> {
    use iron_core::Format;
    let mut out = vec![];
    for block in storage.chunks_exact(format.block_bytes()) {
        let half = |at: usize| half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        match format {
            Format::Q8_0 => out.extend(block[2..].iter().map(|q| f32::from(*q as i8) * half(0))),
            Format::Q4_0 => {
                let q = &block[2..];
                out.extend(q.iter().map(|q| (f32::from(q & 15) - 8.0) * half(0)));
                out.extend(q.iter().map(|q| (f32::from(q >> 4) - 8.0) * half(0)));
            }
            Format::Q4_1 => {
                let q = &block[4..];
                out.extend(q.iter().map(|q| f32::from(q & 15) * half(0) + half(2)));
                out.extend(q.iter().map(|q| f32::from(q >> 4) * half(0) + half(2)));
            }
            Format::Q4K => {
                let s = &block[4..16];
                let six = |j: usize| {
                    if j < 4 {
                        (s[j] & 63, s[j + 4] & 63)
                    } else {
                        (
                            (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4),
                            (s[j + 4] >> 4) | ((s[j] >> 6) << 4),
                        )
                    }
                };
                for j in 0..8 {
                    let (scale, minimum) = six(j);
                    let (d, m) = (half(0) * f32::from(scale), half(2) * f32::from(minimum));
                    for l in 0..32 {
                        let q = block[16 + j / 2 * 32 + l];
                        let q = if j % 2 == 0 { q & 15 } else { q >> 4 };
                        out.push(d * f32::from(q) - m);
                    }
                }
            }
            Format::Q6K => {
                let mut values = [0.0; 256];
                for n in 0..2 {
                    let (ql, qh) = (&block[64 * n..], &block[128 + 32 * n..]);
                    let scales = &block[192 + 8 * n..];
                    for l in 0..32 {
                        let q = [
                            (ql[l] & 15) | ((qh[l] & 3) << 4),
                            (ql[l + 32] & 15) | (((qh[l] >> 2) & 3) << 4),
                            (ql[l] >> 4) | (((qh[l] >> 4) & 3) << 4),
                            (ql[l + 32] >> 4) | (((qh[l] >> 6) & 3) << 4),
                        ];
                        for (run, q) in q.into_iter().enumerate() {
                            let scale = f32::from(scales[l / 16 + 2 * run] as i8);
                            values[128 * n + 32 * run + l] =
                                half(208) * scale * (f32::from(q) - 32.0);
                        }
                    }
                }
                out.extend(values);
            }
            Format::F32 | Format::F16 | Format::BF16 => unreachable!(),
        }
    }
    out
}
