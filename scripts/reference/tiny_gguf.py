"""A tiny checkpoint as a GGUF file: names and keys by the `gguf` package, values as llama.cpp's converter leaves them."""

from pathlib import Path

import gguf
import torch

ARCHITECTURES = {"qwen2": gguf.MODEL_ARCH.QWEN2, "gemma3_text": gguf.MODEL_ARCH.GEMMA3}


def write_gguf(model, path: Path) -> None:
    """Writes matrices in f16, which must hold them exactly, and vectors in f32."""
    config = model.config
    architecture = ARCHITECTURES[config.model_type]
    is_gemma = architecture == gguf.MODEL_ARCH.GEMMA3
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_name(f"tiny {config.model_type}")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    if is_gemma:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_sliding_window(config.sliding_window)
    add_tokenizer(writer, config)

    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    for name, tensor in model.state_dict().items():
        if name in tied:
            continue
        if is_gemma and name.endswith("norm.weight"):
            tensor = tensor + 1
        if tensor.dim() == 2:
            assert torch.equal(tensor.half().float(), tensor), name
            tensor = tensor.half()
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.chmod(0o644)


def add_tokenizer(writer: gguf.GGUFWriter, config) -> None:
    """Words that no text has: these files are for tokens."""
    words = ["a", "b", "ab", *(f"word{token}" for token in range(3, config.vocab_size))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(words))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
