"""The catalog is complete: every entry has its files, its presets and its errors."""

import re
from dataclasses import replace

import pytest

from hdl.catalog import CATALOG, entry_named
from hdl.entry import Entry
from hdl.errors import UserError
from hdl.paths import ROOT
from hdl.unit import Unit

LONGEST = 170
"""Characters of a latency or throughput in the table of units."""


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_every_unit_has_its_files(entry: Entry) -> None:
    for file in entry.files.values():
        assert (ROOT / file).is_file(), f"{entry.top} has no {file}"


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_every_unit_has_the_presets(entry: Entry) -> None:
    assert {"tiny", "smollm2", "paper"} <= set(entry.presets)
    for preset in entry.presets:
        assert isinstance(entry.build(preset), Unit)


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.top)
def test_docstring_has_latency_and_throughput(entry: Entry) -> None:
    for text in (entry.latency, entry.throughput):
        assert text and len(text) <= LONGEST and "**" not in text and text.count("`") % 2 == 0


def test_contract_ends_with_its_first_clause() -> None:
    entry = entry_named("result_scaler")
    texts = {
        "**Latency** 8 cycles. Then more.": "8 cycles",
        "**Latency** `a.b` cycles,\n    always; then more": "`a.b` cycles, always",
        "**Latency** 2 cycles\n\n    Parameters": "2 cycles",
        "**Latency**\n    3 cycles.": "3 cycles",
        "**Throughput** one slice per cycle.": "",
    }
    for text, expected in texts.items():
        unit = type("Documented", (entry.unit,), {"__doc__": f"A unit.\n\n    {text}"})
        assert replace(entry, unit=unit).latency == expected


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
