use super::builder::Builder;
use super::*;
use crate::testing::{TestFolder, model_file};
use crate::weights::Weights;

fn open(builder: &Builder) -> Result<Gguf, WeightsError> {
    let folder = TestFolder::new();
    Gguf::open(&builder.write(folder.path()))
}

fn open_bytes(bytes: &[u8]) -> Result<Gguf, WeightsError> {
    let folder = TestFolder::new();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("the test folder is writable");
    Gguf::open(&path)
}

/// Everything that a caller can read from a file, so that a damaged one has every chance to panic.
fn read_all(path: &Path) -> Result<(), WeightsError> {
    let weights = Weights::open(path)?;
    let gguf = weights.gguf().expect("opened as GGUF");
    for key in gguf.metadata().keys() {
        if let Some(Value::Array(array)) = gguf.metadata().get(key) {
            let strings = array.strings().map_or(0, Iterator::count);
            let integers = array.integers().map_or(0, Iterator::count);
            assert!(strings + integers <= array.len());
        }
    }
    let mut result = Ok(());
    for name in weights.names() {
        match weights.get(name) {
            Ok(tensor) => assert_eq!(tensor.to_f32().len(), tensor.elements()),
            Err(error) => result = Err(error),
        }
    }
    weights.config()?;
    result
}

#[test]
fn tiny_file_is_read() {
    let gguf = open(&Builder::tiny_llama()).expect("valid");
    assert_eq!(gguf.version(), 3);
    let tensor = gguf.tensor("token_embd.weight").expect("there");
    assert_eq!((tensor.format, tensor.shape.as_slice()), (Format::F32, [3, 8].as_slice()));
    let tokens = gguf.metadata().array("tokenizer.ggml.tokens").expect("a list").expect("there");
    let tokens: Vec<&[u8]> = tokens.strings().expect("strings").collect();
    assert_eq!(tokens, [b"a".as_slice(), b"b", b"ab"]);
    let types = gguf.metadata().array("tokenizer.ggml.token_type").expect("a list").expect("there");
    assert_eq!(types.integers().expect("integers").collect::<Vec<_>>(), [1, 1, 3]);
}

#[test]
fn every_truncation_is_an_error() {
    let builder = Builder::tiny_llama();
    let whole = builder.bytes();
    let folder = TestFolder::new();
    let path = folder.path().join("model.gguf");
    // The last tensor's data ends with the file, so that no proper prefix holds everything.
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).expect("writable");
        assert!(
            read_all(&path).is_err(),
            "a file of {length} of {} bytes was accepted",
            whole.len()
        );
    }
    std::fs::write(&path, &whole).expect("writable");
    read_all(&path).expect("the whole file is valid");
}

#[test]
fn no_flipped_bit_panics() {
    let builder = Builder::tiny_llama();
    let (head, whole) = (builder.head().len(), builder.bytes());
    let folder = TestFolder::new();
    let path = folder.path().join("model.gguf");
    for position in 0..head {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[position] ^= 1 << bit;
            std::fs::write(&path, &bytes).expect("writable");
            let _ = read_all(&path);
        }
    }
}

#[test]
fn absurd_counts_and_lengths_are_errors() {
    let whole = Builder::tiny_llama().bytes();
    for absurd in [u64::MAX, u64::MAX / 8, 1 << 62, 1 << 40, 1 << 33] {
        // The number of tensors, of metadata entries, the first key's length, and the first value's.
        for position in [8, 16, 24, 24 + 8 + "general.architecture".len() + 4] {
            let mut bytes = whole.clone();
            bytes[position..position + 8].copy_from_slice(&absurd.to_le_bytes());
            assert!(open_bytes(&bytes).is_err(), "{absurd} at {position} was accepted");
        }
        let list = |kind| Builder::default().list("k", kind, absurd, &[0; 64]);
        assert!((0..13).all(|kind| open(&list(kind)).is_err()));
        for dimensions in [&[absurd][..], &[absurd, absurd], &[1, absurd, 1 << 20]] {
            assert!(open(&Builder::default().info("t", dimensions, 0, 0)).is_err());
        }
        assert!(open(&Builder::default().info("t", &[8], 0, absurd & !31)).is_err());
    }
}

#[test]
fn impossible_descriptions_are_errors() {
    let valid = || Builder::default().tensor("t", &[8], 0, &[0; 32]);
    for (why, builder) in [
        ("no dimensions", valid().info("u", &[], 0, 0)),
        ("five dimensions", valid().info("u", &[1, 1, 1, 1, 1], 0, 0)),
        ("an empty dimension", valid().info("u", &[0, 8], 0, 0)),
        ("an unaligned offset", valid().info("u", &[1], 0, 4)),
        ("overlapping data", valid().info("u", &[4], 0, 0)),
        ("the same name twice", valid().tensor("t", &[8], 0, &[0; 32])),
        ("a row of no whole blocks", valid().tensor("u", &[31, 32], 2, &[0; 31 * 18])),
        ("data past the end", valid().info("u", &[9], 0, 32)),
        ("the same key twice", valid().u32("k", 1).u32("k", 1)),
        ("an unknown value type", valid().raw("k", 13, &[0; 8])),
        ("a list of lists", valid().list("k", 9, 1, &[0; 12])),
        ("an alignment of zero", valid().u32("general.alignment", 0)),
        ("an alignment of 24", valid().u32("general.alignment", 24)),
        ("an alignment that is text", valid().string("general.alignment", "32")),
    ] {
        assert!(open(&builder).is_err(), "{why} was accepted");
    }
    open(&valid()).expect("the valid part is valid");
}

#[test]
fn big_endian_file_is_named_as_such() {
    let mut bytes = Builder::tiny_llama().bytes();
    bytes[4..8].reverse();
    assert!(open_bytes(&bytes).expect_err("unreadable").to_string().contains("big-endian"));
}

#[test]
fn unknown_type_fails_only_when_asked_for() {
    let builder = Builder::tiny_llama().tensor("blk.0.attn_k.weight", &[32], 99, &[0; 64]).tensor(
        "blk.0.attn_v.weight",
        &[256],
        17,
        &[0; 74],
    );
    let folder = TestFolder::new();
    let weights = Weights::open(&builder.write(folder.path())).expect("other tensors can be read");
    weights.get("model.embed_tokens.weight").expect("F32");
    for (letter, kind) in [("k", "ggml type 99"), ("v", "IQ2_XS")] {
        let name = format!("model.layers.0.self_attn.{letter}_proj.weight");
        let message = weights.get(&name).expect_err("not loadable").to_string();
        assert!(
            message.contains(kind) && message.contains(&format!("blk.0.attn_{letter}.weight")),
            "{message}"
        );
    }
}

#[test]
fn missing_tensor_is_named() {
    let folder = TestFolder::new();
    let weights = Weights::open(&Builder::tiny_llama().write(folder.path())).expect("valid");
    let message = weights
        .get("model.layers.7.self_attn.q_proj.weight")
        .expect_err("one layer only")
        .to_string();
    assert!(message.contains("model.layers.7.self_attn.q_proj.weight"), "{message}");
    assert!(message.contains("there is `model.layers.0.self_attn.q_proj.weight`"), "{message}");
}

#[test]
fn released_tensor_reads_the_same_again() {
    let folder = TestFolder::new();
    let weights = Weights::open(&Builder::tiny_llama().write(folder.path())).expect("valid");
    let tensor = weights.get("model.layers.0.self_attn.q_proj.weight").expect("there");
    let before = tensor.to_f32();
    tensor.release();
    assert_eq!(tensor.to_f32(), before);
}

#[test]
fn smollm2_is_read_whole() {
    let Some(path) = model_file("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let weights = Weights::open(&path).expect("valid");
    assert_eq!(weights.names().len(), 272);
    let query = weights.get("model.layers.29.self_attn.q_proj.weight").expect("there");
    assert_eq!((query.format, query.shape.as_slice()), (Format::Q4_1, [576, 576].as_slice()));
    let embedding = weights.get("model.embed_tokens.weight").expect("there");
    assert_eq!(
        (embedding.format, embedding.shape.as_slice()),
        (Format::Q8_0, [49152, 576].as_slice())
    );
    assert!(!weights.contains("lm_head.weight"));
    let config = weights.config().expect("valid");
    assert_eq!(
        (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim),
        (30, 9, 3, 64)
    );
    assert_eq!((config.vocab_size, config.rope.theta, config.rms_norm_eps), (49152, 1e5, 1e-5));
    assert!(config.tie_word_embeddings && !config.attention_bias);
    assert_eq!((config.bos_token_id, config.eos_token_ids.as_slice()), (Some(1), [2].as_slice()));
}
