"""Random mutants of single units, at a seed that the testbenches were not written for."""

from typing import Any

import pytest

from hdl.catalog import CATALOG
from hdl.entry import Entry
from testbenches.mutation import Outcome, mutate
from testbenches.quick_form import COMPOSED
from tests.long_half import version

COUNT = 10


@pytest.mark.full
@pytest.mark.parametrize(
    "entry", [entry for entry in CATALOG if entry.top not in COMPOSED], ids=lambda entry: entry.top
)
def test_mutants_are_decided(entry: Entry, record_property: Any) -> None:
    """The commit selects the seed. Survivors are listed and do not fail the test."""
    seed = int(version()[:7], 16)
    result = mutate(entry, "tiny", count=COUNT, seed=seed)
    assert len(result.mutants) == COUNT
    assert result.found > 0
    for mutant in result.mutants:
        if mutant.outcome is Outcome.SURVIVED:
            source = " ".join(mutant.source)
            record_property(
                "long half",
                f"survivor of {entry.top}, seed {seed}: {mutant.change} at {mutant.place} {source}",
            )
