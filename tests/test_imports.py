"""Who may import whom: a floor uses only those below it, and no paper another."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from hdl.catalog import CATALOG
from hdl.paths import ROOT

PAPERS = {"kelle", "veda", "lad", "p3llm", "meadow"}
FLOORS = ("arith", "stream", "memory", "nonlinear", "paper", "catalog")
"""The floors of `hdl`, lowest first; what stands on none of them is below all."""
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
    """Return the height of a module of `hdl`, by its name's parts behind the tree."""
    name = "paper" if parts[0] in PAPERS else parts[0]
    return FLOORS.index(name) if name in FLOORS else -1


def offences(file: str, source: str) -> list[str]:
    """Name what a file, given relative to the checkout, imports against the rules."""
    tree, *rest = Path(file).with_suffix("").parts
    found = set()
    for name in imported(source):
        other, *path = name.split(".")
        if other in ABOVE.get(tree, ()):
            found.add(f"{file} imports {name}: {tree} stands below {other}")
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


def test_every_unit_stands_on_a_floor() -> None:
    for entry in CATALOG:
        assert floor(entry.folder.parts) >= 0
