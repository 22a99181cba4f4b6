use super::quantize::{Planes, quantize};
use crate::tile::isa::Isa;
use crate::tile::testing::{OnIsa, Random, on_every_level, random_weights};
use crate::tile::{
    Int8Rows, PackedFormat, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, dot_int8,
    dot_int8_panel, pack_rows, packed_bytes, row_groups,
};

/// A product of `m` rows with an `(n, k)` tensor, in register tiles of M x 16G, splitting k every `split`.
struct Product<'a, W, const M: usize, const G: usize> {
    x: &'a Planes,
    packed: &'a [u8],
    m: usize,
    n: usize,
    k: usize,
    split: usize,
    format: W,
}

impl<W, const M: usize, const G: usize> Product<'_, W, M, G> {
    fn rows(&self, first: usize) -> Int8Rows {
        Int8Rows {
            q: self.x.q[first * self.k..].as_ptr(),
            scale: self.x.scale[first * self.k / 32..].as_ptr(),
            sum: self.x.sum[first * self.k / 32..].as_ptr(),
            q_stride: self.k,
            block_stride: self.k / 32,
        }
    }
}

impl<W: PackedFormat, const M: usize, const G: usize> OnIsa for Product<'_, W, M, G> {
    type Output = Vec<f32>;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Vec<f32> {
        let _ = self.format;
        let mut out = vec![0.0; self.m * self.n];
        for row in (0..self.m).step_by(M) {
            for col in (0..self.n).step_by(16 * G) {
                // SAFETY: the tile's valid part is within the tensors.
                unsafe {
                    let (rows, cols) = ((self.m - row) as i32, (self.n - col) as i32);
                    let mut acc = [[I::splat_f(0.0); G]; M];
                    for k0 in (0..self.k).step_by(self.split) {
                        let kn = self.split.min(self.k - k0);
                        dot_int8::<I, W, M, G>(
                            &mut acc,
                            self.rows(row),
                            rows,
                            self.packed.as_ptr(),
                            col / 16,
                            cols,
                            self.k,
                            k0,
                            kn,
                        );
                    }
                    for (i, acc) in acc.iter().enumerate() {
                        for (g, lanes) in acc.iter().enumerate() {
                            if row + i < self.m {
                                let at = (row + i) * self.n + col + 16 * g;
                                let out = out.as_mut_ptr().wrapping_add(at);
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

/// The same by panels of at most 24 x 80, with BK of `split`.
struct PanelProduct<'a, W>(Product<'a, W, 1, 1>);

impl<W: PackedFormat> OnIsa for PanelProduct<'_, W> {
    type Output = Vec<f32>;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Vec<f32> {
        let p = &self.0;
        let mut out = vec![0.0; p.m * p.n];
        for row in (0..p.m).step_by(24) {
            for col in (0..p.n).step_by(80) {
                let (rows, cols) = ((p.m - row).min(24), (p.n - col).min(80));
                let mut acc = [0.0f32; 24 * 80];
                for k0 in (0..p.k).step_by(p.split) {
                    let kn = p.split.min(p.k - k0);
                    // SAFETY: the tile's valid part is within the tensors.
                    unsafe {
                        dot_int8_panel::<I, W>(
                            acc.as_mut_ptr(),
                            80,
                            p.rows(row),
                            rows as i32,
                            p.packed.as_ptr(),
                            col / 16,
                            cols as i32,
                            p.k,
                            k0,
                            kn,
                        );
                    }
                }
                for i in 0..rows {
                    out[(row + i) * p.n + col..][..cols].copy_from_slice(&acc[80 * i..][..cols]);
                }
            }
        }
        out
    }
}

pub(super) fn packed<W: PackedFormat>(storage: &[u8], n: usize, k: usize) -> Vec<u8> {
    let mut packed = vec![0; packed_bytes(W::FORMAT, n, k).unwrap()];
    pack_rows(W::FORMAT, storage, n, k, 0..row_groups(n), &mut packed).unwrap();
    packed
}

fn check<W: PackedFormat>(format: W, m: usize, n: usize, k: usize) {
    let mut random = Random(11);
    let x: Vec<f32> = (0..m * k).map(|_| random.unit() * 3.0).collect();
    let x = quantize(&x);
    let (storage, weights) = random_weights(W::FORMAT, n, k, 17);
    let packed = packed::<W>(&storage, n, k);
    let mut exact = vec![0f64; m * n];
    for i in 0..m {
        for j in 0..n {
            exact[i * n + j] = (0..k)
                .map(|p| {
                    let x = f64::from(x.q[i * k + p]) * f64::from(x.scale[(i * k + p) / 32]);
                    x * f64::from(weights[j * k + p])
                })
                .sum();
        }
    }
    let rms = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();

    let mut first: Option<Vec<f32>> = None;
    let mut compare = |what: &str, results: Vec<(crate::IsaLevel, Vec<f32>)>| {
        for (level, found) in results {
            let first = first.get_or_insert_with(|| {
                for (found, exact) in found.iter().zip(&exact) {
                    let error = (f64::from(*found) - exact).abs() / rms;
                    assert!(error < 2e-6, "{} {what}: {found} for {exact}", W::FORMAT);
                }
                found.clone()
            });
            assert!(
                found.iter().zip(&*first).all(|(a, b)| a.to_bits() == b.to_bits()),
                "{} {m}x{n}x{k} {what} on {level} differs in bits",
                W::FORMAT
            );
        }
    };
    macro_rules! tile {
        ($m:literal, $g:literal, $split:expr) => {{
            let product =
                Product::<W, $m, $g> { x: &x, packed: &packed, m, n, k, split: $split, format };
            compare(concat!($m, "x", $g), on_every_level(&product));
        }};
    }
    tile!(1, 1, k);
    tile!(1, 1, W::UNIT);
    tile!(3, 2, 256);
    tile!(4, 1, k);
    for split in [k, 256, W::UNIT] {
        let product = Product { x: &x, packed: &packed, m, n, k, split, format };
        compare("panel", on_every_level(&PanelProduct(product)));
    }
}

#[test]
fn every_tile_and_split_gives_the_same_bits_near_the_exact_product() {
    for (m, n) in [(1, 16), (5, 37), (30, 100)] {
        for k in [64, 96, 576, 1024] {
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
