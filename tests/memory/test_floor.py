"""Each part of `hdl/stream` and `hdl/memory` has tests, and a row on its page."""

import ast
from pathlib import Path

import pytest

from hdl.paths import ROOT

PARTS = [
    pytest.param(file, node.name, id=f"{file.parent.name}.{node.name}")
    for floor in ("stream", "memory")
    for file in sorted((ROOT / "hdl" / floor).glob("*.py"))
    for node in ast.parse(file.read_text()).body
    if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
]
HELPERS = {"every"}
"""Names that need no entry on a page."""


@pytest.mark.parametrize(("file", "name"), PARTS)
def test_part_is_tested_and_documented(file: Path, name: str) -> None:
    floor = file.parent.name
    tests = "".join(test.read_text() for test in (ROOT / "tests" / floor).glob("test_*.py"))
    assert name in tests
    page = (ROOT / "docs" / f"{floor}.md").read_text()
    assert name in HELPERS or f"`{name}`" in page
