//! Dot products of f32 activations with plain float weights, used in place.
//!
//! k is folded in chunks of [`DENSE_CHUNK`] values counted from a call's `k0`. A chunk adds `tree(v)` to an output: `v` holds
//! 16 partial sums, lane `l` folding the products at `l`, `l + 16`, .. of the chunk by fma, and `tree` is
//! [`Isa::reduce_add_f`]. So both flavours and every register tile give the same bits, and so does every split of k into
//! calls at multiples of [`DENSE_CHUNK`].

use super::dot_f32::F32Rows;
use super::isa::Isa;
use super::outline::outlined;
use super::scratch::panel;

/// Values of k that are summed by lanes before the lanes are added up.
pub const DENSE_CHUNK: usize = 512;

/// The element type of a dense weight tensor.
pub trait DenseWeight: Copy + 'static {
    /// The stored element.
    type Element: Copy;
    /// Loads 16 elements.
    unsafe fn load<I: Isa>(ptr: *const Self::Element) -> I::F;
    /// Loads the first `n` of 16 elements, zeros after them.
    unsafe fn load_n<I: Isa>(ptr: *const Self::Element, n: i32) -> I::F;
}

/// 32-bit floats.
#[derive(Clone, Copy, Debug)]
pub struct F32;
/// Half-precision floats, as bits.
#[derive(Clone, Copy, Debug)]
pub struct F16;
/// bfloat16, as bits.
#[derive(Clone, Copy, Debug)]
pub struct BF16;

macro_rules! dense {
    ($($name:ident, $element:ty, $load:ident, $load_n:ident;)*) => {$(
        impl DenseWeight for $name {
            type Element = $element;
            #[inline(always)]
            unsafe fn load<I: Isa>(ptr: *const $element) -> I::F {
                unsafe { I::$load(ptr) }
            }
            #[inline(always)]
            unsafe fn load_n<I: Isa>(ptr: *const $element, n: i32) -> I::F {
                unsafe { I::$load_n(ptr, n, I::splat_f(0.0)) }
            }
        }
    )*};
}

dense! {
    F32, f32, load_f32, load_f32_n;
    F16, u16, load_f16, load_f16_n;
    BF16, u16, load_bf16, load_bf16_n;
}

/// The lane sums of one chunk for `M` activation rows and `R` weight rows.
#[inline(always)]
unsafe fn chunk_sums<I: Isa, T: DenseWeight, const M: usize, const R: usize>(
    x: &[*const f32; M],
    w: &[*const T::Element; R],
    next: usize,
    kn: usize,
) -> [[I::F; R]; M] {
    unsafe {
        let mut acc = [[I::splat_f(0.0); R]; M];
        let whole = kn / 16 * 16;
        let mut p = 0;
        while p < whole {
            let mut weights = [I::splat_f(0.0); R];
            for r in 0..R {
                if next > 0 {
                    I::prefetch(w[r].wrapping_add(p + next).cast());
                }
                weights[r] = T::load::<I>(w[r].add(p));
            }
            for i in 0..M {
                let x = I::load_f32(x[i].add(p));
                for r in 0..R {
                    acc[i][r] = I::fma_f(x, weights[r], acc[i][r]);
                }
            }
            p += 16;
        }
        if whole < kn {
            let n = (kn - whole) as i32;
            for i in 0..M {
                let x = I::load_f32_n(x[i].add(whole), n, I::splat_f(0.0));
                for r in 0..R {
                    acc[i][r] = I::fma_f(x, T::load_n::<I>(w[r].add(whole), n), acc[i][r]);
                }
            }
        }
        acc
    }
}

/// The sums of one chunk for `M` activation rows and 16 weight rows, `R` at a time; `valid` of the 16 are read.
#[inline(always)]
unsafe fn chunk_of_16<I: Isa, T: DenseWeight, const M: usize, const R: usize>(
    x: &[*const f32; M],
    w: *const T::Element,
    stride: usize,
    valid: usize,
    next: usize,
    kn: usize,
) -> [I::F; M] {
    unsafe {
        let mut sums = [[I::splat_f(0.0); 16]; M];
        let mut row = 0;
        while row < valid {
            let mut rows = [w; R];
            for (r, pointer) in rows.iter_mut().enumerate() {
                *pointer = w.add((row + r).min(valid - 1) * stride);
            }
            let part = chunk_sums::<I, T, M, R>(x, &rows, next, kn);
            for i in 0..M {
                for r in 0..R {
                    sums[i][row + r] = part[i][r];
                }
            }
            row += R;
        }
        let mut out = [I::splat_f(0.0); M];
        for i in 0..M {
            out[i] = I::reduce_add_16(&sums[i]);
        }
        out
    }
}

/// Adds a product of `M` rows and `16 * G` weight rows over `k0..k0 + kn`: the decode path.
///
/// `acc[i][g]` lane `l` gains `x[i, k0..k0 + kn] · w[16 * g + l, k0..k0 + kn]`. `w` points to the tile's first weight
/// row, column 0, with `stride` elements from one row to the next; `kn` may be any number. `rows` and `cols` count the
/// valid activation rows and weight rows: what lies past them is not read, and the accumulators there are unspecified.
#[inline(always)]
pub unsafe fn dot_dense<I: Isa, T: DenseWeight, const M: usize, const G: usize>(
    acc: &mut [[I::F; G]; M],
    x: F32Rows,
    rows: i32,
    w: *const T::Element,
    stride: usize,
    cols: i32,
    k0: usize,
    kn: usize,
) {
    if rows <= 0 || cols <= 0 {
        return;
    }
    unsafe {
        for g in 0..G {
            let valid = (cols as usize).saturating_sub(16 * g).min(16);
            let mut done = 0;
            while done < kn && valid > 0 {
                let x = x.rows::<M>(0, rows, k0 + done);
                let w = w.add(16 * g * stride + k0 + done);
                let kn = (kn - done).min(DENSE_CHUNK);
                // The rows after the current ones, at the same column.
                let sums = if I::WIDE || M == 1 {
                    chunk_of_16::<I, T, M, 4>(&x, w, stride, valid, 4 * stride, kn)
                } else {
                    chunk_of_16::<I, T, M, 2>(&x, w, stride, valid, 2 * stride, kn)
                };
                for i in 0..M {
                    acc[i][g] = I::add_f(acc[i][g], sums[i]);
                }
                done += DENSE_CHUNK;
            }
        }
    }
}

/// Chunks of 16 weight rows in f32.
type Panel = [[f32; DENSE_CHUNK]; 16];

outlined! {
    /// The same product for a whole tile in memory, `rows` rows by `cols` weight rows: the prefill path. Only the first
    /// `rows` by `cols` of `acc`, which has `ld` elements from one row to the next, are touched.
    pub unsafe fn dot_dense_panel<I, T: DenseWeight>(
        acc: *mut f32,
        ld: usize,
        x: F32Rows,
        rows: i32,
        w: *const T::Element,
        stride: usize,
        cols: i32,
        k0: usize,
        kn: usize,
    ) = dense_panel;
}

#[inline(always)]
unsafe fn dense_panel<I: Isa, T: DenseWeight>(
    acc: *mut f32,
    ld: usize,
    x: F32Rows,
    rows: i32,
    w: *const T::Element,
    stride: usize,
    cols: i32,
    k0: usize,
    kn: usize,
) {
    if rows <= 0 || cols <= 0 {
        return;
    }
    unsafe {
        let panel = panel::<Panel>().cast::<f32>();
        let mut col = 0;
        while col < cols as usize {
            let valid = (cols as usize - col).min(16);
            let mut done = 0;
            while done < kn {
                let piece = w.add(col * stride + k0 + done);
                let k0 = k0 + done;
                let kn = (kn - done).min(DENSE_CHUNK);
                // Converted once for all rows.
                for r in 0..valid {
                    for p in (0..kn).step_by(16) {
                        let weights = T::load_n::<I>(piece.add(r * stride + p), (kn - p) as i32);
                        I::store_f32(panel.add(r * DENSE_CHUNK + p), weights);
                    }
                }
                let mut row = 0;
                while row < rows as usize {
                    let here = (rows as usize - row).min(4);
                    let x = x.rows::<4>(row, rows, k0);
                    let sums = if I::WIDE {
                        chunk_of_16::<I, F32, 4, 4>(&x, panel, DENSE_CHUNK, valid, 0, kn)
                    } else {
                        chunk_of_16::<I, F32, 4, 1>(&x, panel, DENSE_CHUNK, valid, 0, kn)
                    };
                    for (i, sum) in sums.iter().enumerate().take(here) {
                        let out = acc.add((row + i) * ld + col);
                        let old = I::load_f32_n(out, valid as i32, I::splat_f(0.0));
                        I::store_f32_n(out, I::add_f(old, *sum), valid as i32);
                    }
                    row += 4;
                }
                done += DENSE_CHUNK;
            }
            col += 16;
        }
    }
}
