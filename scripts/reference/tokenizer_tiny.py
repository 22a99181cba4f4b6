"""Small vocabularies, and tokenizers on them in the settings that real models have.

Two vocabularies: sentencepiece's kind with scores, trained by sentencepiece itself, and the byte-level kind with merges,
trained by `tokenizers`. Each tokenizer is described once, in parts of a `tokenizer.json` and, where GGUF can say it, in
GGUF metadata; both must encode alike.
"""

import io
import json

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers.tokenization_utils_base import generate_merges

LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")

# llama.cpp's `llama_token_type`.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def sentencepiece_vocabulary(corpus: list[str]) -> dict:
    """A vocabulary in which many characters are no tokens, with symbols that the user defined, as Gemma has."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text for text in corpus if text.strip()),
        model_writer=out,
        model_type="bpe",
        vocab_size=1000,
        character_coverage=0.98,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=["<tool>", "\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁"],
        num_threads=1,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    ids = range(model.get_piece_size())

    def kind(id):
        return (
            UNKNOWN
            if model.is_unknown(id)
            else CONTROL
            if model.is_control(id)
            else BYTE
            if model.is_byte(id)
            else USER_DEFINED
            if model.IdToPiece(id) in ("<tool>", "\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁")
            else NORMAL
        )

    tokens = [model.IdToPiece(id) for id in ids]
    scores = [model.GetScore(id) for id in ids]
    vocab = {token: id for id, token in enumerate(tokens)}
    return {
        "tokens": tokens,
        "merges": generate_merges(vocab, dict(zip(tokens, scores))),
        "scores": scores,
        "types": [kind(id) for id in ids],
        "model": {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
    }


def byte_level_vocabulary(corpus: list[str]) -> dict:
    """A vocabulary with some words that no merge makes, as Llama 3 has."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    )
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    words = ["ĠParis", "Hello", "Ġcapital", "123", "ä¸ŃæĸĩÃ©", "ing"]
    tokens += [word for word in words if word not in model["vocab"]] + ["<s>", "</s>", "<tool>"]
    types = [{"<s>": CONTROL, "</s>": CONTROL, "<tool>": USER_DEFINED}.get(token, NORMAL) for token in tokens]
    return {"tokens": tokens, "merges": model["merges"], "scores": None, "types": types, "model": {}}


def sequence(kind: str, *parts: dict) -> dict:
    return {"type": "Sequence", kind: list(parts)}


def byte_level(use_regex: bool) -> dict:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split(pattern: str) -> dict:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def template(*, start: list[str], end: list[str] = (), ids: dict[str, int]) -> dict:
    def special(token):
        return {"SpecialToken": {"id": token, "type_id": 0}}

    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [*map(special, start), text, *map(special, end)],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in (*start, *end)},
    }


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
RESTORE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
BYTES = [RESTORE, {"type": "ByteFallback"}, {"type": "Fuse"}]


def sentencepiece_settings(ids: dict[str, int]) -> dict[str, dict]:
    start = {"post_processor": template(start=["<s>"], ids=ids)}
    prefixed = start | {"decoder": sequence("decoders", *BYTES, STRIP)}
    prepend = {"type": "Prepend", "prepend": "▁"}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    merged = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return {
        "llama2": {
            "json": prefixed | {"normalizer": sequence("normalizers", prepend, REPLACE)},
            "gguf": {"model": "llama"},
        },
        "llama2_metaspace": {"json": prefixed | {"pre_tokenizer": metaspace}},
        "gemma": {
            "json": start
            | {"normalizer": REPLACE, "pre_tokenizer": merged, "decoder": sequence("decoders", *BYTES)},
            "gguf": {"model": "llama", "add_space_prefix": False, "add_bos_token": True, "spell_spaces": True},
        },
    }


def byte_level_settings(ids: dict[str, int]) -> dict[str, dict]:
    decoder = {"decoder": byte_level(True)}
    start = template(start=["<s>"], ids=ids)
    around = template(start=["<s>"], end=["</s>"], ids=ids)
    digits = {"type": "Digits", "individual_digits": True}
    flags = [
        ("<mark>", {"lstrip": True, "rstrip": True}),
        ("<left>", {"lstrip": True, "special": True}),
        ("<right>", {"rstrip": True}),
        ("<word>", {"single_word": True}),
        ("<Norm>", {"normalized": True}),
    ]
    return {
        "smollm": {
            "json": decoder | {"pre_tokenizer": sequence("pretokenizers", digits, byte_level(True))},
            "gguf": {"model": "gpt2", "pre": "smollm"},
        },
        "gpt2": {
            "json": decoder | {"pre_tokenizer": byte_level(True), "post_processor": around},
            "gguf": {"model": "gpt2", "pre": "gpt-2", "add_bos_token": True, "add_eos_token": True},
        },
        "llama3": {
            "json": decoder
            | {
                "pre_tokenizer": sequence("pretokenizers", split(LLAMA3_SPLIT), byte_level(False)),
                "post_processor": sequence("processors", byte_level(True), start),
                "model": {"ignore_merges": True},
            },
            "gguf": {"model": "gpt2", "pre": "llama-bpe"},
        },
        "qwen2": {
            "json": decoder
            | {
                "normalizer": {"type": "NFC"},
                "pre_tokenizer": sequence("pretokenizers", split(QWEN2_SPLIT), byte_level(False)),
                "post_processor": byte_level(False),
            },
            "gguf": {"model": "gpt2", "pre": "qwen2", "add_bos_token": False},
        },
        "added": {
            "json": decoder
            | {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": byte_level(True), "flags": dict(flags)},
        },
    }


def added_tokens(vocabulary: dict, flags: dict) -> list[dict]:
    plain = {key: False for key in ("single_word", "lstrip", "rstrip", "normalized", "special")}
    kinds = {UNKNOWN: {"special": True}, CONTROL: {"special": True}, USER_DEFINED: {}}
    found = [
        {"id": id, "content": token} | plain | kinds[kind]
        for id, (token, kind) in enumerate(zip(vocabulary["tokens"], vocabulary["types"]))
        if kind in kinds
    ]
    first = len(vocabulary["tokens"])
    return found + [{"id": first + at, "content": t} | plain | flags[t] for at, t in enumerate(flags)]


def tiny_tokenizers(corpus: list[str]) -> tuple[str, dict[str, Tokenizer]]:
    """A description of all for the tests, as JSON, and the tokenizers by name."""
    vocabularies = {"sentencepiece": sentencepiece_vocabulary(corpus), "byte_level": byte_level_vocabulary(corpus)}
    described, tokenizers = {}, {}
    for name, vocabulary in vocabularies.items():
        ids = {token: id for id, token in enumerate(vocabulary["tokens"])}
        settings = {"sentencepiece": sentencepiece_settings, "byte_level": byte_level_settings}[name](ids)
        for tokenizer, setting in settings.items():
            parts = {"version": "1.0", "normalizer": None, "pre_tokenizer": None, "post_processor": None}
            parts |= {"added_tokens": added_tokens(vocabulary, setting["json"].pop("flags", {}))} | setting["json"]
            parts["model"] = {"type": "BPE"} | vocabulary["model"] | parts.get("model", {})
            described[tokenizer] = {"vocabulary": name, "json": parts, "gguf": setting.get("gguf")}
            model = parts["model"] | {"vocab": ids, "merges": vocabulary["merges"]}
            tokenizers[tokenizer] = Tokenizer.from_str(json.dumps(parts | {"model": model}))
    lines = [f'"vocabularies": {{\n{entries(vocabularies)}\n}}', f'"tokenizers": {{\n{entries(described)}\n}}']
    return "{\n" + ",\n".join(lines) + "\n}\n", tokenizers


def entries(values: dict) -> str:
    """One line each."""
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
