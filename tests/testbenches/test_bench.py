"""Seed and parameters of a bench: from the project's runner, or from its caller."""

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cocotb
import pytest

from testbenches import bench
from testbenches.bench import CONTEXT_VARIABLE, PARAMETERS_FILE, Bench
from testbenches.unit_bench import UnitBench


class Handle:
    """A port of one bit."""

    _handle = None

    def __len__(self) -> int:
        return 1


DUT = SimpleNamespace(clk=Handle(), rst=Handle())


def drawn(made: Bench) -> list[int]:
    """Return random numbers of a bench."""
    return [made.rng.getrandbits(32) for _ in range(4)]


def numbers(text: str) -> list[int]:
    rng = random.Random(text)
    return [rng.getrandbits(32) for _ in range(4)]


@pytest.fixture(autouse=True)
def no_watchdog(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clear the settings of other tests, and start no timer that would end pytest."""
    monkeypatch.delenv(CONTEXT_VARIABLE, raising=False)
    monkeypatch.setattr("faulthandler.dump_traceback_later", lambda *_given, **_named: None)
    cached = (bench.context, bench.catalog_parameters, bench._end_in_time, bench._facts)
    for one in cached:
        one.cache_clear()
    yield
    for one in cached:
        one.cache_clear()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the project's runner with seed 7 and the parameters "of the run"."""
    settings = {"seed": 7, "full": True, "seconds": 5, "directory": str(tmp_path)}
    (tmp_path / "context.json").write_text(json.dumps(settings))
    (tmp_path / PARAMETERS_FILE).write_bytes(pickle.dumps("of the run"))
    monkeypatch.setenv(CONTEXT_VARIABLE, str(tmp_path / "context.json"))
    return tmp_path


def test_runner_determines_seed_and_parameters(run: Path) -> None:
    made = Bench(DUT, "stalls")
    assert drawn(made) == numbers("7 stalls")
    assert made.parameters == "of the run" and made.context["full"]


def test_caller_replaces_seed_and_parameters_of_the_runner(run: Path) -> None:
    made = Bench(DUT, "stalls", seed=0, parameters="given")
    assert drawn(made) == numbers("0 stalls")
    assert made.parameters == "given"


def unit_bench(**given: Any) -> UnitBench[Any]:
    return UnitBench(
        DUT, inputs={}, outputs={}, offered=lambda work: {}, expected=lambda work: {}, **given
    )


def test_no_file_is_needed_in_another_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    made = unit_bench(seed=3, parameters="given")
    assert made.p == "given" and drawn(made.bench) == numbers("3 ")
    assert not made.bench.context["full"]
    monkeypatch.setattr(cocotb, "RANDOM_SEED", 11, raising=False)
    assert drawn(Bench(DUT, "stalls")) == numbers("11 stalls")


def test_another_runner_must_give_parameters() -> None:
    with pytest.raises(LookupError, match=r"the bench must be given parameters="):
        unit_bench(seed=3)
    # A bench that does not read them needs none.
    assert Bench(DUT, seed=3).cycle == 0


def test_figures_are_logged_in_another_runner(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "cocotb.systola")
    Bench(DUT, seed=3).record(cycles=12, ideal_cycles=10, rows=4)
    assert caplog.messages == ["cycles 12, ideal cycles 10, rows 4"]
