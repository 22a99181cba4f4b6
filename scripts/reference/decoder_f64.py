"""The forward pass written out in f64: a second opinion on transformers, and the measure of its rounding.

Llama, Qwen2 and Gemma 3. What a model has beyond Llama shows in its configuration and in the names of its weights.
Only the rotary angles are rounded to f32 (`f32(position) * f32(inverse frequency)`), and Gemma's factor of the
embeddings, because that is how transformers and the training codes define them; everything else is f64.
"""

import math

import torch


def inverse_frequencies(rope: dict, head_dim: int) -> torch.Tensor:
    """Rotary inverse frequencies `[head_dim / 2]` in f64, stretched as `rope` asks for."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = rope["rope_theta"] ** -exponents
    if rope["rope_type"] == "default":
        return frequencies
    if rope["rope_type"] == "linear":
        return frequencies / rope["factor"]
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


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def soft_cap(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    return x if cap is None else cap * torch.tanh(x / cap)


ACTIVATIONS = {"silu": lambda x: x * torch.sigmoid(x), "gelu_pytorch_tanh": gelu_tanh}


@torch.inference_mode()
def decoder_logits(config, weights: dict[str, torch.Tensor], tokens) -> torch.Tensor:
    """Logits `[positions, vocab]` in f64. `weights` has the names of a Hugging Face checkpoint."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    is_gemma = config.model_type == "gemma3_text"
    tokens = torch.as_tensor(tokens, dtype=torch.long)
    count = len(tokens)

    def linear(name, x):
        bias = weights.get(f"{name}.bias")
        y = x @ weights[f"{name}.weight"].double().T
        return y if bias is None else y + bias.double()

    def norm(name, x):
        weight = weights.get(f"{name}.weight")
        # Llama has no norms of heads, nor of what a sub-layer gives out.
        return x if weight is None else rms_norm(x, weight.double() + is_gemma, config.rms_norm_eps)

    def kind(index):
        types = getattr(config, "layer_types", None)
        return types[index] if types else "full_attention"

    def rope_angles(index):
        rope = config.rope_parameters.get(kind(index), config.rope_parameters)
        frequencies = inverse_frequencies(rope, head_dim).float()
        return (torch.arange(count).float()[:, None] * frequencies).double()

    def hidden(index):
        ahead = torch.ones(count, count, dtype=torch.bool).triu(1)
        if kind(index) == "full_attention":
            return ahead
        return ahead | torch.ones(count, count, dtype=torch.bool).tril(-config.sliding_window)

    scale = config.query_pre_attn_scalar if is_gemma else head_dim
    activation = ACTIVATIONS[config.hidden_activation if is_gemma else config.hidden_act]
    embedding_scale = torch.tensor(math.sqrt(config.hidden_size) if is_gemma else 1.0).double()

    x = weights["model.embed_tokens.weight"].double()[tokens] * embedding_scale
    for index in range(config.num_hidden_layers):
        layer, angles = f"model.layers.{index}", rope_angles(index)
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"

        h = norm(f"{layer}.input_layernorm", x)
        q = linear(f"{attention}.q_proj", h).view(count, heads, head_dim)
        k = linear(f"{attention}.k_proj", h).view(count, kv_heads, head_dim)
        v = linear(f"{attention}.v_proj", h).view(count, kv_heads, head_dim)
        q = rotate(norm(f"{attention}.q_norm", q), angles).view(count, kv_heads, heads // kv_heads, head_dim)
        k = rotate(norm(f"{attention}.k_norm", k), angles)
        scores = torch.einsum("qkgd,skd->kgqs", q, k) / math.sqrt(scale)
        probabilities = scores.masked_fill(hidden(index), -math.inf).softmax(-1)
        attended = torch.einsum("kgqs,skd->qkgd", probabilities, v).reshape(count, heads * head_dim)
        output = linear(f"{attention}.o_proj", attended)
        x = x + (norm(f"{layer}.post_attention_layernorm", output) if is_gemma else output)

        h = norm(f"{layer}.{'pre_feedforward_layernorm' if is_gemma else 'post_attention_layernorm'}", x)
        gate, up = linear(f"{mlp}.gate_proj", h), linear(f"{mlp}.up_proj", h)
        x = x + norm(f"{layer}.post_feedforward_layernorm", linear(f"{mlp}.down_proj", activation(gate) * up))

    x = norm("model.norm", x)
    head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    return soft_cap(x @ weights[head].double().T, getattr(config, "final_logit_softcapping", None))
