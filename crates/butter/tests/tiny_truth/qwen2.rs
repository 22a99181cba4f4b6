use serde_json::json;

use crate::{assert_change_shows, gguf_twin};

for_each_checkpoint! { qwen2 qwen2_gguf }

#[test]
fn gguf() {
    gguf_twin("qwen2_gguf");
}

#[test]
fn rope_theta_changes_logits() {
    assert_change_shows("qwen2", |config| {
        config["rope_parameters"]["rope_theta"] = json!(11_000.0);
    });
    assert_change_shows("qwen2_gguf", |config| config["rope_theta"] = json!(110_000.0));
}

#[test]
fn eps_changes_logits() {
    assert_change_shows("qwen2", |config| config["rms_norm_eps"] = json!(1e-5));
}

#[test]
fn window_changes_logits() {
    for window in [23, 25, 512] {
        assert_change_shows("qwen2", |config| config["sliding_window"] = json!(window));
    }
    assert_change_shows("qwen2", |config| config["use_sliding_window"] = json!(false));
    assert_change_shows("qwen2_gguf", |config| config["use_sliding_window"] = json!(true));
}

#[test]
fn windowed_layers_change_logits() {
    assert_change_shows("qwen2", |config| {
        config["layer_types"] = json!(["sliding_attention", "sliding_attention", "full_attention"]);
    });
    assert_change_shows("qwen2", |config| {
        config["layer_types"] = json!(null);
        config["max_window_layers"] = json!(2);
    });
}

#[test]
fn tied_embeddings_change_logits() {
    assert_change_shows("qwen2_gguf", |config| config["tie_word_embeddings"] = json!(true));
}
