use std::path::Path;

use super::*;
use crate::testing::TestFolder;
use crate::weights::Weights;

const HEADER: &str = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},"c":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[22,24]}}"#;

fn file_with(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn valid() -> Vec<u8> {
    let mut data = Vec::new();
    for value in [1.0_f32, 2.0, 3.0, 4.0] {
        data.extend(value.to_le_bytes());
    }
    data.extend([0x80, 0x3f, 0, 0x40, 0x40, 0x40, 0, 0]);
    file_with(HEADER, &data)
}

fn read_all(path: &Path) -> Result<(), WeightsError> {
    let weights = Weights::open(path)?;
    for name in weights.names() {
        if let Ok(tensor) = weights.get(name) {
            assert_eq!(tensor.to_f32().len(), tensor.elements());
        }
    }
    Ok(())
}

#[test]
fn tensors_are_read() {
    let folder = TestFolder::new();
    let weights = Weights::open(&folder.file("model.safetensors", valid())).expect("valid");
    assert_eq!(weights.names(), ["a", "b", "c"]);
    let a = weights.get("a").expect("F32");
    assert_eq!((a.shape.as_slice(), a.to_f32()), ([2, 2].as_slice(), vec![1.0, 2.0, 3.0, 4.0]));
    assert_eq!(weights.get("b").expect("BF16").to_f32(), [1.0, 2.0, 3.0]);
}

#[test]
fn unsupported_type_fails_only_when_asked_for() {
    let folder = TestFolder::new();
    let weights = Weights::open(&folder.file("model.safetensors", valid())).expect("valid");
    let message = weights.get("c").expect_err("not loadable").to_string();
    assert!(message.contains("`c`") && message.contains("F8_E4M3"), "{message}");
}

#[test]
fn every_truncation_is_an_error() {
    let folder = TestFolder::new();
    let whole = valid();
    for length in 0..whole.len() {
        let path = folder.file("model.safetensors", &whole[..length]);
        assert!(read_all(&path).is_err(), "a file of {length} bytes was accepted");
    }
}

#[test]
fn no_flipped_bit_panics() {
    let folder = TestFolder::new();
    let whole = valid();
    for position in 0..8 + HEADER.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[position] ^= 1 << bit;
            let _ = read_all(&folder.file("model.safetensors", bytes));
        }
    }
}

#[test]
fn absurd_header_lengths_are_errors() {
    let folder = TestFolder::new();
    for length in
        [u64::MAX, 1 << 62, LONGEST_HEADER + 1, LONGEST_HEADER, 1 << 20, HEADER.len() as u64 + 25]
    {
        let mut bytes = valid();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        assert!(
            read_all(&folder.file("model.safetensors", bytes)).is_err(),
            "{length} was accepted"
        );
    }
}

#[test]
fn impossible_headers_are_errors() {
    let folder = TestFolder::new();
    let tensor = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#""t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let good = tensor("F32", "[2]", "[0,8]");
    let huge_shape = format!("[{}1]", "1,".repeat(100_000));
    for (why, fields) in [
        ("a size that overflows", tensor("F32", "[4611686018427387904,8]", "[0,8]")),
        ("a size past the data", tensor("F32", "[4]", "[0,16]")),
        ("a size unlike the shape", tensor("F32", "[1]", "[0,8]")),
        ("an end before the start", tensor("F32", "[2]", "[8,0]")),
        ("a hole before the data", tensor("F32", "[1]", "[4,8]")),
        ("bytes after the data", tensor("F32", "[1]", "[0,4]")),
        ("a negative size", tensor("F32", "[-2]", "[0,8]")),
        ("the same name twice", format!("{good},{good}")),
        ("overlap", format!(r#"{good},"u":{{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#)),
        ("too many dimensions", tensor("F32", &huge_shape, "[0,8]")),
        (
            "deep nesting",
            format!(r#""__metadata__":{}1{}"#, "[".repeat(100_000), "]".repeat(100_000)),
        ),
        ("a tensor that is a number", r#""t":3"#.to_owned()),
    ] {
        let path = folder.file("model.safetensors", file_with(&format!("{{{fields}}}"), &[0; 8]));
        assert!(read_all(&path).is_err(), "{why} was accepted");
    }
    read_all(&folder.file("model.safetensors", file_with(&format!("{{{good}}}"), &[0; 8])))
        .expect("valid");
}

#[test]
fn shards_are_joined() {
    let folder = TestFolder::new();
    let shard = |name: &str| {
        file_with(
            &format!(r#"{{"{name}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#),
            &1_f32.to_le_bytes(),
        )
    };
    folder.file("model-00001-of-00002.safetensors", shard("a"));
    folder.file("model-00002-of-00002.safetensors", shard("b"));
    let index = r#"{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
    folder.file("model.safetensors.index.json", index);
    let weights = Weights::open(folder.path()).expect("valid");
    assert_eq!(weights.names(), ["a", "b"]);
    assert_eq!(weights.get("b").expect("there").to_f32(), [1.0]);
}

#[test]
fn index_that_promises_too_much_is_an_error() {
    let folder = TestFolder::new();
    folder.file("s.safetensors", valid());
    folder.file(
        "model.safetensors.index.json",
        r#"{"weight_map":{"a":"s.safetensors","z":"s.safetensors"}}"#,
    );
    let message = Weights::open(folder.path()).expect_err("z is nowhere").to_string();
    assert!(message.contains("`z`") && message.contains("index"), "{message}");
}

#[test]
fn index_cannot_point_outside_its_folder() {
    let folder = TestFolder::new();
    for shard in ["../s.safetensors", "/etc/passwd", "..", "", "a/b", "c:b"] {
        folder
            .file("model.safetensors.index.json", format!(r#"{{"weight_map":{{"a":"{shard}"}}}}"#));
        let message = Weights::open(folder.path()).expect_err("outside").to_string();
        assert!(message.contains("a plain file name"), "{message}");
    }
}

#[test]
fn folder_without_weights_says_what_was_expected() {
    let folder = TestFolder::new();
    let message = Weights::open(folder.path()).expect_err("empty").to_string();
    assert!(message.contains("holds no model") && message.contains(".gguf"), "{message}");
}
