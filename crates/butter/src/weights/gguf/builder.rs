//! Writes tiny GGUF files for tests. It can write wrong ones too.

use std::path::{Path, PathBuf};

/// Collects metadata and tensors, and remembers where every field landed.
#[derive(Default)]
pub(crate) struct Builder {
    metadata: Vec<u8>,
    metadata_count: u64,
    infos: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
}

impl Builder {
    /// A file with what every llama needs, in the smallest sizes.
    pub(crate) fn tiny_llama() -> Self {
        Self::default()
            .string("general.architecture", "llama")
            .u32("llama.block_count", 1)
            .u32("llama.context_length", 64)
            .u32("llama.embedding_length", 8)
            .u32("llama.feed_forward_length", 16)
            .u32("llama.attention.head_count", 2)
            .u32("llama.attention.head_count_kv", 1)
            .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
            .strings("tokenizer.ggml.tokens", &["a", "b", "ab"])
            .i32s("tokenizer.ggml.token_type", &[1, 1, 3])
            .u32("tokenizer.ggml.eos_token_id", 2)
            .tensor("token_embd.weight", &[8, 3], 0, &[0; 96])
            .tensor("blk.0.attn_q.weight", &[8, 8], 0, &[1; 256])
            .tensor("output_norm.weight", &[8], 0, &[2; 32])
    }

    fn key(mut self, key: &str, kind: u32) -> Self {
        put_string(&mut self.metadata, key.as_bytes());
        self.metadata.extend(kind.to_le_bytes());
        self.metadata_count += 1;
        self
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.raw(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn f32(self, key: &str, value: f32) -> Self {
        self.raw(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn bool(self, key: &str, value: bool) -> Self {
        self.raw(key, 7, &[value.into()])
    }

    pub(crate) fn string(self, key: &str, value: &str) -> Self {
        let mut bytes = Vec::new();
        put_string(&mut bytes, value.as_bytes());
        self.raw(key, 8, &bytes)
    }

    /// An entry of any type number with any bytes.
    pub(crate) fn raw(self, key: &str, kind: u32, bytes: &[u8]) -> Self {
        let mut builder = self.key(key, kind);
        builder.metadata.extend(bytes);
        builder
    }

    /// A list with any element type, length and bytes.
    pub(crate) fn list(self, key: &str, kind: u32, len: u64, bytes: &[u8]) -> Self {
        let mut head = kind.to_le_bytes().to_vec();
        head.extend(len.to_le_bytes());
        head.extend(bytes);
        self.raw(key, 9, &head)
    }

    pub(crate) fn strings(self, key: &str, values: &[&str]) -> Self {
        let mut bytes = Vec::new();
        for value in values {
            put_string(&mut bytes, value.as_bytes());
        }
        self.list(key, 8, values.len() as u64, &bytes)
    }

    pub(crate) fn i32s(self, key: &str, values: &[i32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.list(key, 5, values.len() as u64, &bytes)
    }

    pub(crate) fn f32s(self, key: &str, values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.list(key, 6, values.len() as u64, &bytes)
    }

    /// A tensor with its data; `dimensions` in the file's order, columns first.
    pub(crate) fn tensor(self, name: &str, dimensions: &[u64], kind: u32, data: &[u8]) -> Self {
        let offset = self.data.len() as u64;
        let mut builder = self.info(name, dimensions, kind, offset);
        builder.data.extend(data);
        builder.data.resize(builder.data.len().next_multiple_of(32), 0);
        builder
    }

    /// A tensor's description alone.
    pub(crate) fn info(mut self, name: &str, dimensions: &[u64], kind: u32, offset: u64) -> Self {
        put_string(&mut self.infos, name.as_bytes());
        self.infos.extend((dimensions.len() as u32).to_le_bytes());
        for dimension in dimensions {
            self.infos.extend(dimension.to_le_bytes());
        }
        self.infos.extend(kind.to_le_bytes());
        self.infos.extend(offset.to_le_bytes());
        self.tensor_count += 1;
        self
    }

    /// The file's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(&self.data);
        bytes
    }

    /// Everything before the padding and the data.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(self.tensor_count.to_le_bytes());
        bytes.extend(self.metadata_count.to_le_bytes());
        bytes.extend(&self.metadata);
        bytes.extend(&self.infos);
        bytes
    }

    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("model.gguf");
        std::fs::write(&path, self.bytes()).expect("the test folder is writable");
        path
    }
}

fn put_string(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text);
}
