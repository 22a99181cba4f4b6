use serde_json::json;

use crate::assert_change_shows;

for_each_checkpoint! { grouped llama3_rope biases bf16 sharded }

#[test]
fn rope_theta_changes_logits() {
    assert_change_shows("grouped", |config| config["rope_theta"] = json!(550_000.0));
}

#[test]
fn rope_scaling_changes_logits() {
    for (setting, value) in [
        ("factor", json!(4.0)),
        ("low_freq_factor", json!(1.5)),
        ("high_freq_factor", json!(3.0)),
        ("original_max_position_embeddings", json!(128)),
        ("rope_type", json!("default")),
    ] {
        assert_change_shows("llama3_rope", |config| config["rope_parameters"][setting] = value);
    }
}

#[test]
fn eps_changes_logits() {
    assert_change_shows("grouped", |config| config["rms_norm_eps"] = json!(1e-5));
}

#[test]
fn activation_changes_logits() {
    assert_change_shows("grouped", |config| config["hidden_act"] = json!("gelu"));
}

#[test]
fn biases_change_logits() {
    for setting in ["attention_bias", "mlp_bias"] {
        assert_change_shows("biases", |config| config[setting] = json!(false));
    }
}

#[test]
fn tied_embeddings_change_logits() {
    assert_change_shows("grouped", |config| config["tie_word_embeddings"] = json!(true));
}
