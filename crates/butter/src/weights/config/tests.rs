#![expect(clippy::float_cmp, reason = "numbers are read, not computed")]

use std::path::Path;

use serde_json::{Value as Json, json};

use super::*;
use crate::testing::TestFolder;
use crate::weights::gguf::builder::Builder;

/// `config.json` of Llama-3.2-1B-Instruct (transformers 4 style).
fn llama() -> Json {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 128_000,
        "eos_token_id": [128_001, 128_008, 128_009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "intermediate_size": 8192, "max_position_embeddings": 131_072, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500_000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 128_256
    })
}

fn read(json: &Json) -> Result<ModelConfig, WeightsError> {
    let settings = Settings::from_json(Path::new("config.json"), json.to_string().as_bytes())?;
    ModelConfig::read(&settings)
}

fn with(mut json: Json, changes: &Json) -> Json {
    for (key, value) in changes.as_object().expect("an object") {
        json[key] = value.clone();
    }
    json
}

fn llama3_scaling() -> RopeScaling {
    RopeScaling::Llama3 {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    }
}

#[test]
fn llama3_config_is_read() {
    let config = read(&llama()).expect("valid");
    assert_eq!((config.hidden_size, config.intermediate_size, config.num_layers), (2048, 8192, 16));
    assert_eq!((config.num_heads, config.num_kv_heads, config.head_dim), (32, 8, 64));
    assert_eq!(config.rope.theta, 500_000.0);
    assert_eq!(config.rope.scaling, llama3_scaling());
    assert_eq!((config.rope.layout, config.rope.dimensions), (RopeLayout::HalfSplit, 64));
    assert_eq!(config.eos_token_ids, [128_001, 128_008, 128_009]);
    assert!(config.tie_word_embeddings);
    assert_eq!(config.dtype, Some(Format::BF16));
    assert_eq!(config.attention_scale, 0.125);
}

#[test]
fn transformers_5_spelling_means_the_same() {
    let mut five = llama();
    let fields = five.as_object_mut().expect("an object");
    let mut parameters = fields.remove("rope_scaling").expect("there");
    parameters["rope_theta"] = fields.remove("rope_theta").expect("there");
    let dtype = fields.remove("torch_dtype").expect("there");
    fields.insert("rope_parameters".to_owned(), parameters);
    fields.insert("dtype".to_owned(), dtype);
    assert_eq!(read(&five).expect("valid"), read(&llama()).expect("valid"));
}

#[test]
fn gemma3_layers_differ() {
    let gemma = with(
        llama(),
        &json!({"model_type": "gemma3_text", "num_hidden_layers": 7, "sliding_window": 512, "rope_scaling": null,
            "hidden_act": null, "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1e6,
            "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 256, "tie_word_embeddings": null}),
    );
    let config = read(&gemma).expect("valid");
    let full: Vec<bool> =
        config.layer_attention.iter().map(|layer| *layer == LayerAttention::Full).collect();
    assert_eq!(full, [false, false, false, false, false, true, false]);
    assert_eq!((config.rope.theta, config.rope.local_theta), (1e6, Some(1e4)));
    assert_eq!((config.norm_offset, config.attention_scale), (1.0, 0.0625));
    assert_eq!(config.hidden_act, Activation::GeluTanh);
    assert!(config.tie_word_embeddings);

    let unsaid = with(gemma.clone(), &json!({"rope_theta": null, "rope_local_base_freq": null}));
    assert_eq!(read(&unsaid).expect("valid"), config);

    let five = with(
        gemma,
        &json!({"rope_theta": null, "rope_local_base_freq": null, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    );
    assert_eq!(read(&five).expect("valid"), config);
}

#[test]
fn gemma3_rotates_each_kind_of_layer_its_own_way() {
    let gemma = with(
        llama(),
        &json!({"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    );
    let rope = read(&gemma).expect("valid").rope;
    let (full, sliding) =
        (rope.in_layers(LayerAttention::Full), rope.in_layers(LayerAttention::Sliding));
    assert_eq!((full.theta, full.scaling), (1e6, RopeScaling::Linear { factor: 8.0 }));
    assert_eq!((sliding.theta, sliding.scaling), (1e4, RopeScaling::None));
    let llama = read(&llama()).expect("valid").rope;
    assert_eq!(llama.in_layers(LayerAttention::Sliding), llama);
}

#[test]
fn qwen2_has_biases_and_no_window_unless_told() {
    let qwen = with(
        llama(),
        &json!({"model_type": "qwen2", "sliding_window": 32768, "use_sliding_window": false, "rope_scaling": null}),
    );
    let config = read(&qwen).expect("valid");
    assert!(config.attention_bias && !config.attention_output_bias);
    assert_eq!((config.sliding_window, config.layer_attention[0]), (None, LayerAttention::Full));
    let unsaid = with(qwen.clone(), &json!({"use_sliding_window": null}));
    assert_eq!(read(&unsaid).expect("valid"), config);
    let windowed = with(qwen, &json!({"use_sliding_window": true, "max_window_layers": 10}));
    let layers = read(&windowed).expect("valid").layer_attention;
    assert_eq!((layers[9], layers[10]), (LayerAttention::Full, LayerAttention::Sliding));
}

#[test]
fn settings_that_change_results_are_not_ignored() {
    for (field, value) in [
        ("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0})),
        ("rope_scaling", json!({"type": "dynamic", "factor": 4.0})),
        ("rope_scaling", json!({"rope_type": "longrope"})),
        ("rope_parameters", json!({"rope_type": "yarn", "factor": 4.0})),
        ("hidden_act", json!("relu2")),
        ("num_local_experts", json!(8)),
        ("use_bidirectional_attention", json!(true)),
        ("quantization_config", json!({"quant_method": "gptq"})),
        ("model_type", json!("mamba2")),
    ] {
        let error = read(&with(llama(), &json!({ field: value }))).expect_err("not supported");
        assert!(matches!(error, WeightsError::UnsupportedSetting { .. }), "{field}: {error}");
        assert!(error.to_string().contains("supported: "), "{error}");
    }
}

#[test]
fn absurd_numbers_are_errors() {
    for (field, value) in [
        ("num_attention_heads", json!(0)),
        ("num_attention_heads", json!(-1)),
        ("num_attention_heads", json!(1.5)),
        ("num_attention_heads", json!("32")),
        ("num_key_value_heads", json!(7)),
        ("num_key_value_heads", json!(0)),
        ("num_hidden_layers", json!(1_000_000)),
        ("hidden_size", json!(u64::MAX)),
        ("intermediate_size", json!(1e300)),
        ("vocab_size", json!(0)),
        ("max_position_embeddings", json!(u64::MAX)),
        ("head_dim", json!(65)),
        ("rms_norm_eps", json!(-1)),
        ("rms_norm_eps", json!("small")),
        ("rope_theta", json!(0)),
        ("partial_rotary_factor", json!(2)),
        ("rope_scaling", json!(3)),
        ("rope_scaling", json!({"rope_type": "linear"})),
        (
            "rope_scaling",
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8192}),
        ),
        ("tie_word_embeddings", json!("yes")),
        ("eos_token_id", json!(-1)),
        ("eos_token_id", json!([{}])),
    ] {
        let error = read(&with(llama(), &json!({ field: value.clone() }))).expect_err(field);
        assert!(matches!(error, WeightsError::BadSetting { .. }), "{field} = {value}: {error}");
    }
    let uneven = with(
        llama(),
        &json!({"head_dim": null, "num_attention_heads": 24, "num_key_value_heads": 24}),
    );
    assert!(
        read(&uneven).expect_err("2048 / 24").to_string().contains("a multiple of the 24 heads")
    );
}

#[test]
fn missing_numbers_are_errors() {
    for field in [
        "model_type",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    ] {
        let error = read(&with(llama(), &json!({ field: null }))).expect_err(field);
        assert!(
            matches!(error, WeightsError::MissingSetting { .. })
                && error.to_string().contains(field),
            "{error}"
        );
    }
}

#[test]
fn text_that_is_no_config_is_an_error() {
    let deep = "[".repeat(100_000);
    for text in ["", "{", "[]", "3", "null", "{\"a\":", deep.as_str()] {
        assert!(Settings::from_json(Path::new("config.json"), text.as_bytes()).is_err());
    }
}

#[test]
fn generation_config_adds_ends_of_answers() {
    let folder = TestFolder::new();
    folder.file("config.json", with(llama(), &json!({"eos_token_id": 7})).to_string());
    folder.file("generation_config.json", r#"{"eos_token_id": [9, 7], "bos_token_id": 3}"#);
    let config = ModelConfig::from_folder(folder.path()).expect("valid");
    assert_eq!((config.bos_token_id, config.eos_token_ids), (Some(3), vec![9, 7]));
}

fn read_gguf(builder: &Builder) -> Result<ModelConfig, WeightsError> {
    let folder = TestFolder::new();
    ModelConfig::from_gguf(&Gguf::open(&builder.write(folder.path()))?)
}

#[test]
fn gguf_llama_is_interleaved() {
    let config = read_gguf(&Builder::tiny_llama()).expect("valid");
    assert_eq!((config.rope.layout, config.rope.dimensions), (RopeLayout::Interleaved, 4));
    assert_eq!((config.hidden_size, config.head_dim, config.vocab_size), (8, 4, 3));
    assert_eq!((config.rms_norm_eps, config.rope.theta), (1e-5, 10_000.0));
    assert!(config.tie_word_embeddings);
    assert_eq!(config.eos_token_ids, [2]);
}

#[test]
fn gguf_gemma3_has_added_the_offset_and_leaves_its_layers_unsaid() {
    let builder = Builder::default()
        .string("general.architecture", "gemma3")
        .u32("gemma3.block_count", 7)
        .u32("gemma3.context_length", 64)
        .u32("gemma3.embedding_length", 8)
        .u32("gemma3.feed_forward_length", 16)
        .u32("gemma3.attention.head_count", 2)
        .u32("gemma3.attention.head_count_kv", 1)
        .u32("gemma3.attention.key_length", 16)
        .u32("gemma3.attention.value_length", 16)
        .u32("gemma3.attention.sliding_window", 32)
        .f32("gemma3.attention.layer_norm_rms_epsilon", 1e-6)
        .f32("gemma3.rope.freq_base", 1e6)
        .tensor("token_embd.weight", &[8, 3], 0, &[0; 96]);
    let config = read_gguf(&builder).expect("valid");
    assert_eq!((config.model_type.as_str(), config.norm_offset), ("gemma3_text", 0.0));
    assert_eq!((config.rope.theta, config.rope.local_theta), (1e6, Some(1e4)));
    assert_eq!((config.sliding_window, config.attention_scale), (Some(32), 0.25));
    let full: Vec<bool> =
        config.layer_attention.iter().map(|layer| *layer == LayerAttention::Full).collect();
    assert_eq!(full, [false, false, false, false, false, true, false]);
    let scaled = builder.string("gemma3.rope.scaling.type", "linear");
    let rope = read_gguf(&scaled.f32("gemma3.rope.scaling.factor", 8.0)).expect("valid").rope;
    assert_eq!(rope.scaling, RopeScaling::Linear { factor: 8.0 });
}

#[test]
fn gguf_frequency_factors_are_the_scaling() {
    let factors: Vec<u8> = [1.0_f32, 32.0].iter().flat_map(|factor| factor.to_le_bytes()).collect();
    let config = read_gguf(&Builder::tiny_llama().tensor("rope_freqs.weight", &[2], 0, &factors))
        .expect("valid");
    assert_eq!(config.rope.scaling, RopeScaling::Factors(vec![1.0, 32.0]));
    let wrong_shape = Builder::tiny_llama().tensor("rope_freqs.weight", &[1], 0, &factors[..4]);
    assert!(read_gguf(&wrong_shape).expect_err("half a head").to_string().contains("shape [2]"));
}

#[test]
fn gguf_linear_scaling_is_read_and_yarn_refused() {
    let scaled = Builder::tiny_llama()
        .string("llama.rope.scaling.type", "linear")
        .f32("llama.rope.scaling.factor", 8.0);
    assert_eq!(
        read_gguf(&scaled).expect("valid").rope.scaling,
        RopeScaling::Linear { factor: 8.0 }
    );
    let yarn = Builder::tiny_llama()
        .string("llama.rope.scaling.type", "yarn")
        .f32("llama.rope.scaling.factor", 4.0);
    assert!(
        read_gguf(&yarn).expect_err("unsupported").to_string().contains("llama.rope.scaling.type")
    );
}

#[test]
fn unknown_gguf_architecture_lists_the_known() {
    let builder =
        Builder::default().string("general.architecture", "rwkv7").tensor("t", &[8], 0, &[0; 32]);
    let message = read_gguf(&builder).expect_err("unknown").to_string();
    assert!(message.contains("rwkv7") && message.contains("llama, qwen2"), "{message}");
}
