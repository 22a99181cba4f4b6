//! The product of two row-major tiles, for attention.

use super::dense::DenseWeight;
use super::isa::Isa;

/// `acc[i, j] += Σ a[i, p] * b[p, j]` for `i < m_valid <= M`, `j < N`, `p < k_valid`, by fma in ascending `p`.
///
/// `acc` is `[M, N]` and `a` is `[M, k_valid]`, both f32; `b` is `[k_valid, N]` in storage type `T`; each has its own
/// row stride in elements. `N` is a multiple of 16. A row's result does not depend on the other rows.
#[inline(always)]
pub unsafe fn dot_nn<I: Isa, T: DenseWeight, const M: usize, const N: usize>(
    acc: *mut f32,
    ld: usize,
    a: *const f32,
    lda: usize,
    b: *const T::Element,
    ldb: usize,
    m_valid: i32,
    k_valid: i32,
) {
    let _ = (acc, ld, a, lda, b, ldb, m_valid, k_valid);
    todo!()
}
