"""The logits of models that the test writes, by the equations in float64 and by `transformers`."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm.language_model import LanguageModel, open_language_model
from golden.llm.model import load_model
from tests.generation.small_model import exact_logits, write_gguf, write_small_model

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
Changes = dict[str, Any]
SIZES: Changes = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
}
SHARDS: Changes = {"max_shard_size": 16_000}


def edited(**changes: Any) -> Callable[[Path], None]:
    """Return a change of a folder's `config.json`; None removes a key."""

    def edit(folder: Path) -> None:
        file = folder / "config.json"
        config = json.loads(file.read_text()) | changes
        present = {key: value for key, value in config.items() if value is not None}
        file.write_text(json.dumps(present))

    return edit


def only_head(folder: Path) -> None:
    """Keep a tied model's only matrix under the name of the LM head."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def decoy(folder: Path) -> None:
    """Make the model's file a finetune, next to another model with the standard name."""
    (folder / "model.safetensors").rename(folder / "finetune.safetensors")
    other = write_small_model(folder / "other", **SIZES, initializer_range=0.25)
    (other / "model.safetensors").rename(folder / "model.safetensors")


@dataclass(frozen=True)
class Written:
    """A model to write: its configuration, and what is changed afterwards."""

    changes: Changes = field(default_factory=dict)
    edit: Callable[[Path], None] = lambda folder: None
    file: str = ""
    gguf: str | None = None

    def write(self, folder: Path) -> Path:
        """Write the model, and return what `MODEL` names."""
        write_small_model(folder, **(SIZES | self.changes))
        self.edit(folder)
        if self.gguf:
            return write_gguf(folder, folder / "small.gguf", self.gguf)
        return next(folder.glob(self.file)) if self.file else folder


MODELS = {
    "untied": Written(),
    "tied": Written({"tie_word_embeddings": True}),
    "tied, only lm_head": Written({"tie_word_embeddings": True}, only_head),
    "8 heads, 8 KV heads": Written(
        {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 4}
    ),
    "8 heads, 4 KV heads": Written(
        {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 4}
    ),
    "8 heads, 1 KV head": Written(
        {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 4}
    ),
    "heads wider than the state": Written({"head_dim": 16}),
    "one layer, other sizes": Written(
        {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 40}
    ),
    "three layers": Written({"num_hidden_layers": 3}),
    "vocabulary of 47": Written({"vocab_size": 47}),
    "BF16": Written({"dtype": "bfloat16"}),
    "F16": Written({"dtype": "float16"}),
    "base 500,000": Written({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    "base 500, old spelling": Written(
        {}, edited(rope_parameters=None, rope_theta=500.0, rope_scaling=None)
    ),
    "base left out": Written({}, edited(rope_parameters=None)),
    "KV heads left out": Written(
        {"num_key_value_heads": 4}, edited(num_key_value_heads=None, head_dim=None)
    ),
    "shards": Written(SHARDS),
    "shards, tied, BF16, one named": Written(
        SHARDS | {"tie_word_embeddings": True, "dtype": "bfloat16"},
        file="model-00002-of-*",
    ),
    "finetune next to a model": Written({}, decoy, "finetune.safetensors"),
    "GGUF F32": Written(gguf="F32"),
    "GGUF F16, tied": Written({"tie_word_embeddings": True}, gguf="F16"),
    "GGUF BF16, 8 heads, 1 KV head": Written(
        {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 4}, gguf="BF16"
    ),
    "GGUF Q8_0": Written(gguf="Q8_0"),
    "GGUF Q8_0, tied, base 500": Written(
        {
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        },
        gguf="Q8_0",
    ),
}


def rounding(model: LanguageModel, tokens: int) -> float:
    """Return the error of logits in float32, relative to the largest one.

    The sum of n products has an error of at most n * 2**-24 of the sum of their magnitudes.
    Counted are the terms of all sums from the embedding to a logit, one after the other: two
    norms, projections, scores, attention and feed-forward of each layer, the final norm, the head.
    """
    s = model.shape
    layer = 4 * s.hidden_size + s.head_size + tokens + s.heads * s.head_size + s.intermediate_size
    return 2.0**-24 * (s.layers * layer + 2 * s.hidden_size)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    import torch

    model = open_language_model(MODELS[name].write(tmp_path))
    ours = exact_logits(model, TOKENS)
    with torch.inference_mode():
        theirs = load_model(model.file)(torch.tensor([TOKENS])).logits[0, -1].numpy()
    error, bound = np.abs(ours - theirs).max() / np.abs(ours).max(), rounding(model, len(TOKENS))
    print(f"| {name} | {ours.argmax()} | {theirs.argmax()} | {error:.1e} | {bound:.1e} |")
    assert ours.argmax() == theirs.argmax()
    assert error <= bound
