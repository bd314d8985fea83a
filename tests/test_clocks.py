"""Each section of a page that states a measured clock names the wires that the clock includes."""

import re
from pathlib import Path

import pytest

from hdl.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

GIVEN = {"25", "100", "500", "1000"}
"""Clocks in MHz of a board's oscillator, of papers and of DRAM, and the common clock of the
comparison: not measured."""

LINK = "synthesis.md#wires"
"""The definition of the wire loads."""


def clocks(text: str) -> list[str]:
    """Return the measured clocks of a text: numbers in MHz, or cells of a table with the unit."""
    numbers = [number.replace(",", "") for number in re.findall(r"([\d,.]*\d)\s+MHz\b", text)]
    cells = re.findall(r"\|[^|\n]*(?<!\d )\bMHz\b[^|\n]*(?=\|)", text)
    return [number for number in numbers if number not in GIVEN] + cells


def sections(page: Path) -> list[str]:
    """Return the sections of a page, each with its heading and without its subsections."""
    return re.split(r"^(?=#+ )", page.read_text(), flags=re.M)


def names_wires(section: str) -> bool:
    """Return whether a section names wires or a wire load, or that a device has been routed."""
    return bool(re.search(r"\b(?:wire load|wires|wired|routed)\b", section))


def test_clocks_are_numbers_in_mhz_and_titles_of_columns() -> None:
    assert clocks("It reaches 1,013 MHz, or 99.5\nMHz.") == ["1013", "99.5"]
    assert clocks("the paper's 100 MHz, 500 MHz, 1,000 MHz and 1 GHz") == []
    assert clocks("| unit | MHz | mW |\n|---|---|---|\n| a | 5 | 6 |") == ["| MHz "]
    assert clocks("| its clock, MHz (none) | 301 |") == ["| its clock, MHz (none) "]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_clock_has_its_wires_in_the_same_section(page: Path) -> None:
    unnamed = [
        section.splitlines()[0]
        for section in sections(page)
        if clocks(section) and not names_wires(section)
    ]
    assert unnamed == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_with_a_clock_leads_to_the_wire_loads(page: Path) -> None:
    text = page.read_text()
    assert not clocks(text) or LINK in text or page.name == LINK.partition("#")[0]
