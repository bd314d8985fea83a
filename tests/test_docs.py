"""The pages name only what is there."""

import re
from pathlib import Path

import pytest

from hdl.catalog import CATALOG
from hdl.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("paper", sorted({entry.paper for entry in CATALOG} - {"nonlinear"}))
def test_the_way_from_the_paper_leads_to_files(paper: str) -> None:
    text = (ROOT / "docs" / paper / "README.md").read_text()
    named = re.findall(r"`([\w/*]+\.py)`", text)
    assert named
    for name in named:
        assert list(ROOT.glob(name)) if "/" in name else list((ROOT / "hdl").rglob(name)), name
    stems = {Path(name).stem for name in named}
    assert {entry.top for entry in CATALOG if entry.paper == paper} <= stems
