"""The documentation as a site: its navigation, its links, and the verb that builds it."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mkdocs.config
import pytest
from click.testing import CliRunner, Result

from hdl.catalog import CATALOG
from hdl.paths import ROOT
from systola import docs_site, site
from systola.cli import main


def leaves(nav: list[Any]) -> Iterator[str]:
    """Yield the files of a navigation."""
    for item in nav:
        for own in item.values():
            yield from [own] if isinstance(own, str) else leaves(own)


def built(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.setattr(site, "SITE", folder)
    return CliRunner().invoke(main, ["docs", *options])


def test_navigation_has_each_page_once() -> None:
    docs = ROOT / "docs"
    pages = sorted(str(file.relative_to(docs)) for file in docs.rglob("*.md"))
    assert sorted(leaves(docs_site.navigation())) == pages


def test_reference_has_the_modules_of_all_units() -> None:
    assert {entry.unit.__module__ for entry in CATALOG} <= set(docs_site.modules())


def test_site_has_all_pages_and_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MkDocs is strict: it refuses links and anchors that do not exist.

    No page needs a file of another host, nor the theme's script for flowcharts, which is remote.
    """
    result = built(tmp_path, monkeypatch, "--reference", "0")
    assert result.exit_code == 0, result.output
    pages = list(tmp_path.rglob("index.html"))
    assert len(pages) == len(list((ROOT / "docs").rglob("*.md")))
    remote = r"""<(?:script|img|iframe|link)\s[^>]*(?:src|href)=["']?(?:https?:)?//"""
    assert not [page for page in pages if re.search(rf"{remote}|class=\"mermaid", page.read_text())]
    words = (tmp_path / "search" / "search_index.json").read_text()
    assert all(entry.top in words for entry in CATALOG)


def test_faults_of_pages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", pages)
    (pages / "lost.md").write_text("# A page that no table lists\n")
    with (pages / "verbs.md").open("a") as page:
        page.write("\n[a page that does not exist](nowhere.md), [no section](setup.md#nothing)\n")
    own = mkdocs.config.load_config
    monkeypatch.setattr(
        mkdocs.config, "load_config", lambda file, **more: own(file, docs_dir=str(pages), **more)
    )
    result = built(tmp_path / "site", monkeypatch, "--reference", "0")
    assert result.exit_code == 2, result.output
    assert all(name in result.output for name in ("lost.md", "nowhere.md", "#nothing"))


@pytest.mark.full
def test_reference_shows_docstrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = built(tmp_path, monkeypatch)
    assert result.exit_code == 0, result.output
    page = tmp_path / "reference" / "hdl" / "arith" / "float_add" / "index.html"
    assert "Latency" in page.read_text()
