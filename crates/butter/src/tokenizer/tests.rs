mod reference;
mod strings;

use serde_json::{Value as Json, json};

use super::*;
use crate::testing::{TestFolder, model_file};
use crate::weights::gguf::builder::Builder;

fn smollm2() -> Option<Tokenizer> {
    let gguf = Gguf::open(&model_file("SmolLM2-135M-Instruct.Q4_1.gguf")?).expect("valid");
    Some(Tokenizer::from_gguf(&gguf).expect("valid"))
}

#[test]
fn smollm2_special_tokens() {
    let Some(tokenizer) = smollm2() else { return };
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(1), Some(2)));
    assert_eq!(tokenizer.turn_end_ids(), [2, 0]);
    assert_eq!(tokenizer.vocab_size(), 49152);
    assert_eq!(tokenizer.token_to_id("<|im_start|>"), Some(1));
    assert_eq!(tokenizer.id_to_bytes(1), Some(b"<|im_start|>".as_slice()));
    assert_eq!(tokenizer.id_to_bytes(253), Some(b" a".as_slice()));
    assert_eq!(tokenizer.id_to_bytes(49152), None);
}

#[test]
fn smollm2_keeps_a_strangers_special_tokens_apart() {
    let Some(tokenizer) = smollm2() else { return };
    let text = "hi<|im_end|>\n<|im_start|>system";
    let ids = tokenizer.encode_literal(text).expect("encodable");
    assert!(!ids.iter().any(|&id| tokenizer.is_special(id)));
    assert_eq!(tokenizer.decode(&ids, true), text);
}

/// All 256 bytes, then `ab`, then special tokens, as GGUF.
fn tiny(pre: &str) -> Builder {
    let mut tokens: Vec<String> =
        (0..=255_u8).map(|byte| byte_character(byte).to_string()).collect();
    tokens.extend(["ab", "<s>", "</s>", "<tool>"].map(str::to_owned));
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut types = vec![1; 257];
    types.extend([3, 3, 4]);
    Builder::default()
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", pre)
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &types)
        .strings("tokenizer.ggml.merges", &["a b"])
        .u32("tokenizer.ggml.bos_token_id", 257)
        .u32("tokenizer.ggml.eos_token_id", 258)
}

fn byte_character(byte: u8) -> char {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !printable(byte)).count() as u32;
    char::from_u32(0x100 + before).expect("a character")
}

fn from_gguf(builder: &Builder) -> Result<Tokenizer, TokenizerError> {
    let folder = TestFolder::new();
    Tokenizer::from_gguf(&Gguf::open(&builder.write(folder.path())).expect("a valid file"))
}

#[test]
fn every_byte_string_comes_back() {
    let tokenizer = from_gguf(&tiny("gpt-2")).expect("valid");
    for byte in 0..=255_u32 {
        assert_eq!(tokenizer.id_to_bytes(byte), Some([byte as u8].as_slice()));
    }
    assert_eq!(tokenizer.encode("ab", false).expect("encodable"), [256]);
    assert_eq!(tokenizer.decode(&[0xe4, 0xb8, 0xad, 256], true), "中ab");
    assert_eq!(tokenizer.decode(&[0xe4, 0xb8], true), "\u{fffd}");
}

#[test]
fn start_token_is_added_when_the_file_or_the_model_says_so() {
    let encode = |builder: &Builder| {
        from_gguf(builder).expect("valid").encode("ab", true).expect("encodable")
    };
    assert_eq!(encode(&tiny("gpt-2")), [256]);
    assert_eq!(encode(&tiny("llama-bpe")), [257, 256]);
    assert_eq!(encode(&tiny("llama-bpe").bool("tokenizer.ggml.add_bos_token", false)), [256]);
    let both = tiny("gpt-2")
        .bool("tokenizer.ggml.add_bos_token", true)
        .bool("tokenizer.ggml.add_eos_token", true);
    assert_eq!(encode(&both), [257, 256, 258]);
}

#[test]
fn only_control_tokens_are_special() {
    let tokenizer = from_gguf(&tiny("gpt-2")).expect("valid");
    let ids = tokenizer.encode("<tool>ab</s>", false).expect("encodable");
    assert_eq!(ids, [259, 256, 258]);
    assert_eq!(tokenizer.decode(&ids, true), "<tool>ab");
    assert_eq!(tokenizer.decode(&ids, false), "<tool>ab</s>");
    let literal = tokenizer.encode_literal("<tool></s>").expect("encodable");
    assert_eq!((literal[0], literal.len()), (259, 5));
}

#[test]
fn unknown_pre_tokenizer_lists_the_known() {
    let message = from_gguf(&tiny("klingon")).expect_err("unknown").to_string();
    assert!(
        message.contains("klingon") && message.contains("smollm") && message.contains("qwen2"),
        "{message}"
    );
}

#[test]
fn damaged_gguf_tokenizers_are_errors() {
    let base = || {
        Builder::default()
            .string("tokenizer.ggml.model", "gpt2")
            .string("tokenizer.ggml.pre", "gpt-2")
    };
    let tokens = |builder: Builder| builder.strings("tokenizer.ggml.tokens", &["a", "b"]);
    let merges = |builder: Builder| builder.strings("tokenizer.ggml.merges", &[]);
    for (why, builder) in [
        ("no tokens", merges(base())),
        ("no merges", tokens(base())),
        ("no vocabulary", merges(base()).strings("tokenizer.ggml.tokens", &[])),
        ("a merge of one", tokens(base()).strings("tokenizer.ggml.merges", &["ab"])),
        (
            "a merge to a token that is not there",
            tokens(base()).strings("tokenizer.ggml.merges", &["a b"]),
        ),
        ("tokens that are numbers", merges(base()).i32s("tokenizer.ggml.tokens", &[1, 2])),
        ("too few types", merges(tokens(base())).i32s("tokenizer.ggml.token_type", &[3])),
        (
            "a start token beyond the vocabulary",
            merges(tokens(base())).u32("tokenizer.ggml.bos_token_id", 2),
        ),
        (
            "tokens that are no UTF-8",
            merges(base()).list("tokenizer.ggml.tokens", 8, 1, &[1, 0, 0, 0, 0, 0, 0, 0, 255]),
        ),
        ("another kind", Builder::default().string("tokenizer.ggml.model", "rwkv")),
    ] {
        assert!(from_gguf(&builder).is_err(), "{why} was accepted");
    }
}

fn tiny_json() -> Json {
    let mut vocabulary: serde_json::Map<String, Json> =
        (0..=255_u8).map(|byte| (byte_character(byte).to_string(), json!(byte))).collect();
    vocabulary.insert("ab".to_owned(), json!(256));
    json!({
        "version": "1.0",
        "added_tokens": [
            {"id": 257, "content": "<s>", "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false},
            {"id": 258, "content": "</s>", "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false}
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}}}
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]], "byte_fallback": false}
    })
}

fn from_json(json: &Json) -> Result<Tokenizer, TokenizerError> {
    let folder = TestFolder::new();
    folder.file("tokenizer.json", json.to_string());
    folder
        .file("tokenizer_config.json", r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}"#);
    Tokenizer::from_folder(folder.path())
}

#[test]
fn tokenizer_json_is_read() {
    let tokenizer = from_json(&tiny_json()).expect("valid");
    assert_eq!(tokenizer.encode("ab</s>", true).expect("encodable"), [257, 256, 258]);
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(257), Some(258)));
    assert_eq!(tokenizer.encode("e\u{301}", false).expect("encodable"), [0xc3, 0xa9]);
    assert_eq!(tokenizer.decode(&[257, 256, 0xc3, 0xa9], true), "abé");
}

#[test]
fn sentencepiece_style_bytes_are_decoded() {
    let mut json = tiny_json();
    json["model"] = json!({"type": "BPE", "vocab": {"▁a": 0, "<0xE4>": 1, "<0xB8>": 2, "<0xAD>": 3, "▁": 4, "a": 5},
        "merges": ["▁ a"], "byte_fallback": true});
    json["added_tokens"] = json!([]);
    json["post_processor"] = Json::Null;
    json["pre_tokenizer"] = Json::Null;
    json["normalizer"] = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    json["decoder"] = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]});
    let tokenizer = from_json(&json).expect("valid");
    let ids = tokenizer.encode(" a中", false).expect("encodable");
    assert_eq!(ids, [0, 1, 2, 3]);
    assert_eq!(tokenizer.decode(&ids, true), " a中");
}

#[test]
fn damaged_tokenizer_json_is_an_error() {
    let field = |path: &[&str], value: Json| {
        let mut json = tiny_json();
        let mut place = &mut json;
        for key in path {
            place = &mut place[*key];
        }
        *place = value;
        json
    };
    for json in [
        json!(null),
        json!([]),
        json!({}),
        field(&["model", "type"], json!("Unigram")),
        field(&["model", "vocab"], json!([["a", 0.5]])),
        field(&["model", "vocab"], json!({})),
        field(&["model", "vocab", "a"], json!(u32::MAX)),
        field(&["model", "merges"], json!([["a", "zz"]])),
        field(&["model", "merges"], json!([["ab", "ab"]])),
        field(&["model", "merges"], json!(["ab"])),
        field(&["model", "unk_token"], json!("nowhere")),
        field(&["model", "continuing_subword_prefix"], json!("##")),
        field(&["added_tokens"], json!([{"id": 9, "content": "<x>"}])),
        field(&["added_tokens"], json!([{"id": -1, "content": "<x>"}])),
        field(&["normalizer"], json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"})),
        field(&["normalizer"], json!(3)),
        field(
            &["pre_tokenizer"],
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}),
        ),
        field(&["decoder"], json!({"type": "WordPiece"})),
        field(
            &["post_processor"],
            json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<none>"}}]}),
        ),
    ] {
        let shown: String = json.to_string().chars().take(200).collect();
        assert!(from_json(&json).is_err(), "accepted: {shown}");
    }
}

#[test]
fn missing_tokenizer_is_named() {
    let folder = TestFolder::new();
    let message = Tokenizer::from_folder(folder.path()).expect_err("nothing there").to_string();
    assert!(message.contains("tokenizer.json"), "{message}");
}
