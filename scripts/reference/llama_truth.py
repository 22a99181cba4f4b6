"""Expected values for a real Llama GGUF: exact f32 of its dequantised weights, by transformers.

    llama_truth.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --text brown-60k.txt \
                   --out tests/data/smollm2_truth.safetensors [--readme tests/data/README.md]

Before anything is written, every weight is compared bit by bit with the `gguf` package's dequantisation and with
the few lines of it below, the configuration with the GGUF metadata, and the logits with `decoder_f64.py`.

Windows, W of L tokens, each run by itself from position 0, without a BOS token; V = vocabulary, K = 64:

    window.tokens        i32 [W, L]
    window.start         i32 [W]        index of its first token in the tokenised text
    window.top_ids       i32 [W, L, K]  the K largest logits, largest first
    window.top_logits    f32 [W, L, K]
    window.lse           f32 [W, L]     log-sum-exp of all V logits (computed in f64)
    window.rest_lse      f32 [W, L]     log-sum-exp of the V - K logits outside the top K
    window.next_logit    f32 [W, L-1]   logit of the token that follows in the text; lse - next_logit is its loss
    window.mean          f32 [W, L]     mean of all V logits
    window.max_abs       f32 [W, L]     largest magnitude of all V logits
    window.strided_ids   i32 [S]        0, 997, 1994, ..: a sample of the vocabulary
    window.strided       f32 [W, L, S]  the logits at those ids

Greedy continuations of G prompts, T tokens each, no stop token honoured:

    greedy.prompt_len    i32 [G]
    greedy.prompt        i32 [G, longest]  padded with -1
    greedy.tokens        i32 [G, T]
    greedy.top2_ids      i32 [G, T, 2]     best and second best; [.., 0] equals greedy.tokens
    greedy.top2_logits   f32 [G, T, 2]
    greedy.gap           f32 [G, T]        best minus second best logit
"""

import argparse
import re
from pathlib import Path

import gguf
import numpy as np
import torch
from decoder_f64 import decoder_logits
from reference import (
    kl_divergence,
    load_model,
    load_tokenizer,
    logits_of,
    save_fixture,
    sha256,
    window_starts,
    write_section,
)

TOP = 64
STRIDE = 997

CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
PROMPTS = [
    "The capital of France is",
    CHAT.format("What is gravity?"),
    "import numpy as np\n\ndef softmax(x):\n    ",
    "1, 2, 3, 4, 5, 6,",
    "It was a dark and stormy night, and",
    "Die Hauptstadt von Deutschland ist",
    "\n",
    CHAT.format(
        "Give this text a title: The mayor, who had been in office since 1957, told reporters on Friday that "
        "the city would not raise the water tax this year, although the council had asked for 12% more. He said that "
        "the new bridge, the two schools and the hospital wing would be paid from the reserve, and that a committee "
        "of seven citizens would look into the complaints about the road works near the old market."
    ),
]


def dequantise(tensor) -> np.ndarray:
    """One GGUF tensor in f32, written out for the formats of this file."""
    shape = [int(size) for size in reversed(tensor.shape)]
    kind = gguf.GGMLQuantizationType
    if tensor.tensor_type == kind.F32:
        return np.asarray(tensor.data, np.float32).reshape(shape)
    blocks = np.asarray(tensor.data).view(np.uint8)
    if tensor.tensor_type == kind.Q8_0:
        blocks = blocks.reshape(-1, 34)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        return (scale * blocks[:, 2:].view(np.int8).astype(np.float32)).reshape(shape)
    if tensor.tensor_type == kind.Q4_1:
        blocks = blocks.reshape(-1, 20)
        scale, minimum = blocks[:, :4].copy().view(np.float16).astype(np.float32).T[..., None]
        nibbles = np.concatenate((blocks[:, 4:] & 15, blocks[:, 4:] >> 4), 1).astype(np.float32)
        return (scale * nibbles + minimum).reshape(shape)
    raise SystemExit(f"{tensor.name}: {tensor.tensor_type.name} is not written out here")


def half_split_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """GGUF keeps a head's rotary pairs side by side, Hugging Face in two halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def huggingface_name(name: str) -> str:
    parts = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
        return f"model.layers.{match[1]}.{parts[match[2]]}.weight"
    return f"{top[name.removesuffix('.weight')]}.weight"


def verify_weights(reader: gguf.GGUFReader, model) -> None:
    """Every weight of the model equals the file's, bit for bit, by two dequantisations; none is left over."""
    parameters = dict(model.named_parameters())
    config = model.config
    for tensor in reader.tensors:
        ours = dequantise(tensor)
        theirs = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(ours.shape)
        name = huggingface_name(tensor.name)
        if not np.array_equal(ours, theirs):
            raise SystemExit(f"{tensor.name}: the gguf package dequantises it differently")
        if ".attn_q." in tensor.name:
            ours = half_split_rows(ours, config.num_attention_heads)
        if ".attn_k." in tensor.name:
            ours = half_split_rows(ours, config.num_key_value_heads)
        if not np.array_equal(ours, parameters.pop(name).numpy(force=True)):
            raise SystemExit(f"{name}: differs from {tensor.name} of the GGUF")
    if parameters:
        raise SystemExit(f"not in the GGUF: {sorted(parameters)}")
    print(f"{len(reader.tensors)} tensors equal their dequantisation bit for bit")


def verify_config(reader: gguf.GGUFReader, config) -> None:
    """The configuration that transformers derived is the one in the GGUF metadata."""

    def metadata(key):
        return reader.get_field(f"llama.{key}").contents()

    pairs = [
        (config.num_hidden_layers, metadata("block_count")),
        (config.hidden_size, metadata("embedding_length")),
        (config.intermediate_size, metadata("feed_forward_length")),
        (config.num_attention_heads, metadata("attention.head_count")),
        (config.num_key_value_heads, metadata("attention.head_count_kv")),
        (config.head_dim, metadata("rope.dimension_count")),
        (config.rms_norm_eps, metadata("attention.layer_norm_rms_epsilon")),
        (config.rope_parameters["rope_theta"], metadata("rope.freq_base")),
        (config.rope_parameters["rope_type"], "default"),
    ]
    if wrong := [pair for pair in pairs if pair[0] != pair[1]]:
        raise SystemExit(f"configuration differs from the GGUF metadata: {wrong}")


def log_sum_exp_outside(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return logits.double().scatter(-1, ids.long(), -torch.inf).logsumexp(-1)


def window_tensors(tokens: torch.Tensor, starts: list[int], logits: torch.Tensor) -> dict[str, torch.Tensor]:
    top = logits.topk(TOP, -1)
    strided_ids = torch.arange(0, logits.shape[-1], STRIDE)
    next_ids = tokens[:, 1:, None].long()
    return {
        "window.tokens": tokens.int(),
        "window.start": torch.tensor(starts, dtype=torch.int32),
        "window.top_ids": top.indices.int(),
        "window.top_logits": top.values,
        "window.lse": logits.double().logsumexp(-1).float(),
        "window.rest_lse": log_sum_exp_outside(logits, top.indices).float(),
        "window.next_logit": logits[:, :-1].gather(-1, next_ids)[..., 0],
        "window.mean": logits.double().mean(-1).float(),
        "window.max_abs": logits.abs().amax(-1),
        "window.strided_ids": strided_ids.int(),
        "window.strided": logits[..., strided_ids],
    }


def greedy(model, prompt: list[int], count: int) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """`count` greedy tokens with their two best logits; cached decoding and one full pass must agree."""
    inputs = torch.tensor([prompt])
    options = {"do_sample": False, "max_new_tokens": count, "min_new_tokens": count, "eos_token_id": None}
    generated = model.generate(inputs, attention_mask=torch.ones_like(inputs), pad_token_id=0, **options)[0].tolist()
    top = logits_of(model, generated[:-1])[len(prompt) - 1 :].topk(2, -1)
    continuation = generated[len(prompt) :]
    if top.indices[:, 0].tolist() != continuation:
        raise SystemExit("cached decoding and the full forward pass choose different tokens")
    return continuation, top.indices, top.values


def greedy_tensors(model, prompts: list[list[int]], count: int, min_gap: float) -> dict[str, torch.Tensor]:
    runs = [greedy(model, prompt, count) for prompt in prompts]
    padded = torch.full((len(prompts), max(map(len, prompts))), -1, dtype=torch.int32)
    for row, prompt in zip(padded, prompts):
        row[: len(prompt)] = torch.tensor(prompt)
    values = torch.stack([values for _, _, values in runs])
    gap = values[..., 0] - values[..., 1]
    print("smallest gap of each prompt:", [round(value, 4) for value in gap.amin(-1).tolist()])
    if gap.min() < min_gap:
        raise SystemExit(f"a greedy choice hangs on {gap.min():.4f} logits, less than {min_gap}: change that prompt")
    return {
        "greedy.prompt_len": torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int32),
        "greedy.prompt": padded,
        "greedy.tokens": torch.tensor([tokens for tokens, _, _ in runs], dtype=torch.int32),
        "greedy.top2_ids": torch.stack([ids for _, ids, _ in runs]).int(),
        "greedy.top2_logits": values,
        "greedy.gap": gap,
    }


def truncated_kl(truth: dict[str, torch.Tensor], ours: torch.Tensor) -> torch.Tensor:
    """What a test computes from the fixture: the top K one by one, the rest as one event. `[W, L]`, f64."""
    ids, lse = truth["window.top_ids"].long(), truth["window.lse"].double()
    log_p = truth["window.top_logits"].double() - lse[..., None]
    our_lse = ours.double().logsumexp(-1)
    log_q = ours.double().gather(-1, ids) - our_lse[..., None]
    log_p_rest = truth["window.rest_lse"].double() - lse
    log_q_rest = log_sum_exp_outside(ours, ids) - our_lse
    return (log_p.exp() * (log_p - log_q)).sum(-1) + log_p_rest.exp() * (log_p_rest - log_q_rest)


def int8_blocks(x: torch.Tensor) -> torch.Tensor:
    """Q8_0 and back: blocks of 32 with an f16 scale, as llama.cpp does with activations."""
    blocks = x.unflatten(-1, (-1, 32))
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    inverse = torch.where(scale > 0, 1 / scale, 0)
    return ((blocks * inverse).round() * scale.half().float()).flatten(-2)


def int8_tokens(x: torch.Tensor) -> torch.Tensor:
    """One f32 scale for a token's whole row."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-20) / 127
    return (x / scale).round() * scale


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def logits_with_rounded_activations(model, tokens: torch.Tensor, rounding) -> torch.Tensor:
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    hooks = [linear.register_forward_pre_hook(lambda _, inputs: (rounding(inputs[0]),)) for linear in linears]
    logits = torch.stack([logits_of(model, window) for window in tokens])
    for hook in hooks:
        hook.remove()
    return logits


def comparison_row(name: str, truth: dict[str, torch.Tensor], reference: torch.Tensor, ours: torch.Tensor) -> str:
    exact, short = kl_divergence(reference, ours), truncated_kl(truth, ours)
    top1 = (reference.argmax(-1) == ours.argmax(-1)).double().mean()
    max_abs = (reference.double() - ours.double()).abs().max()
    missing = f"{1 - short.mean() / exact.mean():.1%}" if exact.mean() > 1e-6 else "below the f32 of the file"
    return (
        f"| {name} | {max_abs:.2g} | {exact.mean():.3g} | {short.mean():.3g} | {missing} "
        f"| {exact.max():.2g} | {top1:.2%} |"
    )


def measured(model, truth: dict[str, torch.Tensor], reference: torch.Tensor) -> str:
    """How far stand-ins for an engine's fast modes are from the reference, by exact and by truncated KL."""
    tokens, weights = truth["window.tokens"], model.state_dict()
    in_f64 = torch.stack([decoder_logits(model.config, weights, window) for window in tokens])
    rows = [
        "| stand-in | max-abs, all logits | mean KL, exact | mean KL, top-64 + rest | KL not seen | worst KL | top-1 |",
        "|---|---|---|---|---|---|---|",
        comparison_row("`decoder_f64.py` (all f64)", truth, reference, in_f64),
    ]
    roundings = [
        ("bf16 inputs of every linear layer", bf16),
        ("int8 inputs, blocks of 32 (Q8_0)", int8_blocks),
        ("int8 inputs, one scale a token", int8_tokens),
    ]
    for name, rounding in roundings:
        ours = logits_with_rounded_activations(model, tokens, rounding)
        rows.append(comparison_row(name, truth, reference, ours))

    losses = truth["window.lse"][:, :-1] - truth["window.next_logit"]
    worst = (reference.double() - in_f64).abs().max()
    if worst > 1e-3:
        raise SystemExit(f"transformers and decoder_f64.py differ by {worst:.2e}: one of them is wrong")
    rest = (truth["window.rest_lse"] - truth["window.lse"]).exp()
    return (
        "\n".join(rows)
        + f"\n\nPerplexity of the windows: {losses.double().mean().exp():.4f}. Probability outside the top 64: mean "
        f"{rest.mean():.3f}, worst {rest.max():.3f}. Standard deviation of the logits: {reference.std():.2f}. "
        f"Smallest greedy gap: {truth['greedy.gap'].min():.3f}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--readme", type=Path, help="replace the measurements in this file")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--greedy", type=int, default=48, help="tokens of each continuation")
    parser.add_argument("--min-gap", type=float, default=0.01, help="refuse greedy choices closer than this")
    args = parser.parse_args()

    reader = gguf.GGUFReader(args.gguf)
    model, tokenizer = load_model(args.gguf), load_tokenizer(args.gguf)
    verify_config(reader, model.config)
    verify_weights(reader, model)

    text = torch.tensor(tokenizer.encode(args.text.read_text(), add_special_tokens=False))
    starts = window_starts(len(text), args.windows, args.length)
    tokens = torch.stack([text[start : start + args.length] for start in starts])
    reference = torch.stack([logits_of(model, window) for window in tokens])
    prompts = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in PROMPTS]

    truth = window_tensors(tokens, starts, reference) | greedy_tensors(model, prompts, args.greedy, args.min_gap)
    write_section(args.readme, "smollm2 measurements", measured(model, truth, reference))
    about = {"model": args.gguf.name, "sha256": sha256(args.gguf), "text": args.text.name, "prompts": PROMPTS}
    save_fixture(args.out, truth, about)
    for prompt, continuation in zip(PROMPTS, truth["greedy.tokens"]):
        print(repr(prompt[-60:]), "->", repr(tokenizer.decode(continuation)))


if __name__ == "__main__":
    main()
