"""What the truth scripts share: loading a model in exact f32, its logits, saving fixtures, README sections.

"Exact f32" means: transformers, weights dequantised to f32, f32 activations, eager attention, on the CPU.
"""

import hashlib
import json
import os
import re
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def load_model(path: Path):
    """The model of a GGUF file or a Hugging Face folder, in exact f32."""
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(*_location(path, options), **options).eval()
    wrong = [name for name, parameter in model.named_parameters() if parameter.dtype != torch.float32]
    if wrong:
        raise SystemExit(f"{path}: expected f32 parameters, found other types in {wrong[:3]}")
    return model


def load_tokenizer(path: Path):
    """The tokenizer of a GGUF file or a Hugging Face folder.

    transformers builds a GPT-2 pre-tokenizer for every `gpt2` vocabulary in a GGUF and ignores
    `tokenizer.ggml.pre`; for `smollm` each digit must be split off first.
    """
    options = {}
    tokenizer = AutoTokenizer.from_pretrained(*_location(path, options), **options)
    if path.is_file() and _metadata(path, "tokenizer.ggml.pre") == "smollm":
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    return tokenizer


def _location(path: Path, options: dict) -> tuple[str]:
    if path.is_file():
        options["gguf_file"] = path.name
        return (str(path.parent),)
    return (str(path),)


def _metadata(path: Path, key: str):
    field = gguf.GGUFReader(path).get_field(key)
    return field.contents() if field else None


@torch.inference_mode()
def logits_of(model, tokens, position_ids=None) -> torch.Tensor:
    """Logits `[positions, vocab]` of one sequence."""
    tokens = torch.as_tensor(tokens, dtype=torch.long)[None]
    if position_ids is not None:
        position_ids = torch.as_tensor(position_ids, dtype=torch.long)[None]
    return model(tokens, position_ids=position_ids, use_cache=False).logits[0].float()


def window_starts(count: int, windows: int, length: int) -> list[int]:
    """Starts of `windows` windows of `length` tokens, spread evenly over `count` tokens, without overlap."""
    if windows * length > count:
        raise SystemExit(f"the text has {count} tokens, {windows} windows of {length} need {windows * length}")
    if windows == 1:
        return [0]
    return [index * (count - length) // (windows - 1) for index in range(windows)]


def kl_divergence(reference: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """KL(reference || ours) in nats for each row of logits `[positions, vocab]`, in f64."""
    log_p = torch.log_softmax(reference.double(), -1)
    log_q = torch.log_softmax(ours.double(), -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_fixture(path: Path, tensors: dict[str, torch.Tensor], about: dict) -> None:
    """Writes a safetensors file that is byte-identical from run to run (so one metadata key only)."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}
    path.parent.mkdir(parents=True, exist_ok=True)
    unshared = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    save_file(unshared, path, {"about": json.dumps({**about, **versions})})
    path.chmod(0o644)
    print(f"{path}: {path.stat().st_size:,} bytes, {len(tensors)} tensors")


def write_section(readme: Path | None, name: str, markdown: str) -> None:
    """Prints a measured table and, given a README, replaces the section between its `name` markers."""
    print(markdown)
    if readme is None:
        return
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    text = readme.read_text()
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{readme}: no section {begin} … {end}")
    readme.write_text(pattern.sub(lambda _: f"{begin}\n{markdown.strip()}\n{end}", text))
