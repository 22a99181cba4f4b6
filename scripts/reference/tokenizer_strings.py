"""The texts that tokenizers are compared on: the same ones here and in `crates/butter/src/tokenizer/tests/strings.rs`.

Those in `strings.json` as they are, then random sequences of its pieces, repeated pieces, and random characters.
"""

import json
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "crates/butter/tests/fixtures/tokenizer"
CHARACTER_LIMITS = [0x80, 0x3000, 0x10000, 0x110000]


class Random:
    """xorshift64*."""

    def __init__(self, seed: int):
        self.state = seed

    def draw(self, count: int) -> int:
        """A number below `count`."""
        self.state ^= self.state >> 12
        self.state = (self.state ^ self.state << 25) & (1 << 64) - 1
        self.state ^= self.state >> 27
        return (self.state * 0x2545F4914F6CDD1D & (1 << 64) - 1) // 2**33 % count


def random_text(random: Random, pieces: list[str]) -> str:
    parts = []
    for _ in range(1 + random.draw(16)):
        match random.draw(10):
            case 0:
                code = random.draw(CHARACTER_LIMITS[random.draw(4)])
                parts.append("\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code))
            case 1:
                parts.append(pieces[random.draw(len(pieces))] * (1 + random.draw(6)))
            case _:
                parts.append(pieces[random.draw(len(pieces))])
    return "".join(parts)


def strings(count: int) -> list[str]:
    given = json.loads((FIXTURES / "strings.json").read_text())
    texts, random = given["whole"][:count], Random(20_261_130)
    while len(texts) < count:
        texts.append(random_text(random, given["pieces"]))
    return texts
