//! The product of two row-major tiles, for attention.

use super::dense::DenseWeight;
use super::isa::Isa;
use super::outline::outlined;

outlined! {
    /// `acc[i, j] += Σ a[i, p] * b[p, j]` for `i < m`, `j < n`, `p < k`, by fma in ascending `p`.
    ///
    /// `acc` is `[m, n]` and `a` is `[m, k]`, both f32; `b` is `[k, n]` in storage type `T`; each has its own row stride
    /// in elements. The rows of `acc` are readable and writable up to the next multiple of 16 columns. A row's result
    /// does not depend on the other rows.
    pub unsafe fn dot_nn<I, T: DenseWeight>(
        acc: *mut f32,
        ld: usize,
        a: *const f32,
        lda: usize,
        b: *const T::Element,
        ldb: usize,
        m: i32,
        k: i32,
        n: i32,
    ) = row_major;
}

#[inline(always)]
unsafe fn row_major<I: Isa, T: DenseWeight>(
    acc: *mut f32,
    ld: usize,
    a: *const f32,
    lda: usize,
    b: *const T::Element,
    ldb: usize,
    m: i32,
    k: i32,
    n: i32,
) {
    unsafe {
        let (m, k, n) = (m.max(0) as usize, k.max(0) as usize, n.max(0) as usize);
        let mut row = 0;
        while row < m {
            let (acc, a) = (acc.add(row * ld), a.add(row * lda));
            row += if m - row >= 6 {
                row_block::<I, T, 6>(acc, ld, a, lda, b, ldb, k, n);
                6
            } else if m - row >= 2 {
                row_block::<I, T, 2>(acc, ld, a, lda, b, ldb, k, n);
                2
            } else {
                row_block::<I, T, 1>(acc, ld, a, lda, b, ldb, k, n);
                1
            };
        }
    }
}

/// `R` rows by all columns, as many vectors at a time as fit in registers beside the operands.
#[inline(always)]
unsafe fn row_block<I: Isa, T: DenseWeight, const R: usize>(
    acc: *mut f32,
    ld: usize,
    a: *const f32,
    lda: usize,
    b: *const T::Element,
    ldb: usize,
    k: usize,
    n: usize,
) {
    unsafe {
        let mut col = 0;
        while col < n {
            let (acc, b) = (acc.add(col), b.add(col));
            let left = n - col;
            col += if left >= 64 && (I::WIDE || R == 1) {
                tile::<I, T, R, 4>(acc, ld, a, lda, b, ldb, k, 16);
                64
            } else if left >= 32 && (I::WIDE || R <= 2) {
                tile::<I, T, R, 2>(acc, ld, a, lda, b, ldb, k, 16);
                32
            } else {
                tile::<I, T, R, 1>(acc, ld, a, lda, b, ldb, k, left.min(16) as i32);
                16
            };
        }
    }
}

#[inline(always)]
unsafe fn tile<I: Isa, T: DenseWeight, const R: usize, const V: usize>(
    out: *mut f32,
    ld: usize,
    a: *const f32,
    lda: usize,
    b: *const T::Element,
    ldb: usize,
    k: usize,
    lanes: i32,
) {
    unsafe {
        let mut acc = [[I::splat_f(0.0); V]; R];
        for i in 0..R {
            for v in 0..V {
                acc[i][v] = I::load_f32(out.add(i * ld + 16 * v));
            }
        }
        for p in 0..k {
            let mut row = [I::splat_f(0.0); V];
            for v in 0..V {
                let piece = b.add(p * ldb + 16 * v);
                row[v] =
                    if lanes >= 16 { T::load::<I>(piece) } else { T::load_n::<I>(piece, lanes) };
            }
            for i in 0..R {
                let a = I::splat_f(*a.add(i * lda + p));
                for v in 0..V {
                    acc[i][v] = I::fma_f(a, row[v], acc[i][v]);
                }
            }
        }
        for i in 0..R {
            for v in 0..V {
                I::store_f32(out.add(i * ld + 16 * v), acc[i][v]);
            }
        }
    }
}
