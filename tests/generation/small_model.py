"""A small model of random numbers that `transformers` writes, with a tokeniser of numbers."""

from pathlib import Path
from typing import Any

VOCABULARY = 45


def write_small_model(folder: Path, **changes: Any) -> Path:
    """Write `model.safetensors`, its configuration and its tokeniser; return the folder."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

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
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**(options | changes))).save_pretrained(folder)
    words = {str(number): number for number in range(VOCABULARY - 1)} | {"?": VOCABULARY - 1}
    plain = Tokenizer(WordLevel(words, unk_token="?"))
    plain.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="?").save_pretrained(folder)
    return folder
