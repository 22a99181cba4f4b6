//! Random weights in a file's layout.

use iron_core::Format;
use iron_std::reference::{self, decode, random_weights};

use super::Random;

/// `rows` rows of `k` weights: their bytes in `format`, and their values.
pub fn weights(format: Format, rows: usize, k: usize, random: &mut Random) -> (Vec<u8>, Vec<f64>) {
    let bytes = random_weights(&mut reference::Random(u64::from(random.next())), format, rows * k);
    let values = decode(format, &bytes);
    (bytes, values)
}
