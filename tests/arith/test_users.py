"""Every operator is used by the hardware, or is listed as stand-alone."""

import ast
from pathlib import Path

import pytest

from hdl.paths import ROOT

HDL = ROOT / "hdl"
ARITH = HDL / "arith"

STAND_ALONE = {
    "E4m3Decoder",
    "E4m3Encoder",
    "Exp2Fixed",
    "FixedPointConvert",
    "FloatFma",
    "FloatMixed",
}
"""Operators that no system uses: for other designs, and for comparison in `docs/peers.md`.

No unit of a system may depend on them.
"""

Name = tuple[str, str]
"""An operator or function of `arith/`: the stem of its file and its name."""


class Source:
    """A hardware file: its definitions in `arith/`, and the names of `arith/` that it uses."""

    def __init__(self, file: Path) -> None:
        self.stem, self.tree = file.stem, ast.parse(file.read_text())
        self.known: dict[str, Name] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hdl.arith."):
                stem = str(node.module).rpartition(".")[2]
                self.known |= {part.asname or part.name: (stem, part.name) for part in node.names}
        self.defined = {
            node.name: node
            for node in self.tree.body
            if file.parent == ARITH and isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        self.known |= {name: (self.stem, name) for name in self.defined}

    def named(self, node: ast.AST) -> set[Name]:
        words = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return {self.known[word] for word in words & self.known.keys()}


def unused() -> set[str]:
    """Return the operators that no hardware outside `arith/` uses, directly or indirectly."""
    needs: dict[Name, set[Name]] = {}
    bases: dict[Name, set[str]] = {}
    functions: set[Name] = set()
    used: set[Name] = set()
    for file in sorted(HDL.rglob("*.py")):
        source = Source(file)
        if file.parent != ARITH:
            used |= source.named(source.tree)
        for name, node in source.defined.items():
            needs[source.stem, name] = source.named(node) - {(source.stem, name)}
            if isinstance(node, ast.ClassDef):
                bases[source.stem, name] = {ast.unparse(base) for base in node.bases}
            else:
                functions.add((source.stem, name))
    while more := set().union(*(needs[name] for name in used if name in needs)) - used:
        used |= more
    operators = {name for name, own in bases.items() if own & {"Operator", "Unit"}}
    # An operator may only add ports to a function of its file that is used instead.
    wraps = {name for name in operators if any(f in used & functions for f in own_of(name, needs))}
    return {name for _stem, name in operators - used - wraps - {("operator", "Operator")}}


def own_of(name: Name, needs: dict[Name, set[Name]]) -> set[Name]:
    return {needed for needed in needs[name] if needed[0] == name[0]}


def test_every_operator_is_used_or_stand_alone() -> None:
    assert unused() == STAND_ALONE


@pytest.mark.parametrize("operator", sorted(STAND_ALONE))
def test_pages_describe_stand_alone_operators(operator: str) -> None:
    assert any(operator in page.read_text() for page in (ROOT / "docs" / "arith").glob("*.md"))
