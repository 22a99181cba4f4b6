//! Every storage format back to f32, in plain Rust: the meaning of the formats, used by tests, by `--f32` paths and for
//! small tensors. Bit for bit equal to `gguf.quants.dequantize` of llama.cpp's Python package.
//!
//! Block layouts: <https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h>.

use half::{bf16, f16};
use iron_core::Format;

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
        Format::Q4K => q4_k,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixture;

    /// The fixture is made by `scripts/reference/dequantize_fixture.py`.
    fn assert_equals_reference(format: Format) {
        let blocks = fixture(&format!("dequantize/{format}.blocks"));
        let expected: Vec<u32> = fixture(&format!("dequantize/{format}.f32"))
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let mut values = vec![0.0; expected.len()];
        dequantize(format, &blocks, &mut values);
        let values: Vec<u32> = values.into_iter().map(f32::to_bits).collect();
        assert_eq!(values, expected);
    }

    macro_rules! equals_reference {
        ($($name:ident: $format:ident,)*) => {$(
            #[test]
            fn $name() {
                assert_equals_reference(Format::$format);
            }
        )*};
    }

    equals_reference! {
        f32_equals_reference: F32,
        f16_equals_reference: F16,
        bf16_equals_reference: BF16,
        q8_0_equals_reference: Q8_0,
        q4_0_equals_reference: Q4_0,
        q4_1_equals_reference: Q4_1,
        q4_k_equals_reference: Q4K,
        q6_k_equals_reference: Q6K,
    }
}
