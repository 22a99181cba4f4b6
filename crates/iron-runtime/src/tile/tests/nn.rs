use half::f16;

use crate::tile::isa::Isa;
use crate::tile::testing::{OnIsa, Random, on_every_level};
use crate::tile::{F16, dot_nn};

struct Attention<'a> {
    a: &'a [f32],
    b: &'a [u16],
    m: usize,
    k: usize,
}

const N: usize = 112;
/// Columns that exist: no multiple of a vector.
const VALID: usize = 105;

impl OnIsa for Attention<'_> {
    type Output = Vec<f32>;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Vec<f32> {
        let mut acc = vec![1.5; self.m * N];
        // SAFETY: the operands have these shapes.
        unsafe {
            dot_nn::<I, F16>(
                acc.as_mut_ptr(),
                N,
                self.a.as_ptr(),
                self.k,
                self.b.as_ptr(),
                N,
                self.m as i32,
                self.k as i32,
                VALID as i32,
            );
        }
        acc
    }
}

#[test]
fn rows_are_fma_folds_whatever_their_number() {
    let mut random = Random(9);
    for (m, k) in [(1, 7), (2, 64), (7, 33), (13, 5), (16, 40), (3, 0)] {
        let a = random.values(m * k, 1.0);
        let b: Vec<u16> =
            random.values(k * N, 1.0).iter().map(|x| f16::from_f32(*x).to_bits()).collect();
        for (level, found) in on_every_level(&Attention { a: &a, b: &b, m, k }) {
            for i in 0..m {
                for j in 0..N {
                    let mut expected = 1.5f32;
                    for p in (0..k).filter(|_| j < VALID) {
                        expected =
                            a[i * k + p].mul_add(f16::from_bits(b[p * N + j]).to_f32(), expected);
                    }
                    assert_eq!(found[i * N + j].to_bits(), expected.to_bits(), "{level} {i} {j}");
                }
            }
        }
    }
}
