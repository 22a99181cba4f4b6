#!/usr/bin/env python3
"""Compares Butter's logits with exact f32 (transformers on the same weights), window by window.

    truth.py MODEL --text FILE [--windows 4] [--length 128] [--f32] [--butter PATH] [bounds]
    truth.py MODEL --tokens IDS.json ...

MODEL is a GGUF file or a Hugging Face folder that transformers can load. For each window it runs

    butter logits MODEL --tokens FILE --out X.safetensors [--f32]

where FILE is a JSON array of token ids and X must hold `logits`, f32 `[positions, vocab]`. Windows are spread evenly
over the text and start at position 0; each begins with BOS if the model's tokenizer adds one. `--butter` may name any
program with this interface, so that other engines are measured on the same windows.

Printed for each window and for all: largest difference of a logit, mean KL(reference || ours) in nats a token over the
whole vocabulary, the share of positions with the same best token, and both perplexities over the window's own tokens.
Exit code 1: a bound is exceeded. 2: the comparison was not possible.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "reference"))

import torch
from reference import kl_divergence, load_model, load_tokenizer, logits_of, window_starts
from safetensors.torch import load_file


@dataclass(frozen=True)
class Comparison:
    """Sums over positions, so that windows add up."""

    max_abs: float
    kl: float
    same_best: int
    positions: int
    reference_loss: float
    our_loss: float
    predictions: int

    def __add__(self, other: "Comparison") -> "Comparison":
        return Comparison(
            max(self.max_abs, other.max_abs),
            self.kl + other.kl,
            self.same_best + other.same_best,
            self.positions + other.positions,
            self.reference_loss + other.reference_loss,
            self.our_loss + other.our_loss,
            self.predictions + other.predictions,
        )

    @property
    def mean_kl(self) -> float:
        return self.kl / self.positions

    @property
    def top1(self) -> float:
        return self.same_best / self.positions

    @property
    def reference_perplexity(self) -> float:
        return math.exp(self.reference_loss / self.predictions)

    @property
    def our_perplexity(self) -> float:
        return math.exp(self.our_loss / self.predictions)

    def row(self, name: str) -> str:
        return (
            f"{name:>8} {self.max_abs:11.3e} {self.mean_kl:11.3e} {self.top1:9.2%} "
            f"{self.reference_perplexity:14.4f} {self.our_perplexity:12.4f}"
        )


HEADER = f"{'window':>8} {'max-abs':>11} {'mean KL':>11} {'top-1':>9} {'ppl reference':>14} {'ppl ours':>12}"


def compare(tokens: list[int], reference: torch.Tensor, ours: torch.Tensor) -> Comparison:
    return Comparison(
        max_abs=float((reference.double() - ours.double()).abs().max()),
        kl=float(kl_divergence(reference, ours).sum()),
        same_best=int((reference.argmax(-1) == ours.argmax(-1)).sum()),
        positions=len(tokens),
        reference_loss=total_loss(reference, tokens),
        our_loss=total_loss(ours, tokens),
        predictions=len(tokens) - 1,
    )


def total_loss(logits: torch.Tensor, tokens: list[int]) -> float:
    """Sum of the negative log-likelihoods of tokens 1.., in nats."""
    return float(torch.nn.functional.cross_entropy(logits[:-1].double(), torch.tensor(tokens[1:]), reduction="sum"))


def butter_logits(args: argparse.Namespace, tokens: list[int], vocab: int) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        token_file, out = Path(folder) / "tokens.json", Path(folder) / "logits.safetensors"
        token_file.write_text(json.dumps(tokens))
        command = [args.butter, "logits", args.model, "--tokens", token_file, "--out", out]
        run([*map(str, command), *(["--f32"] if args.f32 else [])])
        if not out.is_file():
            fail(f"{args.butter} exited with 0 but wrote no file for --out")
        tensors = load_file(out)
    if "logits" not in tensors:
        fail(f"{args.butter} wrote {sorted(tensors)}, expected a tensor `logits`")
    logits = tensors["logits"]
    if logits.dtype != torch.float32 or tuple(logits.shape) != (len(tokens), vocab):
        fail(f"`logits` is {logits.dtype} {list(logits.shape)}, expected torch.float32 {[len(tokens), vocab]}")
    if not logits.isfinite().all():
        fail(f"`logits` has {int((~logits.isfinite()).sum())} values that are not finite")
    return logits


def run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        fail(f"cannot run {command[0]}: {error.strerror}")
    if done.returncode:
        fail(f"`{' '.join(command)}` exited with {done.returncode}:\n{done.stderr.strip()}")


def fail(message: str) -> None:
    print(f"truth.py: {message}", file=sys.stderr)
    sys.exit(2)


def token_windows(args: argparse.Namespace) -> list[list[int]]:
    if args.tokens:
        ids, first = json.loads(args.tokens.read_text()), []
    else:
        tokenizer = load_tokenizer(args.model)
        ids = tokenizer.encode(args.text.read_text(), add_special_tokens=False)
        first = [tokenizer.bos_token_id] if tokenizer.encode("a")[0] == tokenizer.bos_token_id else []
    length = args.length - len(first)
    return [first + ids[start : start + length] for start in window_starts(len(ids), args.windows, length)]


def exceeded(args: argparse.Namespace, total: Comparison) -> list[str]:
    at_most = {
        "largest difference": (total.max_abs, args.max_abs),
        "mean KL": (total.mean_kl, args.max_kl),
        "perplexity ratio": (total.our_perplexity / total.reference_perplexity, args.max_perplexity_ratio),
    }
    found = [
        f"{name} is {value:.6g}, more than {bound:g}"
        for name, (value, bound) in at_most.items()
        if bound is not None and value > bound
    ]
    if args.min_top1 is not None and total.top1 < args.min_top1:
        found.append(f"top-1 agreement is {total.top1:.6g}, less than {args.min_top1:g}")
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path)
    source.add_argument("--tokens", type=Path, help="a JSON array of token ids instead of a text")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--length", type=int, default=128, help="tokens of a window, BOS included")
    parser.add_argument("--butter", default="butter", help="program to run (default: butter, from PATH)")
    parser.add_argument("--f32", action="store_true", help="pass --f32 on")
    parser.add_argument("--max-abs", type=float, help="bound on the largest difference of a logit")
    parser.add_argument("--max-kl", type=float, help="bound on the mean KL divergence of all windows")
    parser.add_argument("--min-top1", type=float, help="bound on top-1 agreement of all windows, 0 to 1")
    parser.add_argument("--max-perplexity-ratio", type=float, help="bound on our perplexity / the reference's")
    args = parser.parse_args()
    if args.windows < 1 or args.length < 2:
        parser.error("needs at least one window of at least two tokens")
    return args


def main() -> int:
    args = arguments()
    if not args.model.exists():
        fail(f"{args.model} does not exist")
    windows = token_windows(args)
    model = load_model(args.model)
    print(HEADER)
    total = None
    for index, tokens in enumerate(windows):
        ours = butter_logits(args, tokens, model.config.vocab_size)
        window = compare(tokens, logits_of(model, tokens), ours)
        print(window.row(str(index)), flush=True)
        total = window if total is None else total + window
    print(total.row("all"))
    failures = exceeded(args, total)
    for failure in failures:
        print(f"truth.py: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
