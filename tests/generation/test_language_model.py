"""Models as files hold them: read alike from GGUF and safetensors, or refused in a sentence."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.llm import layers
from golden.llm.language_model import open_language_model
from golden.llm.model import DataFileError
from hdl.catalog import entry_named
from systola.generation.veda import VedaSystem
from testbenches.veda.decode_work import LAYERS, open_tokens
from tests.generation.small_model import write_small_model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("small"))


def test_tokens_of_numbers_are_numbers(small: Path) -> None:
    model = open_language_model(small)
    tokens = model.tokens_of("3 1 4 1 5 9 2 6")
    assert tokens == [3, 1, 4, 1, 5, 9, 2, 6] and model.text_of(tokens) == "3 1 4 1 5 9 2 6"


def test_gguf_gives_the_matrices_of_the_trace() -> None:
    model, trace = open_language_model(), open_tokens()
    assert model.stop == {2}
    for number in LAYERS:
        ours = model.layer(number)
        sizes = entry_named("veda").parameters("smollm2")
        theirs = layers.real_weights(sizes, trace, number)
        for name, matrix in vars(ours).items():
            assert np.array_equal(matrix, getattr(theirs, name)), (number, name)


def test_corrupted_files_are_rejected(small: Path, tmp_path: Path) -> None:
    whole = (small / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(DataFileError, match=r"must have its config\.json in the same folder"):
        open_language_model(tmp_path)
    (tmp_path / "config.json").write_text((small / "config.json").read_text())
    with pytest.raises(DataFileError, match="cannot be read and may be corrupted"):
        open_language_model(tmp_path)
    other = tmp_path / "model.gguf"
    other.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(DataFileError, match="cannot be read and may be corrupted"):
        open_language_model(other)
    with pytest.raises(DataFileError, match="does not exist"):
        open_language_model(tmp_path / "nothing.gguf")
    with pytest.raises(DataFileError, match=r"must end in \.gguf, \.safetensors or"):
        open_language_model(small / "config.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 6}, "head_size must be the array's width 8 or a plane's 4, not 6"),
        ({"rms_norm_eps": 1e-6}, "norm_epsilon must be 1e-05, not 1e-06"),
    ],
)
def test_dimensions_that_veda_has_not_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    model = open_language_model(write_small_model(tmp_path, **changes))
    with pytest.raises(Exception, match=re.escape(message)):
        VedaSystem.fitted(model, entry_named("veda").parameters("tiny"))
