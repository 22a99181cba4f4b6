//! Every format's decoder, bit for bit, against llama.cpp's Python package.
//!
//! The fixtures are made by `scripts/reference/dequantize_fixture.py`.

use std::path::Path;

use iron_core::{Format, dequantize};

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dequantize").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_format_equals_the_reference() {
    for format in Format::ALL {
        let expected: Vec<u32> = fixture(&format!("{format}.f32"))
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let mut values = vec![0.0; expected.len()];
        dequantize(format, &fixture(&format!("{format}.blocks")), &mut values);
        let values: Vec<u32> = values.into_iter().map(f32::to_bits).collect();
        assert_eq!(values, expected, "{format}");
    }
}
