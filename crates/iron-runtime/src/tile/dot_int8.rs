//! Dot products of int8 activations with packed weights.
//!
//! One output is a fold over the sub-blocks of k in ascending order, always by the same f32 operations, with `i` the
//! exact integer sum of codes times activations:
//! * formats with an offset: `acc = fma(fma(i, scale_x, -offset * sum_x), scale_w, acc)`;
//! * formats with a minimum: `acc = fma(i * scale_x, scale_w, acc)`, then `acc = fma(sum_x, minimum_w, acc)`.
//!
//! So both flavours, every register tile and every split of k give the same bits.

use super::isa::Isa;
use super::outline::outlined;
use super::packed::{PackedFormat, prefetch_share};
use super::scratch::panel;

/// A tile of activations quantised by [`quantize_row_tile`](super::quantize_row_tile): pointers to row 0, column 0.
#[derive(Clone, Copy, Debug)]
pub struct Int8Rows {
    /// Quantised values, `[rows, k]`.
    pub q: *const i8,
    /// Scale of each 32 values, `[rows, k / 32]`.
    pub scale: *const f32,
    /// Scale times the sum of each 32 quantised values, `[rows, k / 32]`.
    pub sum: *const f32,
    /// Elements from one row of `q` to the next.
    pub q_stride: usize,
    /// Elements from one row of `scale` and `sum` to the next.
    pub block_stride: usize,
}

/// One activation row from the first value of a call on.
#[derive(Clone, Copy)]
struct Row {
    q: *const i8,
    scale: *const f32,
    sum: *const f32,
}

impl Int8Rows {
    /// Rows `first..first + M` from value `k0` on, rows past the last of `rows` being that one.
    #[inline(always)]
    unsafe fn rows<const M: usize>(self, first: usize, rows: i32, k0: usize) -> [Row; M] {
        unsafe {
            let mut out = [Row { q: self.q, scale: self.scale, sum: self.sum }; M];
            for (i, out) in out.iter_mut().enumerate() {
                let row = (first + i).min(rows as usize - 1);
                let block = row * self.block_stride + k0 / 32;
                out.q = self.q.add(row * self.q_stride + k0);
                out.scale = self.scale.add(block);
                out.sum = self.sum.add(block);
            }
            out
        }
    }
}

/// Four neighbouring activations in every lane.
#[inline(always)]
unsafe fn splat_step<I: Isa>(q: *const i8) -> I::I {
    unsafe { I::splat_i(q.cast::<i32>().read_unaligned()) }
}

/// Folds the integer sums of one sub-block into an output: the one formula of this file.
///
/// `term` is the second factor's constant part: the sum with a minimum, else `-offset * sum`.
#[inline(always)]
unsafe fn fold<I: Isa, W: PackedFormat>(
    acc: I::F,
    sums: I::I,
    scale_x: I::F,
    term: I::F,
    scale_w: I::F,
    minimum_w: I::F,
) -> I::F {
    unsafe {
        let sums = I::f_from_i(sums);
        if W::MINIMUM {
            I::fma_f(term, minimum_w, I::fma_f(I::mul_f(sums, scale_x), scale_w, acc))
        } else {
            I::fma_f(I::fma_f(sums, scale_x, term), scale_w, acc)
        }
    }
}

/// Whether the activations of each sub-block have to be summed here: their offset or minimum is applied to sub-blocks of
/// half a block, or the instruction set takes 8-bit codes as signed.
const fn needs_sums<I: Isa, W: PackedFormat>() -> bool {
    W::SUB < 32 || (!W::MINIMUM && W::BITS == 8 && I::DOT8_SIGNED)
}

/// The sum of a sub-block's activations, in every lane.
#[inline(always)]
unsafe fn splat_sum<I: Isa, W: PackedFormat>(q: *const i8) -> I::I {
    unsafe {
        let ones = I::splat_i(0x0101_0101);
        let mut acc = I::splat_i(0);
        for step in 0..W::SUB / 4 {
            acc = I::dot4(1, acc, ones, splat_step::<I>(q.add(4 * step)));
        }
        I::dot4_fold(acc)
    }
}

/// What the sums of a sub-block start from.
#[inline(always)]
unsafe fn start<I: Isa, W: PackedFormat>(sum_q: I::I) -> I::I {
    unsafe {
        if W::BITS == 8 && I::DOT8_SIGNED { I::shl_i(sum_q, I::splat_i(7)) } else { I::splat_i(0) }
    }
}

/// The constant part of a sub-block's activations, given the block's scale and sum and the sub-block's own sum.
#[inline(always)]
unsafe fn term<I: Isa, W: PackedFormat>(scale: I::F, sum: *const f32, sum_q: I::F) -> I::F {
    unsafe {
        let sum = if W::SUB < 32 { I::mul_f(sum_q, scale) } else { I::splat_f(*sum) };
        if W::MINIMUM { sum } else { I::mul_f(sum, I::splat_f(-W::OFFSET as f32)) }
    }
}

/// Adds a product of `M` rows and `16 * G` weight rows over `k0..k0 + kn`: the decode path.
///
/// `acc[i][g]` lane `l` gains `x[i, k0..k0 + kn] · w[16 * (row_group + g) + l, k0..k0 + kn]`. `w` is the start of the
/// packed tensor, `k` its full row length; `k0` is a multiple of `W::UNIT` and `kn` of 32. `rows` and `cols` count the
/// valid activation rows and weight rows from the tile's origin: what lies past them is not read, and the accumulators
/// there are unspecified.
#[inline(always)]
pub unsafe fn dot_int8<I: Isa, W: PackedFormat, const M: usize, const G: usize>(
    acc: &mut [[I::F; G]; M],
    x: Int8Rows,
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
        let mut unit = [w; G];
        for (g, unit) in unit.iter_mut().enumerate() {
            let group = row_group + g.min(groups - 1);
            *unit = w.add(group * group_bytes + k0 / W::UNIT * W::UNIT_BYTES);
        }
        let x = x.rows::<M>(0, rows, k0);
        let mut done = 0;
        while done < kn {
            for sub in 0..W::UNIT / W::SUB {
                let at = done + sub * W::SUB;
                // Only units shorter than a storage super-block can be cut by the end of a row.
                if W::UNIT < 256 && at >= kn {
                    break;
                }
                for unit in &unit {
                    prefetch_share::<I, W>(*unit, sub);
                }
                let sums = sub_block_sums::<I, W, M, G>(&unit, sub, &x, at);
                for i in 0..M {
                    let scale_x = I::splat_f(*x[i].scale.add(at / 32));
                    let sum_q = if needs_sums::<I, W>() {
                        splat_sum::<I, W>(x[i].q.add(at))
                    } else {
                        I::splat_i(0)
                    };
                    let term = term::<I, W>(scale_x, x[i].sum.add(at / 32), I::f_from_i(sum_q));
                    for g in 0..G {
                        let sums = I::add_i(sums[i][g], start::<I, W>(sum_q));
                        let scale_w = W::scale::<I>(unit[g], sub);
                        let minimum_w = W::minimum::<I>(unit[g], sub);
                        acc[i][g] =
                            fold::<I, W>(acc[i][g], sums, scale_x, term, scale_w, minimum_w);
                    }
                }
            }
            for unit in &mut unit {
                *unit = unit.wrapping_add(W::UNIT_BYTES);
            }
            done += W::UNIT;
        }
    }
}

/// The integer sums of one sub-block for `M` rows and `G` row groups, straight from the packed weights.
#[inline(always)]
unsafe fn sub_block_sums<I: Isa, W: PackedFormat, const M: usize, const G: usize>(
    unit: &[*const u8; G],
    sub: usize,
    x: &[Row; M],
    at: usize,
) -> [[I::I; G]; M] {
    unsafe {
        let zero = I::splat_i(0);
        let mut total = [[zero; G]; M];
        let pairs = W::SUB / 8;
        let depth = I::dot4_depth(W::BITS);
        let pairs_a_fold = (depth / 2).clamp(1, pairs);
        // Few outputs need two chains each to hide the latency; a depth of one step needs them anyway.
        let odd = usize::from(M * G <= 2 || depth < 2);
        for chunk in 0..pairs / pairs_a_fold {
            let mut acc = [[[zero; 2]; G]; M];
            for pair in chunk * pairs_a_fold..(chunk + 1) * pairs_a_fold {
                let mut codes = [[zero; 2]; G];
                for g in 0..G {
                    codes[g] = W::codes::<I>(unit[g], sub, pair);
                }
                for i in 0..M {
                    let q = x[i].q.add(at + 8 * pair);
                    let (first, second) = (splat_step::<I>(q), splat_step::<I>(q.add(4)));
                    for g in 0..G {
                        let acc = &mut acc[i][g];
                        acc[0] = I::dot4(W::BITS, acc[0], codes[g][0], first);
                        acc[odd] = I::dot4(W::BITS, acc[odd], codes[g][1], second);
                    }
                }
            }
            for i in 0..M {
                for g in 0..G {
                    total[i][g] = I::add_i(total[i][g], I::dot4_fold(acc[i][g][0]));
                    if odd == 1 {
                        total[i][g] = I::add_i(total[i][g], I::dot4_fold(acc[i][g][1]));
                    }
                }
            }
        }
        total
    }
}

/// Row groups that a panel holds.
const PANEL_GROUPS: usize = 4;
/// Values of k that a panel holds: its codes are 32 KiB, which stay in the first-level cache.
const PANEL_K: usize = 512;

/// Weights of some row groups unpacked to one byte a code.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Panel {
    /// A vector of four codes a lane per step.
    codes: [[[i32; 16]; PANEL_K / 4]; PANEL_GROUPS],
    /// Scales of each sub-block.
    scale: [[[f32; 16]; PANEL_K / 16]; PANEL_GROUPS],
    /// Minima of each sub-block, in formats that have them.
    minimum: [[[f32; 16]; PANEL_K / 16]; PANEL_GROUPS],
}

impl Panel {
    /// Unpacks `kn` values of a row group from `unit` on.
    #[inline(always)]
    unsafe fn unpack<I: Isa, W: PackedFormat>(
        panel: *mut Self,
        g: usize,
        mut unit: *const u8,
        kn: usize,
    ) {
        unsafe {
            let codes = (&raw mut (*panel).codes[g]).cast::<i32>();
            let scale = (&raw mut (*panel).scale[g]).cast::<f32>();
            let minimum = (&raw mut (*panel).minimum[g]).cast::<f32>();
            let mut done = 0;
            while done < kn {
                for sub in 0..W::UNIT / W::SUB {
                    let at = done + sub * W::SUB;
                    prefetch_share::<I, W>(unit, sub);
                    for pair in 0..W::SUB / 8 {
                        let [first, second] = W::codes::<I>(unit, sub, pair);
                        I::store_i32(codes.add(16 * (at / 4 + 2 * pair)), first);
                        I::store_i32(codes.add(16 * (at / 4 + 2 * pair + 1)), second);
                    }
                    I::store_f32(scale.add(16 * (at / W::SUB)), W::scale::<I>(unit, sub));
                    if W::MINIMUM {
                        I::store_f32(minimum.add(16 * (at / W::SUB)), W::minimum::<I>(unit, sub));
                    }
                }
                unit = unit.add(W::UNIT_BYTES);
                done += W::UNIT;
            }
        }
    }
}

outlined! {
    /// The same product for a whole tile in memory, `rows` rows by `cols` weight rows: the prefill path.
    ///
    /// `acc` is row-major with `ld` elements from one row to the next. Only its first `rows` rows are touched, and of
    /// each the first `cols` elements rounded up to a multiple of 16. The weights are unpacked once for all rows.
    pub unsafe fn dot_int8_panel<I, W: PackedFormat>(
        acc: *mut f32,
        ld: usize,
        x: Int8Rows,
        rows: i32,
        w: *const u8,
        row_group: usize,
        cols: i32,
        k: usize,
        k0: usize,
        kn: usize,
    ) = int8_panel;
}

#[inline(always)]
unsafe fn int8_panel<I: Isa, W: PackedFormat>(
    acc: *mut f32,
    ld: usize,
    x: Int8Rows,
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
                    let valid = (rows as usize - row).min(4);
                    let x = x.rows::<4>(row, rows, k0);
                    let acc = acc.add(row * ld);
                    if I::WIDE && held == 4 {
                        panel_tile::<I, W, 4, 4>(acc, ld, valid, &x, panel, 0, kn);
                    } else {
                        for g in 0..held {
                            panel_tile::<I, W, 4, 1>(acc.add(16 * g), ld, valid, &x, panel, g, kn);
                        }
                    }
                    row += 4;
                }
                done += PANEL_K;
            }
            first += PANEL_GROUPS;
        }
    }
}

/// The sums of a row's sub-blocks.
#[inline(always)]
unsafe fn sub_block_sums_of_row<I: Isa, W: PackedFormat>(
    q: *const i8,
    kn: usize,
    out: &mut [i32; PANEL_K / 16],
) {
    unsafe {
        let ones = I::splat_i(0x0101_0101);
        let mut done = 0;
        // Whole vectors give a sum of each four values; the rest of the addition is left to the compiler.
        while done + 256 <= kn {
            let mut fours = [0i32; 64];
            for v in 0..4 {
                let x = I::load_i32(q.add(done + 64 * v).cast());
                let sums = I::dot4_fold(I::dot4(1, I::splat_i(0), ones, x));
                I::store_i32(fours[16 * v..].as_mut_ptr(), sums);
            }
            for sub in 0..256 / W::SUB {
                let mut sum = 0;
                for four in 0..W::SUB / 4 {
                    sum += fours[sub * (W::SUB / 4) + four];
                }
                out[done / W::SUB + sub] = sum;
            }
            done += 256;
        }
        while done < kn {
            let mut sum = 0;
            for e in 0..W::SUB {
                sum += i32::from(*q.add(done + e));
            }
            out[done / W::SUB] = sum;
            done += W::SUB;
        }
    }
}

/// One register tile of the panel flavour: the first `valid` of `M` rows, `G` row groups of the panel from `first` on.
#[inline(always)]
unsafe fn panel_tile<I: Isa, W: PackedFormat, const M: usize, const G: usize>(
    out: *mut f32,
    ld: usize,
    valid: usize,
    x: &[Row; M],
    panel: *const Panel,
    first: usize,
    kn: usize,
) {
    unsafe {
        let codes = (&raw const (*panel).codes[first]).cast::<i32>();
        let scale = (&raw const (*panel).scale[first]).cast::<f32>();
        let minimum = (&raw const (*panel).minimum[first]).cast::<f32>();
        let (codes_stride, scale_stride) = (PANEL_K * 4, PANEL_K);
        let mut acc = [[I::splat_f(0.0); G]; M];
        // Counting to `M` keeps the indices constant, and with them the tile in registers.
        for i in 0..M {
            if i < valid {
                for g in 0..G {
                    acc[i][g] = I::load_f32(out.add(i * ld + 16 * g));
                }
            }
        }
        let mut sums_q = [[0i32; PANEL_K / 16]; M];
        if needs_sums::<I, W>() {
            for i in 0..M {
                sub_block_sums_of_row::<I, W>(x[i].q, kn, &mut sums_q[i]);
            }
        }
        let zero = I::splat_i(0);
        let steps = W::SUB / 4;
        let steps_a_fold = I::dot4_depth(W::BITS).min(steps);
        for sub in 0..kn / W::SUB {
            let at = sub * W::SUB;
            let mut sums = [[zero; G]; M];
            for chunk in 0..steps / steps_a_fold {
                let mut part = [[zero; G]; M];
                for step in chunk * steps_a_fold..(chunk + 1) * steps_a_fold {
                    let mut step_codes = [zero; G];
                    for g in 0..G {
                        step_codes[g] =
                            I::load_i32(codes.add(g * codes_stride + 16 * (at / 4 + step)));
                    }
                    for i in 0..M {
                        let q = splat_step::<I>(x[i].q.add(at + 4 * step));
                        for g in 0..G {
                            part[i][g] = I::dot4(W::BITS, part[i][g], step_codes[g], q);
                        }
                    }
                }
                for i in 0..M {
                    for g in 0..G {
                        sums[i][g] = I::add_i(sums[i][g], I::dot4_fold(part[i][g]));
                    }
                }
            }
            let (mut scale_w, mut minimum_w) = ([I::splat_f(0.0); G], [I::splat_f(0.0); G]);
            for g in 0..G {
                scale_w[g] = I::load_f32(scale.add(g * scale_stride + 16 * sub));
                if W::MINIMUM {
                    minimum_w[g] = I::load_f32(minimum.add(g * scale_stride + 16 * sub));
                }
            }
            for i in 0..M {
                let scale_x = I::splat_f(*x[i].scale.add(at / 32));
                let sum_q = if needs_sums::<I, W>() { I::splat_i(sums_q[i][sub]) } else { zero };
                let term = term::<I, W>(scale_x, x[i].sum.add(at / 32), I::f_from_i(sum_q));
                for g in 0..G {
                    let sums = I::add_i(sums[i][g], start::<I, W>(sum_q));
                    acc[i][g] =
                        fold::<I, W>(acc[i][g], sums, scale_x, term, scale_w[g], minimum_w[g]);
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
