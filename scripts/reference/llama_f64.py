"""The Llama forward pass written out in f64: a second opinion on transformers, and the measure of its rounding.

Only the rotary angles are rounded to f32 (`f32(position) * f32(inverse frequency)`), because that is how
transformers and the training codes define them; everything else is f64.
"""

import math

import torch


def inverse_frequencies(rope: dict, head_dim: int) -> torch.Tensor:
    """Rotary inverse frequencies `[head_dim / 2]` in f64, with Llama 3.1's scaling when `rope` asks for it."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = rope["rope_theta"] ** -exponents
    if rope["rope_type"] == "default":
        return frequencies
    assert rope["rope_type"] == "llama3", rope
    rotations = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    keep = ((rotations - low) / (high - low)).clamp(0, 1)
    return frequencies * (keep + (1 - keep) / rope["factor"])


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotates `[seq, heads, head_dim]` by `[seq, head_dim / 2]`, first half against second half."""
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


@torch.inference_mode()
def llama_logits(config, weights: dict[str, torch.Tensor], tokens) -> torch.Tensor:
    """Logits `[positions, vocab]` in f64. `weights` has the names of a Hugging Face Llama checkpoint."""
    heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    tokens = torch.as_tensor(tokens, dtype=torch.long)
    count = len(tokens)

    def linear(name, x):
        bias = weights.get(f"{name}.bias")
        y = x @ weights[f"{name}.weight"].double().T
        return y if bias is None else y + bias.double()

    def norm(name, x):
        return rms_norm(x, weights[f"{name}.weight"].double(), config.rms_norm_eps)

    frequencies = inverse_frequencies(config.rope_parameters, head_dim).float()
    angles = (torch.arange(count).float()[:, None] * frequencies).double()
    hidden_ahead = torch.ones(count, count, dtype=torch.bool).triu(1)

    x = weights["model.embed_tokens.weight"].double()[tokens]
    for index in range(config.num_hidden_layers):
        layer = f"model.layers.{index}"

        h = norm(f"{layer}.input_layernorm", x)
        q = rotate(linear(f"{layer}.self_attn.q_proj", h).view(count, heads, head_dim), angles)
        k = rotate(linear(f"{layer}.self_attn.k_proj", h).view(count, kv_heads, head_dim), angles)
        v = linear(f"{layer}.self_attn.v_proj", h).view(count, kv_heads, head_dim)
        q = q.view(count, kv_heads, heads // kv_heads, head_dim)
        scores = torch.einsum("qkgd,skd->kgqs", q, k) / math.sqrt(head_dim)
        probabilities = scores.masked_fill(hidden_ahead, -math.inf).softmax(-1)
        attended = torch.einsum("kgqs,skd->qkgd", probabilities, v).reshape(count, heads * head_dim)
        x = x + linear(f"{layer}.self_attn.o_proj", attended)

        h = norm(f"{layer}.post_attention_layernorm", x)
        gate, up = linear(f"{layer}.mlp.gate_proj", h), linear(f"{layer}.mlp.up_proj", h)
        x = x + linear(f"{layer}.mlp.down_proj", gate * torch.sigmoid(gate) * up)

    x = norm("model.norm", x)
    head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    return x @ weights[head].double().T
