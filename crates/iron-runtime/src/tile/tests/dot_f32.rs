use super::dot_int8::packed;
use crate::tile::isa::Isa;
use crate::tile::testing::{OnIsa, Random, on_every_level, random_weights};
use crate::tile::{
    F32Rows, PackedFormat, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, dot_f32_packed,
    dot_f32_packed_panel,
};

struct Product<'a, W, const M: usize, const G: usize, const PANEL: bool> {
    x: &'a [f32],
    packed: &'a [u8],
    m: usize,
    n: usize,
    k: usize,
    split: usize,
    format: W,
}

impl<W: PackedFormat, const M: usize, const G: usize, const PANEL: bool> OnIsa
    for Product<'_, W, M, G, PANEL>
{
    type Output = Vec<f32>;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Vec<f32> {
        let _ = self.format;
        let (m, n, k) = (self.m, self.n, self.k);
        let ld = n.next_multiple_of(16);
        let mut out = vec![0.0; m * ld];
        let w = self.packed.as_ptr();
        // SAFETY: the tiles' valid parts are within the tensors.
        unsafe {
            for row in (0..m).step_by(M) {
                let x = F32Rows { x: self.x[row * k..].as_ptr(), stride: k };
                let rows = (m - row) as i32;
                for col in (0..n).step_by(16 * G) {
                    let cols = (n - col) as i32;
                    let out = out.as_mut_ptr().add(row * ld + col);
                    let mut acc = [[I::splat_f(0.0); G]; M];
                    for k0 in (0..k).step_by(self.split) {
                        let kn = self.split.min(k - k0);
                        if PANEL {
                            let (rows, cols) = (rows.min(M as i32), cols.min(16 * G as i32));
                            dot_f32_packed_panel::<I, W>(
                                out,
                                ld,
                                x,
                                rows,
                                w,
                                col / 16,
                                cols,
                                k,
                                k0,
                                kn,
                            );
                        } else {
                            dot_f32_packed::<I, W, M, G>(
                                &mut acc,
                                x,
                                rows,
                                w,
                                col / 16,
                                cols,
                                k,
                                k0,
                                kn,
                            );
                        }
                    }
                    for (i, acc) in acc.iter().enumerate() {
                        for (g, lanes) in acc.iter().enumerate() {
                            if !PANEL && (i as i32) < rows {
                                let out = out.wrapping_add(i * ld + 16 * g);
                                I::store_f32_n(out, *lanes, cols - 16 * g as i32);
                            }
                        }
                    }
                }
            }
        }
        (0..m).flat_map(|i| out[i * ld..][..n].to_vec()).collect()
    }
}

fn check<W: PackedFormat>(format: W, m: usize, n: usize, k: usize) {
    let x = Random(11).values(m * k, 1.0);
    let (storage, weights) = random_weights(W::FORMAT, n, k, 17);
    let packed = packed::<W>(&storage, n, k);
    let mut expected = vec![0f32; m * n];
    for i in 0..m {
        for j in 0..n {
            for p in 0..k {
                expected[i * n + j] = x[i * k + p].mul_add(weights[j * k + p], expected[i * n + j]);
            }
        }
    }
    macro_rules! compare {
        ($m:literal, $g:literal, $split:expr, $panel:literal) => {{
            let product = Product::<W, $m, $g, $panel> {
                x: &x,
                packed: &packed,
                m,
                n,
                k,
                split: $split,
                format,
            };
            for (level, found) in on_every_level(&product) {
                assert!(
                    found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{} {m}x{n}x{k} tile {}x{} panel {} on {level} differs in bits",
                    W::FORMAT,
                    $m,
                    $g,
                    $panel
                );
            }
        }};
    }
    compare!(1, 1, k, false);
    compare!(4, 2, 256, false);
    compare!(16, 5, k, true);
    compare!(16, 5, W::UNIT, true);
}

#[test]
fn every_tile_and_split_equals_the_dequantised_fma_fold_bit_for_bit() {
    for (m, n) in [(1, 16), (5, 37), (13, 100)] {
        for k in [96, 576] {
            check(Q8_0, m, n, k);
            check(Q4_0, m, n, k);
            check(Q4_1, m, n, k);
            check(Q5_0, m, n, k);
            check(Q5_1, m, n, k);
        }
        for k in [256, 768] {
            check(Q4K, m, n, k);
            check(Q2K, m, n, k);
            check(Q3K, m, n, k);
            check(Q5K, m, n, k);
            check(Q6K, m, n, k);
        }
    }
}
