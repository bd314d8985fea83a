"""The model is loaded once for all tests of this folder, and captured into a folder of its own."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from golden.llm import Trace, model, open_trace
from hdl import paths

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

TOKENS = 320


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return an empty build folder that the captures of the session go to."""
    folder = tmp_path_factory.mktemp("build")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "BUILD", folder)
        patch.setattr(model, "load_model", functools.cache(model.load_model))
        patch.setattr(model, "load_tokens", functools.cache(model.load_tokens))
        yield folder


@pytest.fixture(scope="session")
def trace(build: Path) -> Trace:
    """Return a trace of the first, a middle and the last layer, just captured."""
    return open_trace(text="prose", tokens=TOKENS, layers=(0, 14, 29))


@pytest.fixture(scope="session")
def network(trace: Trace) -> "LlamaForCausalLM":
    """Return the model that the trace was captured from."""
    return model.load_model()
