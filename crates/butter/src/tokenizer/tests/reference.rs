//! Whole tokenizers against Hugging Face's: real ones, and small ones in the settings that real ones have.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::strings::assert_equals_reference;
use crate::testing::{TestFolder, fixture, model_file};
use crate::tokenizer::Tokenizer;
use crate::weights::gguf::Gguf;
use crate::weights::gguf::builder::Builder;

fn real_json(name: &str) {
    let Some(file) = model_file(&format!("tokenizers/{name}/tokenizer.json")) else { return };
    let tokenizer = Tokenizer::from_folder(file.parent().expect("a folder")).expect("valid");
    assert_equals_reference(name, &tokenizer);
}

fn real_gguf(name: &str, file: &str) {
    let Some(file) = model_file(file) else { return };
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&file).expect("valid")).expect("valid");
    assert_equals_reference(name, &tokenizer);
}

#[test]
fn gemma3_from_json() {
    real_json("gemma3");
}

/// The same ids from scores as from the list of merges.
#[test]
fn gemma3_from_gguf() {
    real_gguf("gemma3", "gemma-3-270m-q4_k_m.gguf");
}

#[test]
fn llama3_from_json() {
    real_json("llama3_1");
}

#[test]
fn qwen3_from_json() {
    real_json("qwen3");
}

#[test]
fn qwen2_from_gguf() {
    real_gguf("qwen2_5", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
}

#[test]
fn smollm2_from_gguf() {
    real_gguf("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf");
}

/// Made by `scripts/reference/tokenizer_tiny.py`.
#[derive(Deserialize)]
struct Tiny {
    vocabularies: BTreeMap<String, TinyVocabulary>,
    tokenizers: BTreeMap<String, TinyTokenizer>,
}

#[derive(Deserialize)]
struct TinyVocabulary {
    tokens: Vec<String>,
    merges: Vec<[String; 2]>,
    scores: Option<Vec<f32>>,
    types: Vec<i32>,
}

#[derive(Deserialize)]
struct TinyTokenizer {
    vocabulary: String,
    /// A `tokenizer.json` without vocabulary and merges.
    json: Json,
    gguf: Option<TinyGguf>,
}

/// Metadata; what is absent is left to what readers take for granted.
#[derive(Deserialize)]
struct TinyGguf {
    model: String,
    pre: Option<String>,
    add_space_prefix: Option<bool>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    /// Whether user-defined runs of `▁` are written as spaces, as converters of Gemma do.
    #[serde(default)]
    spell_spaces: bool,
}

fn tiny(name: &str) -> (TinyVocabulary, TinyTokenizer) {
    let mut tiny: Tiny =
        serde_json::from_slice(&fixture("tokenizer/tiny.json")).expect("valid JSON");
    let tokenizer = tiny.tokenizers.remove(name).expect("a tokenizer");
    (tiny.vocabularies.remove(&tokenizer.vocabulary).expect("a vocabulary"), tokenizer)
}

fn from_json(name: &str) {
    let (vocabulary, TinyTokenizer { mut json, .. }) = tiny(name);
    let ids: Map<String, Json> = vocabulary
        .tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    json["model"]["vocab"] = Json::Object(ids);
    json["model"]["merges"] = json!(vocabulary.merges);
    let folder = TestFolder::new();
    folder.file("tokenizer.json", json.to_string());
    let tokenizer = Tokenizer::from_folder(folder.path()).expect("valid");
    assert_equals_reference(&format!("tiny_{name}"), &tokenizer);
}

fn from_gguf(name: &str) {
    const USER_DEFINED: i32 = 4;
    let (vocabulary, TinyTokenizer { gguf, .. }) = tiny(name);
    let gguf = gguf.expect("settings for GGUF");
    let spelled = |(token, kind): (&String, &i32)| {
        let is_respelled = gguf.spell_spaces && *kind == USER_DEFINED;
        if is_respelled { token.replace('▁', " ") } else { token.clone() }
    };
    let tokens: Vec<String> =
        vocabulary.tokens.iter().zip(&vocabulary.types).map(spelled).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let merges: Vec<String> = vocabulary.merges.iter().map(|merge| merge.join(" ")).collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    let special = |token: &str| tokens.iter().position(|other| *other == token).expect("there");
    let mut builder = Builder::default()
        .string("tokenizer.ggml.model", &gguf.model)
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &vocabulary.types)
        .u32("tokenizer.ggml.bos_token_id", special("<s>") as u32)
        .u32("tokenizer.ggml.eos_token_id", special("</s>") as u32);
    builder = match &vocabulary.scores {
        Some(scores) => builder.f32s("tokenizer.ggml.scores", scores),
        None => builder.strings("tokenizer.ggml.merges", &merges),
    };
    if let Some(pre) = &gguf.pre {
        builder = builder.string("tokenizer.ggml.pre", pre);
    }
    for (key, value) in [
        ("add_space_prefix", gguf.add_space_prefix),
        ("add_bos_token", gguf.add_bos_token),
        ("add_eos_token", gguf.add_eos_token),
    ] {
        if let Some(value) = value {
            builder = builder.bool(&format!("tokenizer.ggml.{key}"), value);
        }
    }
    let folder = TestFolder::new();
    let file = Gguf::open(&builder.write(folder.path())).expect("a valid file");
    let tokenizer = Tokenizer::from_gguf(&file).expect("valid");
    assert_equals_reference(&format!("tiny_{name}"), &tokenizer);
}

macro_rules! tiny_tokenizers {
    ($($name:ident: $($form:ident)+;)*) => {$(
        mod $name {
            $(#[test]
            fn $form() {
                super::$form(stringify!($name));
            })+
        }
    )*};
}

tiny_tokenizers! {
    llama2: from_json from_gguf;
    llama2_metaspace: from_json;
    gemma: from_json from_gguf;
    smollm: from_json from_gguf;
    gpt2: from_json from_gguf;
    llama3: from_json from_gguf;
    qwen2: from_json from_gguf;
    added: from_json;
}
