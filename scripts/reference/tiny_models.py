"""Tiny random checkpoints in Hugging Face layout, with the logits that transformers computes for them in f32.

    tiny_models.py --out tests/data/tiny [--readme tests/data/README.md] [--family llama]

Each folder holds `config.json`, `model.safetensors` (or two shards and an index), for some `model.gguf` with the same
weights, and `truth.safetensors`:

    long.tokens      i32 [150]       long.logits      f32 [150, vocab]
    short.tokens     i32 [37]        short.logits     f32 [37, vocab]
    fork.tokens      i32 [93]        fork.logits      f32 [93, vocab]
    fork.shared      i32 [1]         the first 64 tokens are those of `long`
    resumed.tokens   i32 [38]        resumed.logits   f32 [38, vocab]
    resumed.kept     i32 [1]         `short` truncated to 21 tokens, then continued

Weights are scaled so that a fault shows: attention is neither flat nor one-hot, norms and biases are random, the
embedding is small enough, or eps large enough, that eps counts, and windows are shorter than the sequences. The script
ends with the proof: it changes one thing at a time and refuses a checkpoint on which that moves the logits by less than
100 times the tolerance.
"""

import argparse
import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from decoder_f64 import decoder_logits
from reference import load_model, logits_of, save_fixture, write_section
from tiny_checkpoints import DEFAULTS, FAMILIES, GEMMA3_DEFAULTS, Checkpoint
from tiny_faults import faults
from tiny_gguf import write_gguf
from transformers import AutoConfig, AutoModelForCausalLM

TOLERANCE = 1e-4
SEEN = 100 * TOLERANCE
# Two functions that differ by 0.0005 at most, and a factor that differs by 0.002: a test sees them, by less.
BARELY_SEEN = {"exact GELU instead of its approximation", "embeddings' scale rounded to bf16"}

LONG, SHORT = 150, 37
SHARED, FORK_NEW = 64, 29
KEPT, RESUMED_NEW = 21, 17

# Standard deviation of a layer's outputs for normalised inputs: attention scores then deviate by 1.8.
GAINS = {"q_proj": 1.5, "k_proj": 1.2, "lm_head": 2.0}


def random_model(checkpoint: Checkpoint):
    """A model whose logits depend on every weight: see the module's docstring."""
    is_gemma = checkpoint.model_type == "gemma3_text"
    settings = (GEMMA3_DEFAULTS if is_gemma else DEFAULTS) | checkpoint.config
    config = AutoConfig.for_model(checkpoint.model_type, **settings, attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(checkpoint.seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            values = 0.3 * noise if is_gemma else 1 + 0.3 * noise
        elif name.endswith(".bias"):
            values = 0.5 * noise
        elif name.endswith("embed_tokens.weight"):
            values = (1.2 / math.sqrt(config.hidden_size) if is_gemma else 0.2) * noise
        else:
            gain = next((gain for part, gain in GAINS.items() if part in name), 0.7)
            values = gain / math.sqrt(parameter.shape[1]) * noise
        parameter.data.copy_(values.to(checkpoint.dtype))
    return model


def write_checkpoint(checkpoint: Checkpoint, folder: Path):
    """Writes the folder and returns the model as transformers reads it back, in f32."""
    shutil.rmtree(folder, ignore_errors=True)
    sharding = {"max_shard_size": checkpoint.shard_size} if checkpoint.shard_size else {}
    random_model(checkpoint).to(checkpoint.dtype).save_pretrained(folder, **sharding)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
    if checkpoint.classic_keys:
        use_classic_keys(folder / "config.json", checkpoint.config)
    model = load_model(folder)
    if checkpoint.gguf:
        write_gguf(model, folder / "model.gguf")
    return model


def use_classic_keys(path: Path, given: dict) -> None:
    """As older files spell it: `rope_theta`, `rope_scaling`, `torch_dtype`, `sliding_window_pattern`, no `head_dim` or
    `layer_types` where they are implied, and a `sliding_window` even where it is not used."""
    config = json.loads(path.read_text())
    config |= {key: value for key, value in given.items() if key == "sliding_window"}
    if config.get("head_dim", 0) * config["num_attention_heads"] == config["hidden_size"]:
        del config["head_dim"]
    rope = config.pop("rope_parameters")
    if "sliding_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        config["sliding_window_pattern"] = 1 + config["layer_types"].index("full_attention")
        config.pop("_sliding_window_pattern", None)
    config.pop("layer_types", None)
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


def truth_tensors(model, tokens: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    truth = {f"{name}.tokens": values.int() for name, values in tokens.items()}
    truth |= {f"{name}.logits": logits_of(model, values) for name, values in tokens.items()}
    truth["fork.shared"] = torch.tensor([SHARED], dtype=torch.int32)
    truth["resumed.kept"] = torch.tensor([KEPT], dtype=torch.int32)
    return truth


def cache_faults(model, tokens: dict[str, torch.Tensor]) -> dict[str, tuple[str, torch.Tensor]]:
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


def examine(model, tokens: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]) -> Report:
    weights = model.state_dict()
    in_f64 = {name: decoder_logits(model.config, weights, values) for name, values in tokens.items()}
    rounding = max(float((truth[f"{name}.logits"] - in_f64[name]).abs().max()) for name in tokens)
    long = truth["long.logits"]
    moves = {
        name: float((logits_of(faulty, tokens["long"]) - long).abs().max()) for name, faulty in faults(model).items()
    }
    for name, (sequence, logits) in cache_faults(model, tokens).items():
        moves[name] = float((truth[f"{sequence}.logits"][-len(logits) :] - logits).abs().max())
    return Report(float(long.std()), rounding, moves)


def refuse_weak(name: str, report: Report) -> None:
    def least(fault):
        return 5 * TOLERANCE if fault in BARELY_SEEN else SEEN

    weak = {fault: move for fault, move in report.moves.items() if move < least(fault)}
    if weak or report.deviation < 1 or report.rounding > TOLERANCE / 4:
        raise SystemExit(f"{name}: {report.deviation=:.2f} {report.rounding=:.1e}, unseen faults: {weak}")


def sensitivity_table(reports: dict[str, Report]) -> str:
    """Markdown: one column a checkpoint, one row a fault, cells the largest change of a logit."""
    rows = list(dict.fromkeys(fault for report in reports.values() for fault in report.moves))
    lines = [
        "| largest change of a logit | " + " | ".join(f"`{name}`" for name in reports) + " |",
        "|---" * (len(reports) + 1) + "|",
        "| *standard deviation of the logits* | " + " | ".join(f"{r.deviation:.2f}" for r in reports.values()) + " |",
        "| *transformers f32 against `decoder_f64.py`* | "
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
    parser.add_argument("--readme", type=Path, help="replace the sensitivity tables in this file")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="only these; all by default")
    args = parser.parse_args()

    for family in args.family or FAMILIES:
        reports = {}
        for checkpoint in FAMILIES[family]:
            folder = args.out / checkpoint.name
            model = write_checkpoint(checkpoint, folder)
            tokens = sequences(model.config.vocab_size, checkpoint.seed)
            truth = truth_tensors(model, tokens)
            reports[checkpoint.name] = examine(model, tokens, truth)
            refuse_weak(checkpoint.name, reports[checkpoint.name])
            save_fixture(folder / "truth.safetensors", truth, {"covers": checkpoint.covers})
        covers = "\n".join(f"* `{checkpoint.name}`: {checkpoint.covers}." for checkpoint in FAMILIES[family])
        write_section(args.readme, f"tiny {family}", f"{covers}\n\n{sensitivity_table(reports)}")


if __name__ == "__main__":
    main()
