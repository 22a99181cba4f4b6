use half::{bf16, f16};

use crate::tile::isa::Isa;
use crate::tile::testing::{OnIsa, Random, on_every_level};
use crate::tile::{
    BF16, DENSE_CHUNK, DenseWeight, F16, F32, F32Rows, dot_dense, dot_dense_panel, load_dense_row,
};

struct Product<'a, T: DenseWeight, const M: usize, const G: usize, const PANEL: bool> {
    x: &'a [f32],
    w: &'a [T::Element],
    m: usize,
    n: usize,
    k: usize,
    split: usize,
}

impl<T: DenseWeight, const M: usize, const G: usize, const PANEL: bool> OnIsa
    for Product<'_, T, M, G, PANEL>
{
    type Output = Vec<f32>;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Vec<f32> {
        let (m, n, k) = (self.m, self.n, self.k);
        let mut out = vec![0.0; m * n];
        // SAFETY: the tiles' valid parts are within the tensors.
        unsafe {
            for row in (0..m).step_by(M) {
                let x = F32Rows { x: self.x[row * k..].as_ptr(), stride: k };
                let rows = (m - row) as i32;
                for col in (0..n).step_by(16 * G) {
                    let cols = (n - col) as i32;
                    let w = self.w[col * k..].as_ptr();
                    let out = out.as_mut_ptr().add(row * n + col);
                    let mut acc = [[I::splat_f(0.0); G]; M];
                    for k0 in (0..k).step_by(self.split) {
                        let kn = self.split.min(k - k0);
                        if PANEL {
                            let (rows, cols) = (rows.min(M as i32), cols.min(16 * G as i32));
                            dot_dense_panel::<I, T>(out, n, x, rows, w, k, cols, k0, kn);
                        } else {
                            dot_dense::<I, T, M, G>(&mut acc, x, rows, w, k, cols, k0, kn);
                        }
                    }
                    for (i, acc) in acc.iter().enumerate() {
                        for (g, lanes) in acc.iter().enumerate() {
                            if !PANEL && (i as i32) < rows {
                                let out = out.wrapping_add(i * n + 16 * g);
                                I::store_f32_n(out, *lanes, cols - 16 * g as i32);
                            }
                        }
                    }
                }
            }
        }
        out
    }
}

fn check<T: DenseWeight>(narrow: impl Fn(f32) -> (T::Element, f32), m: usize, n: usize, k: usize) {
    let mut random = Random(11);
    let x = random.values(m * k, 1.0);
    let (w, weights): (Vec<_>, Vec<_>) =
        random.values(n * k, 1.0).into_iter().map(narrow).collect();
    // The definition: lanes fold by fma within chunks, then a tree of halves.
    let mut expected = vec![0f32; m * n];
    for i in 0..m {
        for j in 0..n {
            for first in (0..k).step_by(DENSE_CHUNK) {
                let mut lanes = vec![0f32; 16];
                for p in first..k.min(first + DENSE_CHUNK) {
                    let lane = &mut lanes[(p - first) % 16];
                    *lane = x[i * k + p].mul_add(weights[j * k + p], *lane);
                }
                while lanes.len() > 1 {
                    let (low, high) = lanes.split_at(lanes.len() / 2);
                    lanes = low.iter().zip(high).map(|(a, b)| a + b).collect();
                }
                expected[i * n + j] += lanes[0];
            }
        }
    }
    macro_rules! compare {
        ($m:literal, $g:literal, $split:expr, $panel:literal) => {{
            let product = Product::<T, $m, $g, $panel> { x: &x, w: &w, m, n, k, split: $split };
            for (level, found) in on_every_level(&product) {
                assert!(
                    found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{m}x{n}x{k} tile {}x{} panel {} on {level} differs in bits",
                    $m,
                    $g,
                    $panel
                );
            }
        }};
    }
    compare!(1, 1, k, false);
    compare!(4, 2, k, false);
    compare!(16, 5, k, true);
    compare!(16, 5, DENSE_CHUNK, true);
}

fn f16_of(x: f32) -> (u16, f32) {
    let half = f16::from_f32(x);
    (half.to_bits(), half.to_f32())
}

fn bf16_of(x: f32) -> (u16, f32) {
    let half = bf16::from_f32(x);
    (half.to_bits(), half.to_f32())
}

#[test]
fn every_tile_equals_the_chunked_fold_bit_for_bit() {
    for (m, n, k) in [(1, 16, 64), (5, 37, 577), (13, 70, 1100), (3, 5, 15)] {
        check::<F32>(|x| (x, x), m, n, k);
        check::<F16>(f16_of, m, n, k);
        check::<BF16>(bf16_of, m, n, k);
    }
}

struct Row<'a> {
    w: &'a [u16],
    n: i32,
}

impl OnIsa for Row<'_> {
    type Output = [f32; 32];
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> [f32; 32] {
        let mut out = [0.0; 32];
        // SAFETY: row 2 from column 3 has the `n` values that are read.
        unsafe {
            let piece = load_dense_row::<I, BF16, 2>(self.w.as_ptr(), 2, 20, 3, self.n);
            I::store_f32(out.as_mut_ptr(), piece[0]);
            I::store_f32(out.as_mut_ptr().add(16), piece[1]);
        }
        out
    }
}

#[test]
fn dense_row_pieces_end_in_zeros() {
    let values: Vec<(u16, f32)> = Random(2).values(60, 1.0).into_iter().map(bf16_of).collect();
    let w: Vec<u16> = values.iter().map(|v| v.0).collect();
    for (level, found) in on_every_level(&Row { w: &w, n: 17 }) {
        for (i, found) in found.into_iter().enumerate() {
            let expected = if i < 17 { values[43 + i].1 } else { 0.0 };
            assert_eq!(found, expected, "{level} {i}");
        }
    }
}
