"""Expected values for single kernels: formulas in f64, written out here, checked against torch and transformers.

    kernel_truth.py --out tests/data/kernels.safetensors

(Not `kernels.py`: transformers would import that as the package of this name.)

Inputs are f32. Expected values are the f64 result rounded once to f32, except in the `math.*` tables, which keep f64
so that errors can be counted in units in the last place. Names and layouts are in tests/data/README.md.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from decoder_f64 import inverse_frequencies
from reference import save_fixture
from torch.nn import functional
from transformers import LlamaConfig
from transformers.masking_utils import sliding_window_causal_mask_function
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

Tensors = dict[str, torch.Tensor]

generator = torch.Generator().manual_seed(20)


def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=generator)


def expect_close(name: str, ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> None:
    difference = (ours.double() - theirs.double()).abs().max().item()
    if not difference <= tolerance:
        raise SystemExit(f"{name}: differs from the library by {difference:.2e}, more than {tolerance:.0e}")


def softmax() -> Tensors:
    x = normal(7, 37, scale=3)
    x[1] *= 1e3
    x[2] = -2.5
    x[3, 20:] = -torch.inf
    x[4] = -torch.inf
    x[4, 11] = 5.0
    x[5] += 3e4
    x[6, ::2] -= 100
    shifted = x.double() - x.double().amax(-1, keepdim=True)
    out = shifted.exp() / shifted.exp().sum(-1, keepdim=True)
    expect_close("softmax", out, torch.softmax(x.double(), -1), 1e-15)
    return {"softmax.x": x, "softmax.out": out}


def rms_norm() -> Tensors:
    x = normal(6, 100)
    x[1] *= 1e-3
    x[2] *= 1e4
    x[3] = 0
    x[4] += 10
    x[5, 17] = 500
    weight = 1 + normal(100, scale=0.3)
    normed = {eps: x.double() / (x.double().pow(2).mean(-1, keepdim=True) + eps).sqrt() for eps in (1e-6, 1e-3)}
    plain = {name: normed[eps] * weight.double() for name, eps in (("out_eps_1e-6", 1e-6), ("out_eps_1e-3", 1e-3))}
    library = functional.rms_norm(x.double(), (100,), weight.double(), 1e-3)
    expect_close("rms_norm", plain["out_eps_1e-3"], library, 1e-12)
    outputs = plain | {"out_unit_offset_eps_1e-6": normed[1e-6] * (1 + weight.double())}
    return {"rms_norm.x": x, "rms_norm.weight": weight} | {f"rms_norm.{name}": out for name, out in outputs.items()}


def rope() -> Tensors:
    """Angles are `f32(position) * f32(inverse frequency)` rounded to f32, as in transformers; the rest is f64.

    The inverse frequencies are transformers' own: one unit in their last place is 1e-4 rad at position 8191.
    """
    heads, head_dim = 3, 20
    positions = torch.tensor([0, 1, 2, 5, 31, 100, 1000, 8191], dtype=torch.int32)
    x = normal(len(positions), heads, head_dim)
    library_rope = LlamaRotaryEmbedding(llama_config(head_dim, {"rope_type": "default", "rope_theta": 10000.0}))
    inv_freq = library_rope.inv_freq
    angles = (positions.float()[:, None] * inv_freq).double()
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def rotate(first, second):
        return first * cos - second * sin, second * cos + first * sin

    half_split = torch.cat(rotate(*x.double().chunk(2, -1)), -1)
    interleaved = torch.stack(rotate(x.double()[..., 0::2], x.double()[..., 1::2]), -1).flatten(-2)

    their_cos, their_sin = library_rope(x, positions[None].long())
    library, _ = apply_rotary_pos_emb(x[None], x[None], their_cos, their_sin, unsqueeze_dim=2)
    expect_close("rope", half_split, library[0], 2e-6)
    return {
        "rope.x": x,
        "rope.positions": positions,
        "rope.inv_freq": inv_freq,
        "rope.out_half_split": half_split,
        "rope.out_interleaved": interleaved,
    }


def llama_config(head_dim: int, rope_parameters: dict) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=131072,
        rope_parameters=rope_parameters,
    )


def rope_frequencies() -> Tensors:
    """Inverse frequencies straight from transformers; the llama3 and default ones agree with `decoder_f64.py`."""
    llama3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    yarn = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}
    llama31 = llama3 | {"rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8192}
    llama32 = llama3 | {"rope_theta": 5e5, "factor": 32.0, "original_max_position_embeddings": 8192}
    tiny = llama3 | {"rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 64}
    cases = {
        "llama3_1_8b": (128, llama31),
        "llama3_2_1b": (64, llama32),
        "llama3_tiny": (20, tiny),
        "linear_factor_4": (64, {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}),
        "yarn_factor_4": (128, yarn),
    }
    tensors = {}
    for name, (head_dim, parameters) in cases.items():
        config = llama_config(head_dim, parameters)
        inv_freq, attention_factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"))
        tensors[f"rope_inv_freq.{name}"] = inv_freq
        if attention_factor != 1.0:
            tensors[f"rope_inv_freq.{name}.attention_factor"] = torch.tensor([attention_factor], dtype=torch.float64)
        if parameters["rope_type"] == "llama3":
            ours = inverse_frequencies(parameters, head_dim)
            expect_close(name, ours / inv_freq.double(), torch.ones_like(ours), 1e-6)
    return tensors


def gated() -> Tensors:
    gate = torch.cat((normal(200, scale=3), torch.tensor([0.0, -0.0, 1e-6, -1e-6, 20, -20, 88, -88, 105, -105, 1e4, -1e4])))
    up = normal(len(gate))
    g, u = gate.double(), up.double()
    tanh = 0.5 * g * (1 + torch.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)))
    erf = 0.5 * g * torch.special.erfc(-g / math.sqrt(2))
    silu = g / (1 + torch.exp(-g))
    expect_close("silu", silu, functional.silu(g), 1e-12)
    expect_close("gelu tanh", tanh, functional.gelu(g, approximate="tanh"), 1e-12)
    expect_close("gelu erf", erf, functional.gelu(g), 1e-12)
    return {
        "gated.gate": gate,
        "gated.up": up,
        "gated.silu_mul": silu * u,
        "gated.gelu_tanh_mul": tanh * u,
        "gated.gelu_erf_mul": erf * u,
    }


def visible(queries: int, keys: int, causal: bool, window: int | None) -> torch.Tensor:
    """Which key each query sees, `[queries, keys]`; the queries are the last positions of the sequence."""
    query = torch.arange(keys - queries, keys)[:, None]
    key = torch.arange(keys)
    mask = key <= query if causal else torch.ones(queries, keys, dtype=torch.bool)
    return mask if window is None else mask & (key > query - window)


def attention_case(q, k, v, scale: float, mask: torch.Tensor, soft_cap: float | None) -> torch.Tensor:
    """`[queries, heads, head_dim]` from q of that shape and k, v `[keys, kv_heads, head_dim]`."""
    q, k, v = q.double(), k.double(), v.double()
    grouped = q.unflatten(1, (k.shape[1], -1))
    scores = scale * torch.einsum("qkgd,skd->kgqs", grouped, k)
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    probabilities = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.einsum("kgqs,skd->qkgd", probabilities, v).flatten(1, 2)


def attention() -> Tensors:
    keys, heads, kv_heads, head_dim = 45, 6, 2, 20
    q, k = normal(keys, heads, head_dim, scale=1.5), normal(keys, kv_heads, head_dim, scale=1.5)
    v = normal(keys, kv_heads, head_dim)
    scale = head_dim**-0.5
    last = 5
    cases = {
        "causal": (keys, True, None, None),
        "causal_last_5": (last, True, None, None),
        "window_7": (keys, True, 7, None),
        "soft_cap_2": (keys, True, None, 2.0),
        "window_7_soft_cap_2_last_5": (last, True, 7, 2.0),
        "bidirectional": (keys, False, None, None),
    }
    tensors = {
        "attention.q": q,
        "attention.k": k,
        "attention.v": v,
        "attention.scale": torch.tensor([scale], dtype=torch.float64),
    }
    for name, (queries, causal, window, soft_cap) in cases.items():
        mask = visible(queries, keys, causal, window)
        out = attention_case(q[-queries:], k, v, scale, mask, soft_cap)
        tensors[f"attention.out_{name}"] = out
        if soft_cap is None:
            library = functional.scaled_dot_product_attention(
                *(x.double().transpose(0, 1)[None] for x in (q[-queries:], k, v)), attn_mask=mask, enable_gqa=True
            )
            expect_close(name, out, library[0].transpose(0, 1), 1e-12)
    theirs = sliding_window_causal_mask_function(7)
    pairs = torch.arange(keys)[:, None], torch.arange(keys)
    if not torch.equal(visible(keys, keys, True, 7), theirs(0, 0, *pairs)):
        raise SystemExit("a window of 7 means something else in transformers")
    return tensors


def threefry2x32(counter: tuple[int, int], key: tuple[int, int], rounds: int) -> tuple[int, int]:
    """Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011)."""
    word = 0xFFFFFFFF
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    schedule = (*key, 0x1BD11BDA ^ key[0] ^ key[1])
    x0, x1 = (counter[0] + key[0]) & word, (counter[1] + key[1]) & word
    for index in range(rounds):
        x0 = (x0 + x1) & word
        turn = rotations[index % 8]
        x1 = (x1 << turn | x1 >> (32 - turn)) & word ^ x0
        if index % 4 == 3:
            injected = index // 4 + 1
            x0 = (x0 + schedule[injected % 3]) & word
            x1 = (x1 + schedule[(injected + 1) % 3] + injected) & word
    return x0, x1


# Random123, kat_vectors: rounds, counter, key, answer.
KNOWN_ANSWERS = """
13 00000000 00000000 00000000 00000000 9d1c5ec6 8bd50731
13 ffffffff ffffffff ffffffff ffffffff fd36d048 2d17272c
13 243f6a88 85a308d3 13198a2e 03707344 ba3e4725 f27d669e
20 00000000 00000000 00000000 00000000 6b200159 99ba4efe
20 ffffffff ffffffff ffffffff ffffffff 1cb996fc bb002be7
20 243f6a88 85a308d3 13198a2e 03707344 c4923a9c 483df7a0
"""


def threefry() -> Tensors:
    """The known answers, and further ones from the code that reproduces them."""
    tensors = {}
    rows = [line.split() for line in KNOWN_ANSWERS.strip().splitlines()]
    for rounds in (13, 20):
        known = [[int(word, 16) for word in row[1:]] for row in rows if int(row[0]) == rounds]
        for row in known:
            if threefry2x32(tuple(row[:2]), tuple(row[2:4]), rounds) != tuple(row[4:]):
                raise SystemExit(f"threefry2x32-{rounds} does not reproduce Random123's answer {row}")
        words = torch.randint(2**32, (13, 4), generator=generator).tolist()
        counting = [[index, 0, 42, 7] for index in range(16)]
        table = known + [
            [*row, *threefry2x32(tuple(row[:2]), tuple(row[2:]), rounds)] for row in counting + words
        ]
        tensors[f"threefry2x32_{rounds}.counter_key_answer"] = torch.from_numpy(np.array(table, np.uint32))
    return tensors


def grid(low: float, high: float, count: int = 384) -> torch.Tensor:
    """f32 values over a range: half on a grid, half random, so that no grid hides a bad spot."""
    random = low + (high - low) * torch.rand(count // 2, generator=generator, dtype=torch.float64)
    return torch.cat((torch.linspace(low, high, count - count // 2, dtype=torch.float64), random)).float()


def magnitudes(low: float, high: float, signed: bool, count: int = 384) -> torch.Tensor:
    """f32 values spread evenly over orders of magnitude."""
    values = torch.exp(grid(math.log(low), math.log(high), count).double())
    if signed:
        values[::2] *= -1
    return values.float()


def math_tables() -> Tensors:
    """Elementary functions in f64 at f32 arguments, with the arguments where implementations go wrong."""
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0**-126, -(2.0**-126), 2.0**-149])
    around_one = torch.tensor([1 - 2.0**-24, 1 + 2.0**-23, 1 - 2.0**-12, 1 + 2.0**-12])
    small = magnitudes(1e-8, 1e-1, True, 96)
    turns = (torch.arange(1, 65, dtype=torch.float64) * math.pi / 2).float()
    large_angles = torch.cat((grid(-8192, 8192), turns, -turns, magnitudes(8192, 1e6, True, 128)))
    tables = {
        "exp": (np.exp, torch.cat((grid(-103, 88.7), small, special))),
        "exp2": (np.exp2, torch.cat((grid(-149, 127.9), small, special))),
        "log": (np.log, torch.cat((magnitudes(1e-37, 1e38, False), grid(0.5, 2, 192), around_one))),
        "tanh": (np.tanh, torch.cat((grid(-10, 10), small, special))),
        "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), torch.cat((grid(-87, 87, 256), grid(-8, 8, 256), small, special))),
        "softplus": (lambda x: np.logaddexp(0, x), torch.cat((grid(-87, 87, 256), grid(-4, 4, 256), special))),
        "erf": (lambda x: torch.erf(torch.from_numpy(x)).numpy(), torch.cat((grid(-5, 5), small, special))),
        "sin": (np.sin, torch.cat((grid(-math.pi, math.pi), small, special))),
        "cos": (np.cos, torch.cat((grid(-math.pi, math.pi), small, special))),
        "sin_large": (np.sin, large_angles),
        "cos_large": (np.cos, large_angles),
        "rsqrt": (lambda x: 1 / np.sqrt(x), magnitudes(1e-37, 1e38, False)),
    }
    tensors = {}
    for name, (function, x) in tables.items():
        tensors[f"math.{name}.x"] = x
        tensors[f"math.{name}.out"] = torch.from_numpy(function(x.double().numpy()))
    return tensors


def rounded(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """f64 results become f32 except where the README says otherwise."""
    keep = name.startswith("math.") or name.endswith((".scale", ".attention_factor"))
    return tensor.float() if tensor.dtype == torch.float64 and not keep else tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tensors = {}
    for table in (softmax, rms_norm, rope, rope_frequencies, gated, attention, threefry, math_tables):
        tensors |= {name: rounded(name, tensor) for name, tensor in table().items()}
    for name, tensor in tensors.items():
        if not name.endswith(".x") and tensor.is_floating_point() and not tensor.isfinite().all():
            raise SystemExit(f"{name}: not finite")
    save_fixture(args.out, tensors, {"layout": "README.md"})


if __name__ == "__main__":
    main()
