use crate::tile::isa::Isa;
use crate::tile::quantize_row_tile;
use crate::tile::testing::{OnIsa, Random, on_every_level};

/// Planes of int8 activations.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planes {
    pub(super) q: Vec<i8>,
    pub(super) scale: Vec<f32>,
    pub(super) sum: Vec<f32>,
}

struct Quantize<'a>(&'a [f32]);

impl OnIsa for Quantize<'_> {
    type Output = Planes;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Planes {
        let n = self.0.len();
        let mut out = Planes { q: vec![99; n], scale: vec![0.0; n / 32], sum: vec![0.0; n / 32] };
        for at in (0..n).step_by(64) {
            // SAFETY: `load_f32_n` and the primitive stay within the first `n - at` values.
            unsafe {
                let left = (n - at) as i32;
                let mut x = [I::splat_f(f32::NAN); 4];
                for (v, x) in x.iter_mut().enumerate() {
                    let piece = self.0.as_ptr().wrapping_add(at + 16 * v);
                    *x = I::load_f32_n(piece, left - 16 * v as i32, I::splat_f(f32::NAN));
                }
                quantize_row_tile::<I, 4>(
                    &x,
                    out.q.as_mut_ptr().add(at),
                    out.scale.as_mut_ptr().add(at / 32),
                    out.sum.as_mut_ptr().add(at / 32),
                    left,
                );
            }
        }
        out
    }
}

/// The definition, in scalar Rust.
pub(super) fn quantize(x: &[f32]) -> Planes {
    let mut out = Planes { q: vec![], scale: vec![], sum: vec![] };
    for block in x.chunks_exact(32) {
        let amplitude = block.iter().fold(0f32, |a, x| a.max(x.abs()));
        let inverse = if amplitude > 0.0 { 127.0 / amplitude } else { 0.0 };
        let q: Vec<i8> = block.iter().map(|x| (x * inverse).round_ties_even() as i8).collect();
        let scale = amplitude / 127.0;
        out.scale.push(scale);
        out.sum.push(scale * q.iter().map(|q| i32::from(*q)).sum::<i32>() as f32);
        out.q.extend(q);
    }
    out
}

#[test]
fn blocks_are_quantised_as_defined() {
    let mut random = Random(1);
    let mut x = random.values(416, 1.0);
    x[..32].fill(0.0);
    x[32..64].fill(-3.0);
    x[64] = 1000.0;
    let expected = quantize(&x);
    assert_eq!(expected.q[32], -127);
    for (level, found) in on_every_level(&Quantize(&x)) {
        assert_eq!(found, expected, "{level}");
    }
}

#[test]
fn denormal_blocks_become_zero() {
    let x = [1e-42f32; 32];
    for (level, found) in on_every_level(&Quantize(&x)) {
        assert_eq!(found.q, [0; 32], "{level}");
        assert_eq!((found.scale[0], found.sum[0]), (0.0, 0.0), "{level}");
    }
}
