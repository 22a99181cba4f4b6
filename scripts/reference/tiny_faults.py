"""Tiny models with one thing wrong each: what a test of logits must be able to see."""

import copy
import math

import torch


def changed(model, *, rope: dict | None = None, weights=None, embedding_scale: float | None = None, **options):
    """A copy with another configuration or with `weights(name, tensor)` in place of each weight.

    `rope` changes parameters of the rotation; those of one kind of layer are under its name.
    """
    config = copy.deepcopy(model.config)
    for key, value in options.items():
        setattr(config, key, value)
    parameters = config.rope_parameters
    for key, value in (rope or {}).items():
        parameters = parameters | {key: parameters[key] | value if isinstance(value, dict) else value}
    config.rope_parameters = parameters
    copied = type(model)(config).float().eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    copied.load_state_dict({name: weights(name, tensor) if weights else tensor for name, tensor in state.items()})
    if embedding_scale is not None:
        copied.model.embed_tokens.embed_scale.fill_(embedding_scale)
    return copied


def head_dim_of(config) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def reordered_heads(model, order: list[int]):
    """Query head `order[i]` reads the kv head that belongs to query head `i`."""
    config = model.config

    def weights(name, tensor):
        if "self_attn.q_proj" in name:
            return tensor.unflatten(0, (config.num_attention_heads, -1))[order].flatten(0, 1)
        if name.endswith("self_attn.o_proj.weight"):
            return tensor.unflatten(1, (config.num_attention_heads, -1))[:, order].flatten(1, 2)
        return tensor

    return changed(model, weights=weights)


def interleaved_rope(model):
    """The weights as if rotary pairs were neighbours, which half-split code would then rotate wrongly."""
    half = head_dim_of(model.config) // 2

    def weights(name, tensor):
        if not any(part in name for part in ("q_proj", "k_proj", "q_norm", "k_norm")):
            return tensor
        return tensor.unflatten(0, (-1, half, 2)).transpose(1, 2).reshape(tensor.shape)

    return changed(model, weights=weights)


def scaled(model, part: str, factor: float):
    return changed(model, weights=lambda name, tensor: tensor * factor if part in name else tensor)


def without(model, suffix: str, neutral: float):
    return changed(
        model, weights=lambda name, tensor: torch.full_like(tensor, neutral) if name.endswith(suffix) else tensor
    )


def faults(model) -> dict:
    """Models with one thing wrong each, as far as it applies to this configuration."""
    is_gemma = model.config.model_type == "gemma3_text"
    return common_faults(model) | window_faults(model) | (gemma_faults(model) if is_gemma else llama_faults(model))


def common_faults(model) -> dict:
    config = model.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    has_bias = {name.split(".")[-2] for name in model.state_dict() if name.endswith(".bias")}
    found = {
        f"eps 1e-5 instead of {config.rms_norm_eps:g}": changed(model, rms_norm_eps=1e-5),
        "rotary pairs interleaved": interleaved_rope(model),
    }
    if 1 < kv_heads < heads:
        order = sorted(range(heads), key=lambda head: head % kv_heads)
        found["query head h reads kv head h % kv_heads"] = reordered_heads(model, order)
    for part in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
        if part in has_bias:
            found[f"{part} bias ignored"] = without(model, f"{part}.bias", 0)
    if not config.tie_word_embeddings:
        embedding = model.state_dict()["model.embed_tokens.weight"]
        found["tied although untied"] = changed(
            model, weights=lambda name, tensor: embedding.clone() if name == "lm_head.weight" else tensor
        )
    return found


def llama_faults(model) -> dict:
    """What a Llama or a Qwen2 has: one rotation, two norms a block."""
    config = model.config
    rope = config.rope_parameters
    found = {
        "rope_theta 10 % larger": changed(model, rope={"rope_theta": 1.1 * rope["rope_theta"]}),
        "GELU instead of SiLU": changed(model, hidden_act="gelu_pytorch_tanh"),
        "norm weights ignored: input": without(model, "input_layernorm.weight", 1),
        "norm weights ignored: post-attention": without(model, "post_attention_layernorm.weight", 1),
        "norm weights ignored: final": without(model, "model.norm.weight", 1),
    }
    if rope["rope_type"] == "llama3":
        found |= {
            "rope scaling factor halved": changed(model, rope={"factor": rope["factor"] / 2}),
            "rope scaling ignored": changed(model, rope={"rope_type": "default"}),
            "rope low_freq_factor 1 -> 1.5": changed(model, rope={"low_freq_factor": 1.5}),
            "rope high_freq_factor 4 -> 3": changed(model, rope={"high_freq_factor": 3.0}),
            "rope original positions doubled": changed(
                model, rope={"original_max_position_embeddings": 2 * rope["original_max_position_embeddings"]}
            ),
        }
    if head_dim_of(config) * config.num_attention_heads != config.hidden_size:
        scale = math.sqrt(config.head_dim * config.num_attention_heads / config.hidden_size)
        found["attention scaled by hidden_size / heads"] = scaled(model, "q_proj", scale)
    return found


def window_faults(model) -> dict:
    """Windows of another length, or in other layers."""
    config = model.config
    types = getattr(config, "layer_types", None)
    if types is None:
        return {}
    if config.sliding_window is None:
        everywhere = ["sliding_attention"] * len(types)
        return {"window although turned off": changed(model, sliding_window=20, layer_types=everywhere)}
    first_full = types.index("full_attention")
    other = [*types[:first_full], "sliding_attention", *types[first_full + 1 :]]
    return {
        "window one shorter": changed(model, sliding_window=config.sliding_window - 1),
        "window one longer": changed(model, sliding_window=config.sliding_window + 1),
        "window ignored": changed(model, sliding_window=config.max_position_embeddings),
        "window in the first full layer too": changed(model, layer_types=other),
    }


def gemma_faults(model) -> dict:
    """What Gemma 3 has: a rotation for each kind of layer, norms around each sub-layer and of heads, scales and caps."""
    config = model.config
    full, sliding = (config.rope_parameters[kind] for kind in ("full_attention", "sliding_attention"))
    everywhere = {"full_attention": full, "sliding_attention": full}
    norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    no_offset = changed(model, weights=lambda name, tensor: tensor - 1 if name.endswith("norm.weight") else tensor)
    found = {
        "rope_theta of full layers 10 % larger": changed(
            model, rope={"full_attention": {"rope_theta": 1.1 * full["rope_theta"]}}
        ),
        "rope_theta of sliding layers 10 % larger": changed(
            model, rope={"sliding_attention": {"rope_theta": 1.1 * sliding["rope_theta"]}}
        ),
        "the full layers' rotation everywhere": changed(model, rope=everywhere),
        "exact GELU instead of its approximation": changed(model, hidden_activation="gelu"),
        "SiLU instead of GELU": changed(model, hidden_activation="silu"),
        "norm offset of 1 left out": no_offset,
        "norm weights ignored: final": without(model, "model.norm.weight", 0),
        "norm weights ignored: queries": without(model, "q_norm.weight", 0),
        "norm weights ignored: keys": without(model, "k_norm.weight", 0),
        "query_pre_attn_scalar one larger": changed(model, query_pre_attn_scalar=config.query_pre_attn_scalar + 1),
        "embeddings not scaled": changed(model, embedding_scale=1.0),
        "embeddings' scale rounded to bf16": changed(
            model, embedding_scale=float(torch.tensor(math.sqrt(config.hidden_size)).bfloat16())
        ),
    }
    for norm in norms:
        found[f"norm weights ignored: {norm}"] = without(model, f"{norm}_layernorm.weight", 0)
    if config.final_logit_softcapping is not None:
        found["final soft cap ignored"] = changed(model, final_logit_softcapping=None)
        found["final soft cap 10 % larger"] = changed(
            model, final_logit_softcapping=1.1 * config.final_logit_softcapping
        )
    if full["rope_type"] == "linear":
        found["rope scaling ignored"] = changed(model, rope={"full_attention": {"rope_type": "default"}})
    return found
