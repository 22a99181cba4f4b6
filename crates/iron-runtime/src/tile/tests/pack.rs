use iron_core::Format;

use crate::tile::isa::Isa;
use crate::tile::testing::{OnIsa, on_every_level, random_weights};
use crate::tile::{
    PackError, PackedFormat, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0,
    load_packed_row, pack_rows, packed_bytes, row_groups,
};

/// Every format that is packed.
fn packed_formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| !format.is_dense())
}

struct Rows<'a, W> {
    packed: &'a [u8],
    n: usize,
    k: usize,
    format: W,
}

impl<W: PackedFormat> OnIsa for Rows<'_, W> {
    type Output = Vec<f32>;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Vec<f32> {
        let _ = self.format;
        let mut out = vec![0.0; self.n * self.k];
        for row in 0..self.n {
            for k0 in (0..self.k).step_by(48) {
                // SAFETY: rows and pieces are within the packed tensor.
                unsafe {
                    let n = (self.k - k0) as i32;
                    let piece =
                        load_packed_row::<I, W, 3>(self.packed.as_ptr(), row, self.k, k0, n);
                    for (v, lanes) in piece.into_iter().enumerate() {
                        let at = row * self.k + k0 + 16 * v;
                        let valid = n - 16 * v as i32;
                        I::store_f32_n(out.as_mut_ptr().wrapping_add(at), lanes, valid);
                    }
                }
            }
        }
        out
    }
}

fn check<W: PackedFormat>(format: W) {
    for (n, k) in [(16, 256), (37, 512), (3, 256), (20, 768)] {
        for k in [k, if W::UNIT == 64 { k + 32 } else { k }] {
            let (storage, weights) = random_weights(W::FORMAT, n, k, 5);
            let mut packed = vec![0xaa; packed_bytes(W::FORMAT, n, k).unwrap()];
            let group = packed.len() / row_groups(n);
            // In two parts, as threads do.
            let middle = row_groups(n) / 2;
            let (low, high) = packed.split_at_mut(middle * group);
            pack_rows(W::FORMAT, &storage, n, k, 0..middle, low).unwrap();
            pack_rows(W::FORMAT, &storage, n, k, middle..row_groups(n), high).unwrap();
            for (level, found) in on_every_level(&Rows { packed: &packed, n, k, format }) {
                assert_eq!(found, weights, "{} {n}x{k} {level}", W::FORMAT);
            }
        }
    }
}

#[test]
fn packed_rows_dequantise_to_the_reference_exactly() {
    check(Q8_0);
    check(Q4_0);
    check(Q4_1);
    check(Q5_0);
    check(Q5_1);
    check(Q2K);
    check(Q3K);
    check(Q4K);
    check(Q5K);
    check(Q6K);
}

#[test]
fn packed_size_is_within_two_per_cent_of_the_file() {
    for format in packed_formats() {
        let (n, k) = (4864, 1024);
        let file = format.storage_bytes(n * k).unwrap();
        let packed = packed_bytes(format, n, k).unwrap();
        assert!(packed >= file && packed * 100 <= file * 102, "{format}: {packed} for {file}");
    }
}

#[test]
fn bad_shapes_and_sizes_are_typed_errors() {
    assert_eq!(packed_bytes(Format::BF16, 16, 64), Err(PackError::Dense(Format::BF16)));
    assert_eq!(
        packed_bytes(Format::Q4K, 16, 128),
        Err(PackError::RowLength { format: Format::Q4K, block: 256, k: 128 })
    );
    assert!(matches!(
        packed_bytes(Format::Q8_0, usize::MAX, 1 << 40),
        Err(PackError::TooLarge { .. })
    ));
    let storage = vec![0; 16 * 2 * 18];
    let mut dst = vec![0; 576];
    assert!(pack_rows(Format::Q4_0, &storage, 16, 64, 0..1, &mut dst).is_ok());
    assert!(matches!(
        pack_rows(Format::Q4_0, &storage[1..], 16, 64, 0..1, &mut dst),
        Err(PackError::StorageSize { expected: 576, found: 575, .. })
    ));
    assert!(matches!(
        pack_rows(Format::Q4_0, &storage, 16, 64, 0..2, &mut dst),
        Err(PackError::Groups { .. })
    ));
    assert!(matches!(
        pack_rows(Format::Q4_0, &storage, 16, 64, 0..1, &mut dst[1..]),
        Err(PackError::DestinationSize { .. })
    ));
}
