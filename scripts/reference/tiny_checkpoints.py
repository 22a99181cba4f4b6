"""The tiny checkpoints: what each covers, its configuration, and how it is stored."""

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Checkpoint:
    """One folder of `tests/data/tiny`."""

    name: str
    covers: str
    config: dict
    model_type: str = "llama"
    dtype: torch.dtype = torch.float32
    shard_size: str | None = None
    classic_keys: bool = False
    gguf: bool = False
    seed: int = field(default=0, kw_only=True)


LLAMA = [
    Checkpoint(
        "grouped",
        "6 query and 2 kv heads, rope_theta 500000, untied, no `head_dim` and a top-level `rope_theta` as in older files",
        {
            "hidden_size": 96,
            "intermediate_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
            "rms_norm_eps": 1e-3,
        },
        classic_keys=True,
        seed=1,
    ),
    Checkpoint(
        "llama3_rope",
        "Llama 3.1 rope scaling of every wavelength above 16 positions, head_dim 20 instead of 96 / 6, tied, `rope_parameters`",
        {
            "hidden_size": 96,
            "intermediate_size": 88,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 20,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            "tie_word_embeddings": True,
        },
        seed=2,
    ),
    Checkpoint(
        "biases",
        "attention_bias and mlp_bias, 3 layers, hidden size 32, head_dim 24, vocabulary 300, llama3 scaling under "
        "`rope_scaling` as in older files",
        {
            "vocab_size": 300,
            "hidden_size": 32,
            "intermediate_size": 56,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 24,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 2000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 48,
            },
            "attention_bias": True,
            "mlp_bias": True,
        },
        classic_keys=True,
        seed=3,
    ),
    Checkpoint(
        "bf16",
        "bf16 weights (computed in f32), hidden size 160, 5 query heads on 1 kv head, tied",
        {
            "hidden_size": 160,
            "intermediate_size": 104,
            "num_hidden_layers": 2,
            "num_attention_heads": 5,
            "num_key_value_heads": 1,
            "head_dim": 24,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "tie_word_embeddings": True,
        },
        dtype=torch.bfloat16,
        seed=4,
    ),
    Checkpoint(
        "sharded",
        "two shards with an index, as many kv heads as query heads, attention_bias without mlp_bias, untied",
        {
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
            "attention_bias": True,
        },
        shard_size="210KB",
        seed=5,
    ),
]

QWEN2 = [
    Checkpoint(
        "qwen2",
        "biases on queries, keys and values, a window of 24 in the layers from `max_window_layers` = 1 on, tied, "
        "`rope_parameters`",
        {
            "vocab_size": 96,
            "hidden_size": 48,
            "intermediate_size": 40,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "use_sliding_window": True,
            "sliding_window": 24,
            "max_window_layers": 1,
            "tie_word_embeddings": True,
        },
        model_type="qwen2",
        seed=6,
    ),
    Checkpoint(
        "qwen2_gguf",
        "f16, untied, a `sliding_window` that `use_sliding_window` turns off, keys as in older files; the same as GGUF",
        {
            "vocab_size": 96,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
            "sliding_window": 20,
            "max_window_layers": 0,
        },
        model_type="qwen2",
        dtype=torch.float16,
        classic_keys=True,
        gguf=True,
        seed=7,
    ),
]

GEMMA3 = [
    Checkpoint(
        "gemma3",
        "`layer_types` of no pattern, a window of 24, `rope_parameters` by kind of layer, head_dim 20 instead of 48 / 4, "
        "`query_pre_attn_scalar` 10, final soft cap 5",
        {
            "hidden_size": 48,
            "intermediate_size": 40,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 20,
            "query_pre_attn_scalar": 10,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "sliding_window": 24,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 100000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
            },
            "final_logit_softcapping": 5.0,
        },
        model_type="gemma3_text",
        seed=8,
    ),
    Checkpoint(
        "gemma3_classic",
        "bf16 weights (computed in f32), `sliding_window_pattern` 3, a window of 40, rope scaling by 4 in the full layers, "
        "untied, attention_bias, keys as in older files",
        {
            "hidden_size": 40,
            "intermediate_size": 56,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 40,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
            },
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
        model_type="gemma3_text",
        dtype=torch.bfloat16,
        classic_keys=True,
        seed=9,
    ),
    Checkpoint(
        "gemma3_gguf",
        "f16, 7 layers by the usual pattern of 6, a window of 30, tied; the same as GGUF, whose norms hold the 1 that "
        "Gemma adds, and which says neither pattern nor local theta",
        {
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_hidden_layers": 7,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 30,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 100000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        model_type="gemma3_text",
        dtype=torch.float16,
        gguf=True,
        seed=10,
    ),
]

FAMILIES = {"llama": LLAMA, "qwen2": QWEN2, "gemma3": GEMMA3}

DEFAULTS = {"vocab_size": 256, "rms_norm_eps": 1e-3, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2}

# Gemma's stream starts as large as its tied logits, so only a larger eps counts.
GEMMA3_DEFAULTS = DEFAULTS | {"vocab_size": 96, "rms_norm_eps": 0.02, "pad_token_id": 0}
