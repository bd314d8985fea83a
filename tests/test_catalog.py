"""The catalog is complete: every entry has its files, its presets and its errors."""

import re

import pytest

from hdl.catalog import CATALOG, entry_named
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.paths import ROOT
from hdl.unit import Unit


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_every_unit_has_its_files(entry: Entry) -> None:
    for file in entry.files.values():
        assert (ROOT / file).is_file(), f"{entry.top} has no {file}"


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_every_unit_has_the_presets(entry: Entry) -> None:
    assert {"tiny", "smollm2", "paper"} <= set(entry.presets)
    for preset in entry.presets:
        assert isinstance(entry.build(preset), Unit)


def test_names_are_distinct_and_plain() -> None:
    tops = [entry.top for entry in CATALOG]
    assert len(set(tops)) == len(tops)
    for top in tops:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", top)


def test_unknown_top_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'systolic_evictor'"):
        entry_named("sistolic_evictor")


def test_unknown_preset_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"PRESET of systolic_evictor .* did you mean 'paper'"):
        entry_named("systolic_evictor").parameters("papers")
