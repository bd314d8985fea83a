"""Tests that apply to some runs only: each applies to a preset, and the others are listed."""

from importlib import import_module
from pathlib import Path

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


def test_tests_that_do_not_apply_are_listed() -> None:
    """Two-bit intervals cannot represent the paper's, so its test must not count as passed."""
    result = simulate(entry_named("refresh_controller"), "tiny", Request(seed=1))
    assert result.passed
    assert list(result.facts["not_applicable"]) == ["operations_against_uniform"]
    log = next(Path(file) for file in result.outputs if file.endswith(".log")).read_text()
    ran = [line for line in log.splitlines() if " running " in line]
    assert len(ran) == result.tests > 1
    assert not any("operations_against_uniform" in line for line in ran)
