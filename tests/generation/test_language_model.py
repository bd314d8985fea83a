"""Models as files hold them: read alike from GGUF and safetensors, or refused in a sentence."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm import layers
from golden.llm.language_model import LanguageModel, open_language_model
from golden.llm.model import DataFileError, load_model
from hdl.catalog import entry_named
from systola.generation.veda import VedaSystem
from testbenches.veda.decode_work import LAYERS, open_tokens
from tests.generation.small_model import write_small_model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("small"))


def exact_logits(model: LanguageModel, tokens: list[int]) -> Any:
    """Return the last token's sums in float64, by the equations alone."""
    s = model.shape
    weights = [model.layer(number) for number in range(s.layers)]
    past: list[Any] = [(np.zeros((s.kv_heads, 0, s.head_size)),) * 2 for _ in weights]
    state = np.zeros(s.width)
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


def test_safetensors_are_what_transformers_computes_with(small: Path) -> None:
    import torch

    model = open_language_model(small)
    tokens = model.tokens_of("3 1 4 1 5 9 2 6")
    assert tokens == [3, 1, 4, 1, 5, 9, 2, 6] and model.text_of(tokens) == "3 1 4 1 5 9 2 6"
    with torch.inference_mode():
        theirs = load_model(model.file)(torch.tensor([tokens])).logits[0, -1].numpy()
    np.testing.assert_allclose(exact_logits(model, tokens), theirs, rtol=1e-3, atol=1e-4)


def test_gguf_gives_the_matrices_of_the_trace() -> None:
    model, trace = open_language_model(), open_tokens()
    for number in LAYERS:
        ours = model.layer(number)
        sizes = entry_named("veda").parameters("smollm2")
        theirs = layers.real_weights(sizes, trace, number)
        for name, matrix in vars(ours).items():
            assert np.array_equal(matrix, getattr(theirs, name)), (number, name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen2"}, "must have the architecture 'llama', not 'qwen2'"),
        ({"hidden_act": "gelu"}, "must have the activation 'silu', not 'gelu'"),
        ({"intermediate_size": 16}, "the last layer's down must have the shape (20, 16)"),
        (
            {"rope_parameters": {"rope_type": "llama3"}},
            "must have the rope scaling 'default', not 'llama3'",
        ),
    ],
)
def test_other_kinds_are_refused(
    small: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    config = json.loads((small / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    (tmp_path / "model.safetensors").symlink_to(small / "model.safetensors")
    with pytest.raises(DataFileError, match=re.escape(message)):
        open_language_model(tmp_path)


def test_damaged_files_are_refused(small: Path, tmp_path: Path) -> None:
    whole = (small / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(DataFileError, match=r"beside .* there must be its config.json"):
        open_language_model(tmp_path)
    (tmp_path / "config.json").write_text((small / "config.json").read_text())
    with pytest.raises(DataFileError, match="cannot be read, and may be damaged"):
        open_language_model(tmp_path)
    other = tmp_path / "model.gguf"
    other.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(DataFileError, match="cannot be read, and may be damaged"):
        open_language_model(other)
    with pytest.raises(DataFileError, match="does not exist"):
        open_language_model(tmp_path / "nothing.gguf")
    with pytest.raises(DataFileError, match=r"must end in \.gguf, \.safetensors or"):
        open_language_model(small / "config.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 6}, "head_size must be the array's width 8 or a plane's 4, not 6"),
        ({"rms_norm_eps": 1e-6}, "the norms of a model for VEDA must add 1e-05"),
    ],
)
def test_dimensions_that_veda_has_not_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    model = open_language_model(write_small_model(tmp_path, **changes))
    with pytest.raises(Exception, match=re.escape(message)):
        VedaSystem.fitted(model, entry_named("veda").parameters("tiny"))
