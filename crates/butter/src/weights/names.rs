//! From llama.cpp's tensor names to Hugging Face's, which are the only ones that model code speaks.

/// Names outside the blocks.
const GLOBAL: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Names inside `blk.N`, for every architecture.
const BLOCK: [(&str, &str); 14] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Architectures with a norm on both sides of the feed-forward network, where `ffn_norm` is the one before it.
const SANDWICH_NORMS: [&str; 2] = ["gemma2", "gemma3"];

/// The Hugging Face name of a tensor of a GGUF file. A name without a counterpart, such as `rope_freqs.weight`, is
/// returned as it is.
///
/// `architecture` is the file's `general.architecture`: one llama.cpp name can stand for different roles.
pub fn huggingface_name(architecture: &str, gguf_name: &str) -> String {
    translate(architecture, gguf_name).unwrap_or_else(|| gguf_name.to_owned())
}

fn translate(architecture: &str, gguf_name: &str) -> Option<String> {
    let (path, parameter) = gguf_name.rsplit_once('.')?;
    if !matches!(parameter, "weight" | "bias") {
        return None;
    }
    let Some(in_block) = path.strip_prefix("blk.") else {
        let stem = lookup(&GLOBAL, path)?;
        return Some(format!("{stem}.{parameter}"));
    };
    let (layer, role) = in_block.split_once('.')?;
    let layer: u32 = layer.parse().ok()?;
    let stem = match role {
        "ffn_norm" if SANDWICH_NORMS.contains(&architecture) => "pre_feedforward_layernorm",
        _ => lookup(&BLOCK, role)?,
    };
    Some(format!("model.layers.{layer}.{stem}.{parameter}"))
}

fn lookup(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(gguf, _)| *gguf == name).map(|&(_, huggingface)| huggingface)
}

#[cfg(test)]
mod tests {
    use super::huggingface_name;

    #[test]
    fn llama_names_are_translated() {
        for (gguf, huggingface) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output.weight", "lm_head.weight"),
            ("output_norm.weight", "model.norm.weight"),
            ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"),
            ("blk.29.attn_output.weight", "model.layers.29.self_attn.o_proj.weight"),
            ("blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
            ("blk.3.attn_k.bias", "model.layers.3.self_attn.k_proj.bias"),
        ] {
            assert_eq!(huggingface_name("llama", gguf), huggingface);
        }
    }

    #[test]
    fn gemma3_norms_around_the_feed_forward_network_keep_their_roles() {
        for (gguf, huggingface) in [
            ("blk.1.post_attention_norm.weight", "model.layers.1.post_attention_layernorm.weight"),
            ("blk.1.ffn_norm.weight", "model.layers.1.pre_feedforward_layernorm.weight"),
            ("blk.1.post_ffw_norm.weight", "model.layers.1.post_feedforward_layernorm.weight"),
        ] {
            assert_eq!(huggingface_name("gemma3", gguf), huggingface);
        }
    }

    #[test]
    fn unknown_names_stay_as_they_are() {
        for name in
            ["rope_freqs.weight", "blk.x.attn_q.weight", "blk.0", "blk.0.attn_q.scale", "", "."]
        {
            assert_eq!(huggingface_name("llama", name), name);
        }
    }
}
