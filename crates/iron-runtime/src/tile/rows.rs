//! Pieces of single weight rows, for embedding lookup.

use super::dense::DenseWeight;
use super::isa::Isa;
use super::packed::PackedFormat;

/// The values `k0..k0 + 16 * V` of weight row `row`, dequantised as the ggml reference does; values from `n` on are 0.
///
/// `w` is the start of the packed tensor and `k` its full row length; `k0` is a multiple of 16.
#[inline(always)]
pub unsafe fn load_packed_row<I: Isa, W: PackedFormat, const V: usize>(
    w: *const u8,
    row: usize,
    k: usize,
    k0: usize,
    n: i32,
) -> [I::F; V] {
    unsafe {
        let group = w.add(row / 16 * (k.div_ceil(W::UNIT) * W::UNIT_BYTES));
        let mut out = [I::splat_f(0.0); V];
        for (v, lanes) in out.iter_mut().enumerate() {
            let mut values = [0.0f32; 16];
            let at = k0 + 16 * v;
            if 16 * (v as i32) < n {
                let unit = group.add(at / W::UNIT * W::UNIT_BYTES);
                let sub = at % W::UNIT / W::SUB;
                let (scale, minimum) = W::row_scale(unit, sub, row % 16);
                let first = at % W::SUB / 4;
                for step in 0..4 {
                    let codes = W::row_codes(unit, sub, first + step, row % 16);
                    for (e, code) in codes.into_iter().enumerate() {
                        let code = f32::from(i16::from(code) - W::OFFSET as i16) * scale;
                        values[4 * step + e] = if W::MINIMUM { code + minimum } else { code };
                    }
                }
            }
            *lanes = I::load_f32_n(values.as_ptr(), n - 16 * v as i32, I::splat_f(0.0));
        }
        out
    }
}

/// The values `k0..k0 + 16 * V` of row `row` of a dense tensor with `stride` elements from one row to the next; values
/// from `n` on are 0.
#[inline(always)]
pub unsafe fn load_dense_row<I: Isa, T: DenseWeight, const V: usize>(
    w: *const T::Element,
    row: usize,
    stride: usize,
    k0: usize,
    n: i32,
) -> [I::F; V] {
    unsafe {
        let piece = w.add(row * stride + k0);
        let mut out = [I::splat_f(0.0); V];
        for (v, lanes) in out.iter_mut().enumerate() {
            *lanes = T::load_n::<I>(piece.wrapping_add(16 * v), n - 16 * v as i32);
        }
        out
    }
}
