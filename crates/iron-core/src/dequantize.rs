//! Every storage format back to f32, in plain Rust: the meaning of the formats, used by tests, by `--f32` paths and for
//! small tensors. Bit for bit equal to `gguf.quants.dequantize` of llama.cpp's Python package.
//!
//! Block layouts: <https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h>.

use crate::Format;
use half::{bf16, f16};

/// Decodes `bytes`, stored as `format`, to `values`.
///
/// # Panics
///
/// When `bytes` are not exactly what `values.len()` values take.
pub fn dequantize(format: Format, bytes: &[u8], values: &mut [f32]) {
    assert_eq!(
        format.storage_bytes(values.len()),
        Some(bytes.len()),
        "{format} data of {} values",
        values.len()
    );
    let decode: fn(&[u8], &mut [f32]) = match format {
        Format::F32 => {
            |block, values| values[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]])
        }
        Format::F16 => |block, values| values[0] = half_at(block, 0),
        Format::BF16 => {
            |block, values| values[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32()
        }
        Format::Q8_0 => q8_0,
        Format::Q4_0 => q4_0,
        Format::Q4_1 => q4_1,
        Format::Q5_0 => q5_0,
        Format::Q5_1 => q5_1,
        Format::Q2K => q2_k,
        Format::Q3K => q3_k,
        Format::Q4K => q4_k,
        Format::Q5K => q5_k,
        Format::Q6K => q6_k,
    };
    for (block, values) in
        bytes.chunks_exact(format.block_bytes()).zip(values.chunks_exact_mut(format.block()))
    {
        decode(block, values);
    }
}

/// The f16 at byte `offset` as f32.
fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}

/// `d: f16, q: [i8; 32]`.
fn q8_0(block: &[u8], values: &mut [f32]) {
    let d = half_at(block, 0);
    for (value, &q) in values.iter_mut().zip(&block[2..]) {
        *value = d * f32::from(q as i8);
    }
}

/// `d: f16, q: [u8; 16]`: the low nibbles are values 0 to 15, the high ones 16 to 31.
fn q4_0(block: &[u8], values: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, &q) in block[2..].iter().enumerate() {
        values[i] = d * f32::from((q & 15) as i8 - 8);
        values[i + 16] = d * f32::from((q >> 4) as i8 - 8);
    }
}

/// `d: f16, m: f16, q: [u8; 16]`, nibbles as in [`q4_0`].
fn q4_1(block: &[u8], values: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, &q) in block[4..].iter().enumerate() {
        values[i] = d * f32::from(q & 15) + m;
        values[i + 16] = d * f32::from(q >> 4) + m;
    }
}

/// `d: f16, qh: u32, q: [u8; 16]`, nibbles as in [`q4_0`]; bit `i` of `qh` is the fifth of value `i`.
fn q5_0(block: &[u8], values: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, value) in values.iter_mut().enumerate() {
        *value = d * f32::from(five_bits(&block[2..], i) as i8 - 16);
    }
}

/// `d: f16, m: f16, qh: u32, q: [u8; 16]`, as [`q5_0`].
fn q5_1(block: &[u8], values: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, value) in values.iter_mut().enumerate() {
        *value = d * f32::from(five_bits(&block[4..], i)) + m;
    }
}

/// Code `i` of `qh: u32, q: [u8; 16]`.
fn five_bits(bytes: &[u8], i: usize) -> u8 {
    let low = bytes[4 + i % 16] >> (i / 16 * 4) & 15;
    low | (bytes[i / 8] >> (i % 8) & 1) << 4
}

/// `scales: [u8; 16], q: [u8; 64], d: f16, dmin: f16`: sixteen sub-blocks of 16, each with a scale in the low nibble and
/// a minimum in the high one; two halves of 128 values, in each four runs of 32 at bits 0, 2, 4, 6 of the same bytes.
fn q2_k(block: &[u8], values: &mut [f32]) {
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (i, value) in values.iter_mut().enumerate() {
        let scales = block[i / 16];
        let q = two_bits(&block[16..80], i);
        let (scale, minimum) = (d * f32::from(scales & 15), dmin * f32::from(scales >> 4));
        *value = scale * f32::from(q) - minimum;
    }
}

/// `hmask: [u8; 32], q: [u8; 64], scales: [u8; 12], d: f16`: low bits as in [`q2_k`]; bit `i / 32` of `hmask[i % 32]` is
/// the third of value `i`.
fn q3_k(block: &[u8], values: &mut [f32]) {
    let (hmask, q, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half_at(block, 108);
    for (i, value) in values.iter_mut().enumerate() {
        let code = two_bits(q, i) | (hmask[i % 32] >> (i / 32) & 1) << 2;
        let scale = d * f32::from(q3_k_scale(scales, i / 16));
        *value = scale * f32::from(code as i8 - 4);
    }
}

/// Value `i` of two halves of 32 bytes, whose four runs of 32 values are at bits 0, 2, 4, 6.
fn two_bits(q: &[u8], i: usize) -> u8 {
    q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// The signed scale of a sub-block: low nibbles in bytes 0 to 7, the first eight sub-blocks in their low halves; upper two
/// bits in bytes 8 to 11, four sub-blocks to a bit pair.
fn q3_k_scale(scales: &[u8], sub_block: usize) -> i8 {
    let low = scales[sub_block % 8] >> (sub_block / 8 * 4) & 15;
    let high = scales[8 + sub_block % 4] >> (sub_block / 4 * 2) & 3;
    (low | high << 4) as i8 - 32
}

/// `d: f16, dmin: f16, scales: [u8; 12], q: [u8; 128]`: eight sub-blocks of 32; each 32 bytes of `q` hold one sub-block
/// in the low nibbles and the next one in the high nibbles.
fn q4_k(block: &[u8], values: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, q) = (&block[4..16], &block[16..]);
    for (sub_block, values) in values.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = q4_k_scale(scales, sub_block);
        let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
        let (q, shift) = (&q[sub_block / 2 * 32..], sub_block % 2 * 4);
        for (value, &q) in values.iter_mut().zip(q) {
            *value = scale * f32::from((q >> shift) & 15) - minimum;
        }
    }
}

/// `d: f16, dmin: f16, scales: [u8; 12], qh: [u8; 32], q: [u8; 128]`: as [`q4_k`]; bit `s` of `qh[i]` is the fifth of
/// value `i` of sub-block `s`.
fn q5_k(block: &[u8], values: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, qh, q) = (&block[4..16], &block[16..48], &block[48..]);
    for (sub_block, values) in values.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = q4_k_scale(scales, sub_block);
        let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
        let (q, shift) = (&q[sub_block / 2 * 32..], sub_block % 2 * 4);
        for (i, value) in values.iter_mut().enumerate() {
            let code = (q[i] >> shift) & 15 | (qh[i] >> sub_block & 1) << 4;
            *value = scale * f32::from(code) - minimum;
        }
    }
}

/// The 6-bit scale and minimum of a sub-block: the first four are the low bits of bytes 0 to 3 and 4 to 7; the others
/// have their low nibbles in bytes 8 to 11 and their upper two bits at the top of bytes 0 to 7.
fn q4_k_scale(scales: &[u8], sub_block: usize) -> (u8, u8) {
    if sub_block < 4 {
        return (scales[sub_block] & 63, scales[sub_block + 4] & 63);
    }
    let (low, scale_top, minimum_top) =
        (scales[sub_block + 4], scales[sub_block - 4], scales[sub_block]);
    (low & 15 | (scale_top >> 6) << 4, low >> 4 | (minimum_top >> 6) << 4)
}

/// `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`: two halves of 128 values; in each, four runs of 32 take
/// their low nibbles from `ql` and their upper two bits from the same 32 bytes of `qh`.
fn q6_k(block: &[u8], values: &mut [f32]) {
    let (ql, qh, scales, d) =
        (&block[..128], &block[128..192], &block[192..208], half_at(block, 208));
    for (run, values) in values.chunks_exact_mut(32).enumerate() {
        let (half, run_in_half) = (run / 4, run % 4);
        let ql = &ql[half * 64 + run_in_half % 2 * 32..];
        let qh = &qh[half * 32..];
        let (low_shift, high_shift) = (run_in_half / 2 * 4, run_in_half * 2);
        for (i, value) in values.iter_mut().enumerate() {
            let q = (ql[i] >> low_shift) & 15 | ((qh[i] >> high_shift) & 3) << 4;
            let scale = d * f32::from(scales[run * 2 + i / 16] as i8);
            *value = scale * f32::from(q as i8 - 32);
        }
    }
}
