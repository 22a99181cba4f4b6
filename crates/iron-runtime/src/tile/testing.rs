//! Running one generic test body on every instruction set of this machine.

use iron_core::{Format, dequantize};
use iron_std::reference;

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

/// Storage bytes of random weights, and what they stand for.
pub(super) fn random_weights(format: Format, n: usize, k: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let storage = reference::random_weights(&mut reference::Random(seed), format, n * k);
    let mut values = vec![0.0; n * k];
    dequantize(format, &storage, &mut values);
    (storage, values)
}
