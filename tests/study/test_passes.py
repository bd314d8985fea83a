"""Finished passes are kept, each under everything it depends on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.policies.protocol import CachePolicy
from golden.policies.scores import H2O, FullCache
from golden.study.passes import Passes, code_of
from golden.study.retention import uniform
from golden.study.subject import Subject

WINDOW = np.arange(5)


def counted(values: list[float]) -> tuple[Callable[[], np.ndarray], list[int]]:
    calls: list[int] = []

    def measure() -> np.ndarray:
        calls.append(1)
        return np.array(values)

    return measure, calls


def test_a_pass_is_measured_once(tmp_path: Path) -> None:
    measure, calls = counted([1.5, 2.5])
    for _ in range(2):
        # A second object is a second run of the verb.
        kept = Passes(tmp_path, "code").losses(WINDOW, [FullCache()], None, "", measure)
        assert kept.tolist() == [1.5, 2.5]
    assert len(calls) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"window": WINDOW[::-1]},
        {"policies": [H2O(budget=24)]},
        {"rates": [uniform(0.1)]},
        {"variant": "W4A8"},
        {"code": "other"},
    ],
)
def test_whatever_it_depends_on_makes_another_pass(tmp_path: Path, change: dict[str, Any]) -> None:
    arguments = {"window": WINDOW, "policies": [FullCache()], "rates": None, "variant": ""}
    measure, calls = counted([1.0])
    Passes(tmp_path, "code").losses(**arguments, measure=measure)
    code = change.get("code", "code")
    arguments |= {name: value for name, value in change.items() if name != "code"}
    Passes(tmp_path, code).losses(**arguments, measure=measure)
    assert len(calls) == 2


def test_corrupted_pass_is_measured_again(tmp_path: Path) -> None:
    measure, calls = counted([1.0])
    Passes(tmp_path, "code").losses(WINDOW, [FullCache()], None, "", measure)
    (file,) = tmp_path.glob("*.npz")
    file.write_bytes(file.read_bytes()[:-7])
    Passes(tmp_path, "code").losses(WINDOW, [FullCache()], None, "", measure)
    assert len(calls) == 2


def test_the_code_is_the_models_too() -> None:
    assert code_of("one model") != code_of("another")


def test_a_subject_keeps_what_it_measures(model: Any, tmp_path: Path) -> None:
    windows = np.random.default_rng(3).integers(0, 97, (2, 48))
    alone = Subject(model=model, windows=windows, progress=lambda what, steps: lambda: None)
    lanes: dict[str, CachePolicy] = {"full cache": FullCache(), "H2O": H2O(budget=24)}
    rates = [uniform(0.05)] * 2
    policies: dict[str, CachePolicy] = {name: FullCache(source=H2O().source) for name in lanes}
    keeping = replace(alone, passes=Passes(tmp_path, "code"))
    for _ in range(2):
        for named, wrong in ((lanes, None), (policies, rates)):
            expected = alone.losses("alone", named, rates=wrong)
            kept = keeping.losses("kept", named, rates=wrong)
            for name in named:
                np.testing.assert_array_equal(kept[name], expected[name])
    assert len(list(tmp_path.glob("*.npz"))) == 4
