"""Tiny random Llama checkpoints in Hugging Face layout, with the logits that transformers computes for them in f32.

    tiny_llama.py --out tests/data/tiny [--readme tests/data/README.md]

Each folder holds `config.json`, `model.safetensors` (or two shards and an index) and `truth.safetensors`:

    long.tokens      i32 [150]       long.logits      f32 [150, vocab]
    short.tokens     i32 [37]        short.logits     f32 [37, vocab]
    fork.tokens      i32 [93]        fork.logits      f32 [93, vocab]
    fork.shared      i32 [1]         the first 64 tokens are those of `long`
    resumed.tokens   i32 [38]        resumed.logits   f32 [38, vocab]
    resumed.kept     i32 [1]         `short` truncated to 21 tokens, then continued

Weights are scaled so that a fault shows: attention is neither flat nor one-hot, norms and biases are random, and the
embedding is small enough that eps counts. The script ends with the proof: it changes one thing at a time and refuses
a checkpoint on which that moves the logits by less than 100 times the tolerance.
"""

import argparse
import copy
import json
import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
from llama_f64 import llama_logits
from reference import load_model, logits_of, save_fixture, write_section
from transformers import LlamaConfig, LlamaForCausalLM

TOLERANCE = 1e-4
SEEN = 100 * TOLERANCE

LONG, SHORT = 150, 37
SHARED, FORK_NEW = 64, 29
KEPT, RESUMED_NEW = 21, 17


@dataclass(frozen=True)
class Checkpoint:
    """One folder: what it covers, its configuration, and how it is stored."""

    name: str
    covers: str
    config: dict
    dtype: torch.dtype = torch.float32
    shard_size: str | None = None
    classic_rope_keys: bool = False
    seed: int = field(default=0, kw_only=True)


CHECKPOINTS = [
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
        classic_rope_keys=True,
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
        classic_rope_keys=True,
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

DEFAULTS = {"vocab_size": 256, "rms_norm_eps": 1e-3, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2}


# Standard deviation of a layer's outputs for normalised inputs: attention scores then deviate by 1.8.
GAINS = {"q_proj": 1.5, "k_proj": 1.2, "lm_head": 2.0}


def random_model(checkpoint: Checkpoint) -> LlamaForCausalLM:
    """A model whose logits depend on every weight: see the module's docstring."""
    config = LlamaConfig(**{**DEFAULTS, **checkpoint.config}, attn_implementation="eager")
    model = LlamaForCausalLM(config).float().eval()
    generator = torch.Generator().manual_seed(checkpoint.seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            values = 1 + 0.3 * noise
        elif name.endswith(".bias"):
            values = 0.5 * noise
        elif name.endswith("embed_tokens.weight"):
            values = 0.2 * noise
        else:
            gain = next((gain for part, gain in GAINS.items() if part in name), 0.7)
            values = gain / math.sqrt(parameter.shape[1]) * noise
        parameter.data.copy_(values.to(checkpoint.dtype))
    return model


def write_checkpoint(checkpoint: Checkpoint, folder: Path) -> LlamaForCausalLM:
    """Writes the folder and returns the model as transformers reads it back, in f32."""
    shutil.rmtree(folder, ignore_errors=True)
    sharding = {"max_shard_size": checkpoint.shard_size} if checkpoint.shard_size else {}
    random_model(checkpoint).to(checkpoint.dtype).save_pretrained(folder, **sharding)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
    if checkpoint.classic_rope_keys:
        use_classic_rope_keys(folder / "config.json")
    return load_model(folder)


def use_classic_rope_keys(path: Path) -> None:
    """As older files spell it: `rope_theta`, `rope_scaling`, `torch_dtype`, and no `head_dim` where it is implied."""
    config = json.loads(path.read_text())
    if config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]:
        del config["head_dim"]
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def sequences(vocab: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(count):
        return torch.randint(vocab, (count,), generator=generator)

    long, short = draw(LONG), draw(SHORT)
    return {
        "long": long,
        "short": short,
        "fork": torch.cat((long[:SHARED], draw(FORK_NEW))),
        "resumed": torch.cat((short[:KEPT], draw(RESUMED_NEW))),
    }


def truth_tensors(model: LlamaForCausalLM, tokens: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    truth = {f"{name}.tokens": values.int() for name, values in tokens.items()}
    truth |= {f"{name}.logits": logits_of(model, values) for name, values in tokens.items()}
    truth["fork.shared"] = torch.tensor([SHARED], dtype=torch.int32)
    truth["resumed.kept"] = torch.tensor([KEPT], dtype=torch.int32)
    return truth


def changed(model: LlamaForCausalLM, *, rope: dict | None = None, weights=None, **options) -> LlamaForCausalLM:
    """A copy with another configuration or with `weights(name, tensor)` in place of each weight."""
    config = copy.deepcopy(model.config)
    for key, value in options.items():
        setattr(config, key, value)
    config.rope_parameters = config.rope_parameters | (rope or {})
    copied = LlamaForCausalLM(config).float().eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    copied.load_state_dict({name: weights(name, tensor) if weights else tensor for name, tensor in state.items()})
    return copied


def reordered_heads(model: LlamaForCausalLM, order: list[int]) -> LlamaForCausalLM:
    """Query head `order[i]` reads the kv head that belongs to query head `i`."""
    config = model.config

    def weights(name, tensor):
        if "self_attn.q_proj" in name:
            return tensor.unflatten(0, (config.num_attention_heads, -1))[order].flatten(0, 1)
        if name.endswith("self_attn.o_proj.weight"):
            return tensor.unflatten(1, (config.num_attention_heads, -1))[:, order].flatten(1, 2)
        return tensor

    return changed(model, weights=weights)


def interleaved_rope(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The weights as if rotary pairs were neighbours, which half-split code would then rotate wrongly."""

    def weights(name, tensor):
        if "self_attn.q_proj" not in name and "self_attn.k_proj" not in name:
            return tensor
        halves = tensor.unflatten(0, (-1, model.config.head_dim // 2, 2))
        return halves.transpose(1, 2).reshape(tensor.shape)

    return changed(model, weights=weights)


def scaled(model: LlamaForCausalLM, part: str, factor: float) -> LlamaForCausalLM:
    return changed(model, weights=lambda name, tensor: tensor * factor if part in name else tensor)


def without(model: LlamaForCausalLM, suffix: str, neutral: float) -> LlamaForCausalLM:
    return changed(
        model, weights=lambda name, tensor: torch.full_like(tensor, neutral) if name.endswith(suffix) else tensor
    )


def faults(model: LlamaForCausalLM) -> dict[str, LlamaForCausalLM]:
    """Models with one thing wrong each, as far as it applies to this configuration."""
    config = model.config
    rope, heads, kv_heads = config.rope_parameters, config.num_attention_heads, config.num_key_value_heads
    found = {
        "rope_theta 10 % larger": changed(model, rope={"rope_theta": 1.1 * rope["rope_theta"]}),
        "eps 1e-5 instead of 1e-3": changed(model, rms_norm_eps=1e-5),
        "rotary pairs interleaved": interleaved_rope(model),
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
    if heads != kv_heads:
        if kv_heads > 1:
            order = sorted(range(heads), key=lambda head: head % kv_heads)
            found["query head h reads kv head h % kv_heads"] = reordered_heads(model, order)
    if config.head_dim != config.hidden_size // heads:
        scale = math.sqrt(config.head_dim * heads / config.hidden_size)
        found["attention scaled by hidden_size / heads"] = scaled(model, "q_proj", scale)
    if config.attention_bias:
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            found[f"{part} bias ignored"] = without(model, f"{part}.bias", 0)
    if config.mlp_bias:
        for part in ("gate_proj", "up_proj", "down_proj"):
            found[f"{part} bias ignored"] = without(model, f"{part}.bias", 0)
    if not config.tie_word_embeddings:
        embedding = model.state_dict()["model.embed_tokens.weight"]
        found["tied although untied"] = changed(
            model, weights=lambda name, tensor: embedding.clone() if name == "lm_head.weight" else tensor
        )
    return found


def cache_faults(model: LlamaForCausalLM, tokens: dict[str, torch.Tensor]) -> dict[str, tuple[str, torch.Tensor]]:
    """Logits of the new tokens as a faulty cache would give them, with the sequence that they belong to."""
    restarted = [*range(SHARED), *range(FORK_NEW)]
    stale = torch.cat((tokens["short"], tokens["resumed"][KEPT:]))
    positions = [*range(SHORT), *range(KEPT, KEPT + RESUMED_NEW)]
    shifted = tokens["long"].clone()
    shifted[SHARED - 1] = tokens["short"][0]
    shifted = torch.cat((shifted[:SHARED], tokens["fork"][SHARED:]))
    return {
        "fork: positions restart at 0": ("fork", logits_of(model, tokens["fork"], restarted)[SHARED:]),
        "fork: one shared token overwritten": ("fork", logits_of(model, shifted)[SHARED:]),
        "resumed: truncated keys still visible": ("resumed", logits_of(model, stale, positions)[SHORT:]),
    }


@dataclass(frozen=True)
class Report:
    """What one checkpoint's logits look like and how far each fault moves them."""

    deviation: float
    rounding: float
    moves: dict[str, float]


def examine(model: LlamaForCausalLM, tokens: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]) -> Report:
    weights = model.state_dict()
    in_f64 = {name: llama_logits(model.config, weights, values) for name, values in tokens.items()}
    rounding = max(float((truth[f"{name}.logits"] - in_f64[name]).abs().max()) for name in tokens)
    long = truth["long.logits"]
    moves = {
        name: float((logits_of(faulty, tokens["long"]) - long).abs().max()) for name, faulty in faults(model).items()
    }
    for name, (sequence, logits) in cache_faults(model, tokens).items():
        moves[name] = float((truth[f"{sequence}.logits"][-len(logits) :] - logits).abs().max())
    return Report(float(long.std()), rounding, moves)


def refuse_weak(name: str, report: Report) -> None:
    weak = {fault: move for fault, move in report.moves.items() if move < SEEN}
    if weak or report.deviation < 1 or report.rounding > TOLERANCE / 4:
        raise SystemExit(f"{name}: {report.deviation=:.2f} {report.rounding=:.1e}, unseen faults: {weak}")


def sensitivity_table(reports: dict[str, Report]) -> str:
    """Markdown: one column a checkpoint, one row a fault, cells the largest change of a logit."""
    rows = list(dict.fromkeys(fault for report in reports.values() for fault in report.moves))
    lines = [
        "| largest change of a logit | " + " | ".join(f"`{name}`" for name in reports) + " |",
        "|---" * (len(reports) + 1) + "|",
        "| *standard deviation of the logits* | " + " | ".join(f"{r.deviation:.2f}" for r in reports.values()) + " |",
        "| *transformers f32 against `llama_f64.py`* | "
        + " | ".join(f"{r.rounding:.1e}" for r in reports.values())
        + " |",
    ]
    for row in rows:
        cells = [f"{report.moves[row]:.3g}" if row in report.moves else "" for report in reports.values()]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--readme", type=Path, help="replace the sensitivity table in this file")
    args = parser.parse_args()

    reports = {}
    for checkpoint in CHECKPOINTS:
        folder = args.out / checkpoint.name
        model = write_checkpoint(checkpoint, folder)
        tokens = sequences(model.config.vocab_size, checkpoint.seed)
        truth = truth_tensors(model, tokens)
        reports[checkpoint.name] = examine(model, tokens, truth)
        refuse_weak(checkpoint.name, reports[checkpoint.name])
        save_fixture(folder / "truth.safetensors", truth, {"covers": checkpoint.covers})
    covers = "\n".join(f"* `{checkpoint.name}`: {checkpoint.covers}." for checkpoint in CHECKPOINTS)
    write_section(args.readme, "tiny llama", f"{covers}\n\n{sensitivity_table(reports)}")


if __name__ == "__main__":
    main()
