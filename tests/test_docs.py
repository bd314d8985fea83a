"""Pages name only what exists, and docstrings no figure that a page's table may contradict."""

import re
from pathlib import Path

import pytest

from hdl.catalog import CATALOG
from hdl.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

FOLDERS = {"constraints", "docs", "golden", "hdl", "synth", "systola", "testbenches", "tests"}
"""Folders of the repository; what begins with one of them is a path."""

SOURCES = {".py", ".toml", ".cpp", ".h"}
"""Suffixes of files that only the repository has, so that a name with one of them is a path."""

WRITTEN = {
    "<top>.h",
    "<top>_litex.py",
    "argmax.h",
    "beat.py",
    "board/registers.h",
    "compare.py",
    "greedy.py",
    "no_fallback.py",
    "parameters.toml",
    "project_units.py",
    "row_argmax.py",
    "simulate.py",
    "tb_greedy.py",
    "test_argmax.py",
    "tova.py",
}
"""What a verb writes below `build/`, or the reader of a tutorial, under such a name."""

PAPERS = sorted({entry.paper for entry in CATALOG} - {"nonlinear", "shell"})


def paths_in(text: str) -> set[str]:
    """Return what a page names as a path, in code spans and in blocks of code."""
    blocks = re.findall(r"^```.*?^```", text, re.M | re.S)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    words = re.findall(r"`([^`\s]+)`", rest)
    words += [word for block in blocks for word in re.findall(r"[\w./*<>-]+", block)]
    return {
        word
        for word in words
        if re.fullmatch(r"[\w./*<>-]+", word)
        and (Path(word).suffix in SOURCES or ("/" in word and word.split("/")[0] in FOLDERS))
    }


def exists(path: str) -> bool:
    """Return whether the repository has a path; ``<name>`` is any name, ``...`` any folders."""
    pattern = re.sub(r"<\w+>", "*", path.rstrip("/")).replace("...", "**")
    return next(ROOT.glob(pattern), None) is not None


def modules_in(text: str) -> set[str]:
    """Return the modules that a page runs as ``python -m``, of the repository's packages."""
    names = re.findall(r"python -m ([\w.]+)", text)
    return {name for name in names if name.split(".")[0] in FOLDERS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_in_a_page_exists(page: Path) -> None:
    text = page.read_text()
    assert [path for path in sorted(paths_in(text) - WRITTEN) if not exists(path)] == []
    files = {f"{name.replace('.', '/')}{end}" for name in modules_in(text) for end in ("", ".py")}
    assert len([file for file in files if exists(file)]) == len(modules_in(text))


def test_paths_are_found_in_spans_and_blocks() -> None:
    text = "`a.py` `hdl/x` `a / b` `width/2` `sim.json`\n```\nmake x  b.toml, hdl/y.py\n```\n"
    assert paths_in(text) == {"a.py", "hdl/x", "b.toml", "hdl/y.py"}
    assert (
        not exists("kelle.py") and exists("hdl/<paper>/catalog.py") and exists("hdl/.../kelle.py")
    )


@pytest.mark.parametrize("paper", [*PAPERS, "shell"])
def test_the_papers_page_names_every_unit(paper: str) -> None:
    named = paths_in((ROOT / "docs" / paper / "README.md").read_text())
    units = {str(entry.files["hdl"]) for entry in CATALOG if entry.paper == paper}
    assert sorted(units - named) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_sets_a_variable_that_simulations_ignore(page: Path) -> None:
    """A run without its filter is another run than the page describes; `ONLY=` is the option."""
    assert not re.search(r"COCOTB_\w+=", page.read_text())


def test_no_docstring_claims_a_clock() -> None:
    """Tables of the pages have the clocks that were measured; a docstring would contradict them."""
    claims = {
        str(file.relative_to(ROOT)): found
        for file in sorted((ROOT / "hdl").rglob("*.py"))
        if (found := re.findall(r"reach\w*\s+[\d.,]+\s+[MG]Hz", file.read_text()))
    }
    assert claims == {}


def role_paths(text: str) -> tuple[list[str], dict[tuple[str, str], str]]:
    """Return the paths of the role table as patterns, and by system and pattern what differs."""
    rows = [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in text.splitlines()]
    roles = {row[0]: row[1] for row in rows if len(row) == 2 and "<paper>" in row[1]}
    systems = {
        "Kelle": "kelle",
        "VEDA": "veda",
        "LAD": "lad",
        "P3-LLM": "p3llm",
        "MEADOW": "meadow",
    }
    differing = {
        (systems[row[0]], roles[row[1]]): row[2]
        for row in rows
        if len(row) == 4 and row[0] in systems
    }
    return list(roles.values()), differing


def test_each_system_has_each_role_at_its_path() -> None:
    """A system has the common path or one that the page lists as different, not both."""
    patterns, differing = role_paths((ROOT / "docs" / "README.md").read_text())
    assert len(patterns) == 11
    assert {paper for paper, _ in differing} <= set(PAPERS)
    for paper in PAPERS:
        for pattern in patterns:
            common = pattern.replace("<paper>", paper)
            other = differing.get((paper, pattern))
            assert (ROOT / common).is_file() == (other is None), common
            assert other is None or (ROOT / other).is_file(), other
