#!/usr/bin/env python3
"""Random blocks of every storage format and their f32 values by llama.cpp's Python package.

    python3 -m venv .venv && .venv/bin/pip install gguf==0.19.0 numpy==2.4.6
    .venv/bin/python scripts/reference/dequantize_fixture.py
"""

from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

OUT = Path(__file__).parents[2] / "crates/iron-core/tests/fixtures/dequantize"
BLOCKS = 6
# Byte offsets of the f16 scales: random bits there could be infinite or NaN, which no file has.
HALVES = {
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q4_K": [0, 2],
    "Q6_K": [208],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q5_K": [0, 2],
}

rng = np.random.default_rng(20_261_130)
OUT.mkdir(parents=True, exist_ok=True)
for name in ["F32", "F16", "BF16", *HALVES]:
    kind = GGMLQuantizationType[name]
    block, size = GGML_QUANT_SIZES[kind]
    if name in HALVES:
        blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for offset in HALVES[name]:
            scales = (rng.standard_normal(BLOCKS) * 0.05).astype(np.float16)
            scales[0] = np.float16(6e-8)  # subnormal
            scales[1] = np.float16(-0.0)
            blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
    else:
        values = np.concatenate([rng.standard_normal(60), [0.0, -0.0, 6e-8, -1e4]]).astype(np.float32)
        if name == "F32":
            blocks = values.view(np.uint8)
        elif name == "F16":
            blocks = values.astype(np.float16).view(np.uint8)
        else:
            blocks = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        blocks = blocks.reshape(1, -1)
    expected = dequantize(blocks.reshape(-1), kind).astype(np.float32)
    assert np.isfinite(expected).all()
    (OUT / f"{name.lower()}.blocks").write_bytes(blocks.tobytes())
    (OUT / f"{name.lower()}.f32").write_bytes(expected.tobytes())
