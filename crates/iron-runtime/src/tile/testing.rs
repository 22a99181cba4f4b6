//! Running one generic test body on every instruction set of this machine.

use iron_core::{Format, dequantize};
pub(super) use iron_std::reference::Random;
use iron_std::reference::random_weights as random_storage;

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

/// Storage bytes of random weights, and what they stand for.
pub(super) fn random_weights(format: Format, n: usize, k: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let storage = random_storage(&mut Random(seed), format, n * k);
    let mut values = vec![0.0; n * k];
    dequantize(format, &storage, &mut values);
    (storage, values)
}
