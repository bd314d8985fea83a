"""Text generation of every system with a slow memory: the same tokens, more cycles."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hdl.catalog import entry_named
from hdl.errors import UserError
from systola.generate import adapter_of
from systola.generation.run import Run
from systola.generation.system import Settings
from testbenches.external_memory import memory_of
from tests.generation.random_models import WordModel, generated, random_model, running
from tests.p3llm.test_whole_model import SHAPE as P3LLM

SLOW = "lpddr4 channels=1 data_rate=400 queue_depth=4"
SLOW_BANKS = "hbm2 banks=2 rcd=40 rp=40 ras=80 ccd_s=2 ccd_l=4 rfc=600"
"""P3-LLM's memory: the small preset has eight banks."""

TOKENS = 3
PROMPT = [3, 1, 4]

SHAPES: dict[str, dict[str, Any]] = {
    "veda": {},
    "meadow": {"hidden_size": 16, "intermediate_size": 32, "context_length": 16},
    "kelle": {"hidden_size": 32, "head_size": 8},
    "p3llm": P3LLM,
    "lad": {"hidden_size": 8, "heads": 2, "kv_heads": 1, "context_length": 40},
}

pytestmark = [pytest.mark.depends(*SHAPES), pytest.mark.usefixtures("compiled_once")]


def prepared(top: str, folder: Path, memory: str, clock: int | None = None) -> Run:
    model = WordModel(**vars(random_model(**SHAPES[top])))
    system_class = adapter_of(top)
    settings = Settings(budget=7, reserved=3, memory=memory_of(memory), clock=clock)
    fitted = system_class.fitted(model, entry_named(top).parameters("tiny"))
    parameters = system_class.with_memory(fitted, settings)
    return running(system_class(model, parameters, settings, folder), PROMPT, TOKENS)


@pytest.mark.parametrize("top", SHAPES)
def test_slow_memory_changes_cycles_and_no_token(top: str, tmp_path: Path) -> None:
    """The run itself compares tokens, caches and states with the golden model."""
    ideal = prepared(top, tmp_path / "ideal", "none")
    slow = prepared(top, tmp_path / "slow", SLOW_BANKS if top == "p3llm" else SLOW)
    assert generated(slow) == generated(ideal)
    assert ideal.home.name != slow.home.name
    for own, other in zip(slow.progress.figures, ideal.progress.figures, strict=True):
        if not other["cycles"]:
            continue
        used = own["memory"]
        # P3-LLM's banks wait for rows and refreshes only: their bandwidth is the same.
        assert own["cycles"] > 1.1 * other["cycles"]
        assert 0 < used["waiting"] <= own["cycles"]
        # Each byte at the ports is in a burst.
        assert used["bytes_read"] >= 32 and 0 < used["utilization"] < 1
        assert sum(used["port_cycles"].values()) >= used["waiting"]
        assert "memory" not in other


def test_bank_commands_that_are_too_early_are_refused(tmp_path: Path) -> None:
    """Hardware with the times of a faster memory."""
    run = prepared("p3llm", tmp_path, "hbm2 banks=2")
    assert run.system.external is not None
    slower = replace(run.system.external.memory, rcd=60.0)
    run.system.external.memory = slower
    with pytest.raises(UserError, match=r"cycle \d+: a command of the banks violates tRCD"):
        generated(run)


@pytest.mark.parametrize(
    ("memory", "clock", "message"),
    [
        ("hbm2 banks=2", 250, "timing.clock_mhz must be above 250 for 2 pumps in ccd_l_ps=4000"),
        ("hbm2", None, "bank_groups x banks of MEMORY must be the 8 of the channel, not 16"),
        ("hbm2 banks=2 rrefd=0", None, "rrefd of MEMORY must be above 0, since single banks are"),
    ],
)
def test_memory_that_p3llm_cannot_use_is_refused(
    tmp_path: Path, memory: str, clock: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        prepared("p3llm", tmp_path, memory, clock)
