"""Small models of random numbers, which a test writes, and their logits in float64."""

from pathlib import Path
from typing import Any

import numpy as np

from golden.llm import layers
from golden.llm.language_model import LanguageModel
from golden.llm.safetensors_file import NAMES as SAFETENSORS_NAMES

VOCABULARY = 45


def write_small_model(folder: Path, *, dtype: str = "float32", **changes: Any) -> Path:
    """Write `model.safetensors`, its configuration and its tokenizer; return the folder.

    Parameters
    ----------
    folder : Path
        Where the files go.
    dtype : str
        Format of the tensors: float32, float16 or bfloat16.
    changes : Any
        Keys of the configuration, and `max_shard_size`, which splits the model.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    options: dict[str, Any] = {
        "hidden_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "intermediate_size": 12,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "initializer_range": 0.5,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    shards = {"max_shard_size": changes.pop("max_shard_size", "1GB")}
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**(options | changes))).to(getattr(torch, dtype))
    with torch.no_grad():
        # A norm's weights are ones at first, which no reader could mix up.
        for name, own in model.named_parameters():
            if "norm" in name:
                own.copy_(1 + torch.randn(own.shape) / 8)
    model.save_pretrained(folder, **shards)
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path, **changes: Any) -> None:
    """Write a tokenizer whose tokens are numbers; `changes` go to its settings."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    words = {str(number): number for number in range(VOCABULARY - 1)} | {"?": VOCABULARY - 1}
    plain = Tokenizer(WordLevel(words, unk_token="?"))
    plain.pre_tokenizer = WhitespaceSplit()
    options: dict[str, Any] = {"tokenizer_object": plain, "unk_token": "?"}
    PreTrainedTokenizerFast(**(options | changes)).save_pretrained(folder)


def write_gguf(
    folder: Path, file: Path, kind: str = "F32", fields: dict[str, Any] | None = None
) -> Path:
    """Write the model of a folder as a GGUF file; return the file.

    Parameters
    ----------
    folder : Path
        What `write_small_model` has written.
    file : Path
        The file to write.
    kind : str
        Format of the matrices: F32, F16, BF16 or Q8_0.
    fields : dict
        Further metadata, or other values; None omits a key.
    """
    import gguf
    from transformers import AutoConfig, LlamaForCausalLM

    config = AutoConfig.from_pretrained(folder)
    words = [str(number) for number in range(config.vocab_size)]
    written: dict[str, Any] = {
        "llama.block_count": config.num_hidden_layers,
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "llama.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "llama.rope.dimension_count": config.head_dim,
        "llama.attention.key_length": config.head_dim,
        "llama.attention.value_length": config.head_dim,
        "llama.vocab_size": config.vocab_size,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [1] * len(words),
        "tokenizer.ggml.merges": [f"{word[0]} {word[1]}" for word in words[10:]],
        "tokenizer.ggml.add_bos_token": False,
    }
    writer = gguf.GGUFWriter(file, "llama")
    for key, value in (written | (fields or {})).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    stored = dict(LlamaForCausalLM.from_pretrained(folder).state_dict())
    if config.tie_word_embeddings:
        del stored["lm_head.weight"]
    for name, values in stored.items():
        matrix = values.float().numpy()
        theirs = gguf_name(name)
        if ".attn_q." in theirs or ".attn_k." in theirs:
            # llama.cpp keeps as neighbours what the rotary embedding turns together.
            halves = matrix.reshape(-1, 2, config.head_dim // 2, matrix.shape[1])
            matrix = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(matrix.shape)
        own = gguf.GGMLQuantizationType["F32" if matrix.ndim == 1 else kind]
        writer.add_tensor(theirs, gguf.quantize(matrix, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def gguf_name(name: str) -> str:
    """Return the GGUF name of a tensor of `transformers`."""
    from golden.llm.gguf_file import NAMES

    for layer in (None, 0, 1, 2):
        parts = SAFETENSORS_NAMES.whole if layer is None else SAFETENSORS_NAMES.parts
        for own in parts:
            if SAFETENSORS_NAMES[layer, own] == name:
                return NAMES[layer, own]
    raise ValueError(f"{name} must be a tensor of a decoder with at most three layers")


def exact_logits(model: LanguageModel, tokens: list[int]) -> Any:
    """Return the last token's logits in float64, by the equations alone."""
    s = model.shape
    weights = [model.layer(number) for number in range(s.layers)]
    past: list[Any] = [(np.zeros((s.kv_heads, 0, s.head_size)),) * 2 for _ in weights]
    state = np.zeros(s.hidden_size)
    for position, token in enumerate(tokens):
        angle = layers.rotary_angles(np.array(position), s.head_size, s.rope_base)
        angles = np.cos(angle), np.sin(angle)
        state = model.embedding[token].astype(np.float64)
        for number, own in enumerate(weights):
            here = layers.rms_norm(state)
            key = layers.rotated(np.tensordot(here, own.key, 1), *angles)
            value = np.tensordot(here, own.value, 1)
            before = past[number]
            state = layers.exact_layer(own, state, angles, before)
            past[number] = tuple(
                np.concatenate([old, new[:, np.newaxis]], axis=1)
                for old, new in zip(before, (key, value), strict=True)
            )
    return layers.rms_norm(state) @ model.projection()
