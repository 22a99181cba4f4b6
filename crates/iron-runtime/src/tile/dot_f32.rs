//! Dot products of f32 activations with packed weights: the exact mode.
//!
//! Weights are dequantised as the ggml reference does, in f32 with separate multiplications and additions; products are
//! folded by fma in ascending k. Both flavours, every register tile and every split of k give the same bits.

use super::isa::Isa;
use super::outline::outlined;
use super::packed::{PackedFormat, prefetch_share};
use super::scratch::panel;

/// A tile of f32 activations: a pointer to row 0, column 0.
#[derive(Clone, Copy, Debug)]
pub struct F32Rows {
    /// Values, `[rows, k]`.
    pub x: *const f32,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl F32Rows {
    /// Pointers to rows `first..first + M` at column `k0`, rows past the last of `rows` being that one.
    #[inline(always)]
    pub(super) unsafe fn rows<const M: usize>(
        self,
        first: usize,
        rows: i32,
        k0: usize,
    ) -> [*const f32; M] {
        unsafe {
            let mut out = [self.x; M];
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.x.add((first + i).min(rows as usize - 1) * self.stride + k0);
            }
            out
        }
    }
}

/// The weights at byte `e` of each lane's codes.
#[inline(always)]
unsafe fn dequantize<I: Isa, W: PackedFormat>(
    codes: I::I,
    e: usize,
    scale: I::F,
    minimum: I::F,
) -> I::F {
    unsafe {
        let code = I::and_i(I::shr_u(codes, I::splat_i(8 * e as i32)), I::splat_i(255));
        if W::MINIMUM {
            I::add_f(I::mul_f(I::f_from_i(code), scale), minimum)
        } else {
            I::mul_f(I::f_from_i(I::sub_i(code, I::splat_i(W::OFFSET))), scale)
        }
    }
}

/// Adds a product of `M` rows and `16 * G` weight rows over `k0..k0 + kn`; arguments as in
/// [`dot_int8`](super::dot_int8).
#[inline(always)]
pub unsafe fn dot_f32_packed<I: Isa, W: PackedFormat, const M: usize, const G: usize>(
    acc: &mut [[I::F; G]; M],
    x: F32Rows,
    rows: i32,
    w: *const u8,
    row_group: usize,
    cols: i32,
    k: usize,
    k0: usize,
    kn: usize,
) {
    if rows <= 0 || cols <= 0 {
        return;
    }
    unsafe {
        let group_bytes = k.div_ceil(W::UNIT) * W::UNIT_BYTES;
        let groups = (cols as usize).div_ceil(16);
        let x = x.rows::<M>(0, rows, k0);
        for g in 0..G {
            let group = row_group + g.min(groups - 1);
            let mut unit = w.add(group * group_bytes + k0 / W::UNIT * W::UNIT_BYTES);
            let mut done = 0;
            while done < kn {
                for sub in 0..W::UNIT / W::SUB {
                    let at = done + sub * W::SUB;
                    // Only units shorter than a storage super-block can be cut by the end of a row.
                    if W::UNIT < 256 && at >= kn {
                        break;
                    }
                    prefetch_share::<I, W>(unit, sub);
                    let (scale, minimum) = (W::scale::<I>(unit, sub), W::minimum::<I>(unit, sub));
                    for pair in 0..W::SUB / 8 {
                        let codes = W::codes::<I>(unit, sub, pair);
                        for e in 0..8 {
                            let w = dequantize::<I, W>(codes[e / 4], e % 4, scale, minimum);
                            for i in 0..M {
                                let x = I::splat_f(*x[i].add(at + 8 * pair + e));
                                acc[i][g] = I::fma_f(x, w, acc[i][g]);
                            }
                        }
                    }
                }
                unit = unit.add(W::UNIT_BYTES);
                done += W::UNIT;
            }
        }
    }
}

/// Row groups that a panel holds.
const PANEL_GROUPS: usize = 4;
/// Values of k that a panel holds: 64 KiB of weights, which stay in the second-level cache.
const PANEL_K: usize = 256;

/// Dequantised weights: for each k a vector per row group.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Panel([[[f32; 16]; PANEL_GROUPS]; PANEL_K]);

impl Panel {
    #[inline(always)]
    unsafe fn unpack<I: Isa, W: PackedFormat>(
        panel: *mut Self,
        g: usize,
        mut unit: *const u8,
        kn: usize,
    ) {
        unsafe {
            let out = (&raw mut (*panel).0).cast::<f32>().add(16 * g);
            let mut done = 0;
            while done < kn {
                for sub in 0..W::UNIT / W::SUB {
                    prefetch_share::<I, W>(unit, sub);
                    let (scale, minimum) = (W::scale::<I>(unit, sub), W::minimum::<I>(unit, sub));
                    for pair in 0..W::SUB / 8 {
                        let codes = W::codes::<I>(unit, sub, pair);
                        let at = done + sub * W::SUB + 8 * pair;
                        for e in 0..8 {
                            let w = dequantize::<I, W>(codes[e / 4], e % 4, scale, minimum);
                            I::store_f32(out.add((at + e) * 16 * PANEL_GROUPS), w);
                        }
                    }
                }
                unit = unit.add(W::UNIT_BYTES);
                done += W::UNIT;
            }
        }
    }
}

outlined! {
    /// The same product for a whole tile in memory; arguments as in [`dot_int8_panel`](super::dot_int8_panel).
    pub unsafe fn dot_f32_packed_panel<I, W: PackedFormat>(
        acc: *mut f32,
        ld: usize,
        x: F32Rows,
        rows: i32,
        w: *const u8,
        row_group: usize,
        cols: i32,
        k: usize,
        k0: usize,
        kn: usize,
    ) = f32_panel;
}

#[inline(always)]
unsafe fn f32_panel<I: Isa, W: PackedFormat>(
    acc: *mut f32,
    ld: usize,
    x: F32Rows,
    rows: i32,
    w: *const u8,
    row_group: usize,
    cols: i32,
    k: usize,
    k0: usize,
    kn: usize,
) {
    if rows <= 0 || cols <= 0 {
        return;
    }
    unsafe {
        let group_bytes = k.div_ceil(W::UNIT) * W::UNIT_BYTES;
        let groups = (cols as usize).div_ceil(16);
        let panel = panel::<Panel>();
        let mut first = 0;
        while first < groups {
            let held = (groups - first).min(PANEL_GROUPS);
            let acc = acc.add(16 * first);
            let mut done = 0;
            while done < kn {
                let k0 = k0 + done;
                let kn = (kn - done).min(PANEL_K);
                for g in 0..held {
                    let group = w.add((row_group + first + g) * group_bytes);
                    Panel::unpack::<I, W>(panel, g, group.add(k0 / W::UNIT * W::UNIT_BYTES), kn);
                }
                let mut row = 0;
                while row < rows as usize {
                    let valid = (rows as usize - row).min(6);
                    let x = x.rows::<6>(row, rows, k0);
                    let acc = acc.add(row * ld);
                    if I::WIDE && held == 4 {
                        panel_tile::<I, 6, 4>(acc, ld, valid, &x, panel, 0, kn);
                    } else {
                        for g in 0..held {
                            panel_tile::<I, 6, 1>(acc.add(16 * g), ld, valid, &x, panel, g, kn);
                        }
                    }
                    row += 6;
                }
                done += PANEL_K;
            }
            first += PANEL_GROUPS;
        }
    }
}

/// One register tile of the panel flavour: the first `valid` of `M` rows, `G` row groups of the panel from `first` on.
#[inline(always)]
unsafe fn panel_tile<I: Isa, const M: usize, const G: usize>(
    out: *mut f32,
    ld: usize,
    valid: usize,
    x: &[*const f32; M],
    panel: *const Panel,
    first: usize,
    kn: usize,
) {
    unsafe {
        let weights = (&raw const (*panel).0).cast::<f32>().add(16 * first);
        let mut acc = [[I::splat_f(0.0); G]; M];
        // Counting to `M` keeps the indices constant, and with them the tile in registers.
        for i in 0..M {
            if i < valid {
                for g in 0..G {
                    acc[i][g] = I::load_f32(out.add(i * ld + 16 * g));
                }
            }
        }
        for p in 0..kn {
            let mut w = [I::splat_f(0.0); G];
            for g in 0..G {
                w[g] = I::load_f32(weights.add(16 * (p * PANEL_GROUPS + g)));
            }
            for i in 0..M {
                let x = I::splat_f(*x[i].add(p));
                for g in 0..G {
                    acc[i][g] = I::fma_f(x, w[g], acc[i][g]);
                }
            }
        }
        for i in 0..M {
            if i < valid {
                for g in 0..G {
                    I::store_f32(out.add(i * ld + 16 * g), acc[i][g]);
                }
            }
        }
    }
}
