//! The program as a user runs it, and a tiny model to run it with.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

/// `butter ARGUMENTS` without a network, a terminal, or a cache of the user's.
pub(crate) fn butter<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_butter"));
    command
        .args(arguments)
        .env("HF_HUB_OFFLINE", "1")
        .env("HF_HUB_CACHE", std::env::temp_dir().join("butter-cli-no-cache"))
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a run has printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    butter(arguments).output().expect("the program starts").into()
}

pub(crate) fn run_with_input<S: AsRef<std::ffi::OsStr>>(
    arguments: impl IntoIterator<Item = S>,
    input: &str,
) -> Ran {
    let mut child = butter(arguments).stdin(Stdio::piped()).spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A program that wants none of it has already ended, which the test sees by its exit code.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the program ends").into()
}

/// What Ctrl-C does.
#[cfg(unix)]
pub(crate) fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.expect("kill is installed").success());
}

/// A folder that is removed at the end.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("butter-cli-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), bytes).expect("the temporary folder is writable");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One token for each byte, and one that starts a turn.
pub(crate) const VOCABULARY: usize = 257;
const HIDDEN: usize = 64;
const INTERMEDIATE: usize = 96;
/// So long that nobody waits for its end.
pub(crate) const CONTEXT: usize = 1 << 20;

/// A Llama of one layer with random weights, a tokenizer of bytes, and a chat template. No token ends an answer.
pub(crate) fn tiny_model() -> (Folder, String) {
    let folder = Folder::new();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": CONTEXT, "vocab_size": VOCABULARY,
        "tie_word_embeddings": true, "torch_dtype": "float32",
    });
    folder.file("config.json", config.to_string());
    folder.file("tokenizer.json", tokenizer().to_string());
    let template = "{% for message in messages %}<|turn|>{{ message.role }}: {{ message.content }}{% endfor %}<|turn|>";
    folder.file("tokenizer_config.json", json!({"chat_template": template}).to_string());
    folder.file("model.safetensors", weights());
    let path = folder.0.to_string_lossy().into_owned();
    (folder, path)
}

fn weights() -> Vec<u8> {
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let tensors = [
        ("model.embed_tokens.weight".to_owned(), vec![VOCABULARY, HIDDEN]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        (layer("input_layernorm"), vec![HIDDEN]),
        (layer("post_attention_layernorm"), vec![HIDDEN]),
        (layer("self_attn.q_proj"), vec![64, HIDDEN]),
        (layer("self_attn.k_proj"), vec![32, HIDDEN]),
        (layer("self_attn.v_proj"), vec![32, HIDDEN]),
        (layer("self_attn.o_proj"), vec![HIDDEN, 64]),
        (layer("mlp.gate_proj"), vec![INTERMEDIATE, HIDDEN]),
        (layer("mlp.up_proj"), vec![INTERMEDIATE, HIDDEN]),
        (layer("mlp.down_proj"), vec![HIDDEN, INTERMEDIATE]),
    ];
    let mut state = 7_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in tensors {
        let start = data.len();
        let values = shape.iter().product::<usize>();
        data.extend((0..values).flat_map(|_| random().to_le_bytes()));
        header.insert(
            name,
            json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let mut header = serde_json::Value::from(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

fn tokenizer() -> serde_json::Value {
    let vocabulary: serde_json::Map<_, _> =
        (0..=255).map(|byte| (byte_character(byte).to_string(), json!(byte))).collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "normalizer": null, "pre_tokenizer": byte_level, "decoder": byte_level,
        "post_processor": null,
        "added_tokens": [{
            "id": 256, "content": "<|turn|>", "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false,
        }],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    })
}

/// How GPT-2's vocabulary writes a byte.
fn byte_character(byte: u8) -> char {
    let is_plain = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_plain(byte) {
        return byte as char;
    }
    let others_before = (0..byte).filter(|&other| !is_plain(other)).count() as u32;
    char::from_u32(256 + others_before).expect("far below the surrogates")
}

/// A model in the folder that `BUTTER_TEST_MODELS` names; says so when there is none.
pub(crate) fn real_model(file: &str) -> Option<String> {
    let Some(folder) = std::env::var_os("BUTTER_TEST_MODELS") else {
        eprintln!("skipped: set BUTTER_TEST_MODELS to a folder with {file}");
        return None;
    };
    let path = Path::new(&folder).join(file);
    if !path.is_file() {
        eprintln!("skipped: there is no {}", path.display());
        return None;
    }
    Some(path.to_string_lossy().into_owned())
}
