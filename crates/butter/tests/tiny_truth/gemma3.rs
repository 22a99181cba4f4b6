use serde_json::{Value as Json, json};

use crate::{assert_change_shows, gguf_twin};

for_each_checkpoint! { gemma3 gemma3_classic gemma3_gguf }

#[test]
fn gguf() {
    gguf_twin("gemma3_gguf");
}

#[test]
fn each_rope_theta_changes_logits() {
    for (kind, theta) in [("full_attention", 110_000.0), ("sliding_attention", 1_100.0)] {
        assert_change_shows("gemma3", |config| {
            config["rope_parameters"][kind]["rope_theta"] = json!(theta);
        });
    }
    for (setting, theta) in [("rope_theta", 11_000.0), ("rope_local_base_freq", 5_500.0)] {
        assert_change_shows("gemma3_classic", |config| config[setting] = json!(theta));
    }
}

#[test]
fn rope_scaling_changes_logits() {
    assert_change_shows("gemma3_classic", |config| config["rope_scaling"] = json!(null));
}

#[test]
fn window_changes_logits() {
    for window in [23, 25, 512] {
        assert_change_shows("gemma3", |config| config["sliding_window"] = json!(window));
    }
}

#[test]
fn windowed_layers_change_logits() {
    assert_change_shows("gemma3", |config| {
        config["layer_types"][0] = json!("sliding_attention");
    });
    assert_change_shows("gemma3_classic", |config| config["sliding_window_pattern"] = json!(4));
    let all_but_every_sixth = |config: &mut Json| config["sliding_window_pattern"] = json!(null);
    assert_change_shows("gemma3_classic", all_but_every_sixth);
}

#[test]
fn eps_changes_logits() {
    assert_change_shows("gemma3", |config| config["rms_norm_eps"] = json!(1e-5));
}

#[test]
fn attention_scale_changes_logits() {
    assert_change_shows("gemma3", |config| config["query_pre_attn_scalar"] = json!(11));
}

#[test]
fn final_soft_cap_changes_logits() {
    for cap in [json!(5.5), json!(null)] {
        assert_change_shows("gemma3", |config| config["final_logit_softcapping"] = cap);
    }
}

#[test]
fn activation_changes_logits() {
    assert_change_shows("gemma3", |config| config["hidden_activation"] = json!("silu"));
}

#[test]
fn tied_embeddings_change_logits() {
    assert_change_shows("gemma3_classic", |config| config["tie_word_embeddings"] = json!(true));
}
