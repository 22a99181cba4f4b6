"""Writes a GGUF's dequantised weights as a Hugging Face folder: a real checkpoint for tests of the safetensors loader.

    gguf_to_hf.py --gguf FILE --out FOLDER [--dtype bfloat16]

The folder holds config.json, model.safetensors and tokenizer.json (with the chat template in tokenizer_config.json).
"""

import argparse
import json
from pathlib import Path

import torch
from reference import load_model, load_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    args = parser.parse_args()

    model = load_model(args.gguf).to(getattr(torch, args.dtype))
    if hasattr(model, "hf_quantizer"):
        del model.hf_quantizer
    model.config.__dict__.pop("quantization_config", None)
    model.save_pretrained(args.out)
    load_tokenizer(args.gguf).save_pretrained(args.out)
    config = json.loads((args.out / "config.json").read_text())
    print({key: config.get(key) for key in ("architectures", "dtype", "hidden_size", "quantization_config")})


if __name__ == "__main__":
    main()
