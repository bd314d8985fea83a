"""Who may import whom: a floor uses only those below it, and no paper another."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from hdl.catalog import CATALOG
from hdl.paths import ROOT

PAPERS = {"kelle", "veda", "lad", "p3llm", "meadow"}
FLOORS = ("arith", "stream", "memory", "nonlinear", "paper", "shell", "board", "catalog")
"""The floors of `hdl`, lowest first; other modules are below all floors."""
ABOVE = {
    "hdl": {"golden", "testbenches", "synth", "systola", "tests"},
    "golden": {"testbenches", "synth", "systola", "tests"},
    "synth": {"golden", "testbenches", "systola", "tests"},
    "testbenches": {"systola", "tests"},
    "systola": {"tests"},
}
"""What each tree never imports."""


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            # A module may be imported from its package.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor(parts: tuple[str, ...]) -> int:
    """Return the height of a module of `hdl`, by the parts of its name after `hdl`."""
    name = "paper" if parts[0] in PAPERS else parts[0]
    return FLOORS.index(name) if name in FLOORS else -1


def offences(file: str, source: str) -> list[str]:
    """Name what a file, given relative to the checkout, imports against the rules."""
    tree, *rest = Path(file).with_suffix("").parts
    found = set()
    for name in imported(source):
        other, *path = name.split(".")
        if other in ABOVE.get(tree, ()):
            found.add(f"{file} imports {name}: {tree} is below {other}")
        if other not in ABOVE or not path:
            continue
        if path[0] in PAPERS and rest[0] in PAPERS and path[0] != rest[0]:
            found.add(f"{file} imports {name}: no paper imports another")
        if tree == other == "hdl" and floor(tuple(path)) > floor(tuple(rest)):
            found.add(f"{file} imports {name}: a floor uses only those below it")
    return sorted(found)


def test_no_import_runs_upwards_or_between_papers() -> None:
    found = []
    for tree in ABOVE:
        for file in sorted((ROOT / tree).rglob("*.py")):
            found += offences(str(file.relative_to(ROOT)), file.read_text())
    assert found == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("hdl/arith/x.py", "from hdl.stream.connect import every"),
        ("hdl/stream/x.py", "import hdl.memory.memory"),
        ("hdl/memory/x.py", "from hdl.nonlinear import softmax"),
        ("hdl/nonlinear/x.py", "from hdl.kelle.sfu import Sfu"),
        ("hdl/kelle/array/x.py", "from hdl.catalog import CATALOG"),
        ("hdl/kelle/array/x.py", "from hdl.veda.array import processing_element"),
        ("hdl/meadow/x.py", "from hdl.shell.axi import Response"),
        ("hdl/unit.py", "from hdl.arith.rounding import Rounding"),
        ("hdl/kelle/x.py", "def late():\n    from golden.kelle import kelle"),
        ("golden/veda/x.py", "import golden.kelle.kelle"),
        ("golden/llm/x.py", "from testbenches.bench import Bench"),
        ("testbenches/lad/x.py", "from hdl.meadow import wilu"),
        ("synth/x.py", "from systola.cli import main"),
    ],
)
def test_a_planted_import_is_found(file: str, source: str) -> None:
    assert offences(file, source)


LOWER = {"parameters", "instructions"}
"""Modules of a paper's folder that describe the accelerator to the modules that build it."""


def upward(file: str, source: str) -> set[str]:
    """Name what a file imports from a higher level of its own paper's folder.

    A folder of a box imports neither ``control/`` nor the accelerator nor the catalog; the same
    holds for parameters and instructions. ``control/`` imports neither of the last two.
    """
    tree, paper, *rest = Path(file).with_suffix("").parts
    if tree != "hdl" or paper not in PAPERS:
        return set()
    box = rest[0] in LOWER or len(rest) > 1
    higher = {paper, "catalog"} if box else set()
    if box and rest[0] != "control":
        higher |= {"control"}
    found: set[str] = set()
    for name in imported(source):
        parts = name.split(".")
        if parts[:2] == ["hdl", paper] and len(parts) > 2 and parts[2] in higher:
            # A name of a module, not of what it defines.
            if (ROOT / Path(*parts)).with_suffix(".py").is_file():
                found.add(f"{file} imports {name}")
    return found


def test_no_import_runs_upwards_inside_a_paper() -> None:
    found: set[str] = set()
    for file in sorted((ROOT / "hdl").rglob("*.py")):
        if len(file.relative_to(ROOT).parts) > 2:
            found |= upward(str(file.relative_to(ROOT)), file.read_text())
    assert found == set()


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("hdl/kelle/array/x.py", "from hdl.kelle.control.sequencer import Scheduler"),
        ("hdl/veda/parameters.py", "from hdl.veda.control import program"),
        ("hdl/veda/instructions.py", "from hdl.veda.veda import Veda"),
        ("hdl/meadow/control/x.py", "import hdl.meadow.meadow"),
        ("hdl/lad/ac/x.py", "from hdl.lad.catalog import UNITS"),
    ],
)
def test_an_upward_import_inside_a_paper_is_found(file: str, source: str) -> None:
    assert upward(file, source)


def test_exploration_does_not_import_the_command_line() -> None:
    for file in (ROOT / "systola" / "exploration").rglob("*.py"):
        assert "systola.__main__" not in set(imported(file.read_text())), file


def test_every_unit_is_on_a_floor() -> None:
    for entry in CATALOG:
        assert floor(entry.folder.parts) >= 0
