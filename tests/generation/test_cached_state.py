"""The state of a text by the golden model alone, and a token in Verilog that continues from it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdl.catalog import entry_named
from systola.comparing.contexts import measured
from systola.generate import adapter_of
from systola.generation.run import Run
from systola.generation.system import Settings
from tests.generation.random_models import WordModel, generated, random_model, running
from tests.generation.test_external_memory import SHAPES

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
TOKENS = 4

pytestmark = [pytest.mark.depends(*SHAPES), pytest.mark.usefixtures("compiled_once")]


def prepared(top: str, folder: Path) -> Run:
    model = WordModel(**vars(random_model(**SHAPES[top])))
    system_class = adapter_of(top)
    parameters = system_class.fitted(model, entry_named(top).parameters("tiny"))
    settings = Settings(budget=14, reserved=3)
    return running(system_class(model, parameters, settings, folder), PROMPT, TOKENS)


@pytest.mark.parametrize("top", SHAPES)
def test_golden_model_has_the_state_of_the_verilog(
    top: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a token on this state takes the cycles and bytes that it takes in the whole text."""
    run = prepared(top, tmp_path / "whole")
    states: list[dict[str, Any]] = []
    own = run.checkpoint.save
    monkeypatch.setattr(
        run.checkpoint, "save", lambda progress, state: (states.append(state), own(progress, state))
    )
    text = [*PROMPT, *generated(run)]
    system = prepared(top, tmp_path / "restored").system
    # The last generated token was not processed.
    cached = len(text) - 2
    golden, last = system.cached_state(text[:cached]), run.progress.figures[-1]
    assert last["first"] == cached and (golden is None) == (top == "kelle")
    if golden is not None:
        for name, wanted in states[-2].items():
            assert np.array_equal(golden[name], wanted), name
    found = vars(measured(system, text, cached))
    # P3-LLM's refreshes are due at multiples of an interval since reset, not since the token.
    names = ("bytes_read", "bytes_written", "token", *(("cycles",) if top != "p3llm" else ()))
    assert [found[name] for name in names] == [last[name] for name in names]
