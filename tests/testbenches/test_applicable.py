"""Tests that apply to some runs only: each applies somewhere, and the others are listed."""

from importlib import import_module

import pytest

from hdl.catalog import CATALOG, entry_named
from hdl.entry import Entry
from testbenches.applicable import CONDITIONS, Run
from testbenches.runner import Request, simulate


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_every_test_applies_to_a_preset(entry: Entry) -> None:
    import_module(entry.testbench)
    for (module, test), holds in CONDITIONS.items():
        if module == entry.testbench:
            runs = [Run(parameters, full=True) for parameters in entry.presets.values()]
            assert any(map(holds, runs)), f"{test} runs at no preset"


def test_what_does_not_apply_is_listed() -> None:
    """The reset test of the controller is for few slots: at many it is no test that passed."""
    result = simulate(
        entry_named("refresh_controller"), "tiny", Request(seed=1, only="uniform|random_scores")
    )
    assert result.passed and result.tests == 1
    assert list(result.facts["not_applicable"]) == ["operations_against_uniform"]
