"""Edits find their place by syntax, and refuse what is ambiguous or absent."""

import ast
import builtins
from functools import cache
from pathlib import Path

import pytest

from hdl.paths import ROOT
from testbenches.faults import read_faults
from testbenches.source_edits import Edit

SOURCE = """
class Fifo:
    depth: int = 4

    def elaborate(self, m):
        # The level decides.
        with m.If(self.level <
                  self.depth - 1):
            m.d.comb += [self.a.eq(1), self.b.eq(1)]
        m.d.sync += self.a.eq(2)

    def other(self):
        return self.a.eq(2)


def size(items):
    return len(items) + 1
"""
LEVEL = "self.level <\n                  self.depth - 1"


def edit(
    place: str, right: str, wrong: str, folders: tuple[str, ...] = ("hdl/stream", "hdl")
) -> Edit:
    return Edit(place=place, right=right, wrong=wrong, folders=folders)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "hdl" / "stream"
    folder.mkdir(parents=True)
    (folder / "fifo.py").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize(
    ("place", "right", "wrong", "before", "after"),
    [
        ("Fifo", "self.level<self.depth-1", "self.level < 0", LEVEL, "self.level < 0"),
        ("Fifo.elaborate", "self.a.eq(2)", "self.b", "sync += self.a.eq(2)", "sync += self.b"),
        ("Fifo.elaborate", "m.d.sync += self.a.eq(2)", "pass", "m.d.sync += self.a.eq(2)", "pass"),
        ("Fifo", "self.b.eq(1)", "", ", self.b.eq(1)", ""),
        ("size", "1", "2", "+ 1", "+ 2"),
        ("fifo:size", "len(items)", "0", "len(items)", "0"),
        ("fifo:", "4", "5", "= 4", "= 5"),
    ],
)
def test_edit_replaces_one_expression_or_statement(
    checkout: Path, place: str, right: str, wrong: str, before: str, after: str
) -> None:
    changed = edit(place, right, wrong)
    changed.check(checkout)
    expected = ast.parse(SOURCE.replace(before, after))
    assert ast.unparse(changed.edited(checkout)) == ast.unparse(expected)
    assert ast.unparse(expected) != ast.unparse(ast.parse(SOURCE))
    # The next edit starts from the file and not from this one.
    assert ast.unparse(changed.edited(checkout)) == ast.unparse(expected)


@pytest.mark.parametrize(
    ("place", "right", "wrong", "message"),
    [
        ("Fifo", "self.a.eq(2)", "0", "once, not 2 times"),
        ("Fifo", "self.c", "0", "once, not 0 times"),
        ("Fifo.elaborate", "self.a.eq( 2 )", "self.a.eq(2)", "must differ"),
        ("size", "len(items) + 1", "", "must be an element to be removed"),
        ("Stack", "1", "2", "Stack must be in hdl/stream or hdl"),
        ("Fifo.pop", "1", "2", "Fifo.pop must be in hdl/stream or hdl"),
    ],
)
def test_edit_that_fits_no_single_place_is_refused(
    checkout: Path, place: str, right: str, wrong: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        edit(place, right, wrong).check(checkout)


def test_place_of_two_files_needs_the_file(checkout: Path) -> None:
    second = checkout / "hdl" / "stream" / "copy.py"
    second.write_text(SOURCE)
    with pytest.raises(ValueError, match="must be in one file, not in hdl/stream/copy"):
        edit("size", "1", "2").check(checkout)
    assert edit("copy:size", "1", "2").source(checkout) == second


def test_the_first_folder_counts(checkout: Path) -> None:
    other = checkout / "hdl" / "memory" / "fifo.py"
    other.parent.mkdir()
    other.write_text(SOURCE)
    assert edit("size", "1", "2", ("hdl/memory", "hdl")).source(checkout) == other
    assert edit("size", "1", "2").source(checkout) == checkout / "hdl" / "stream" / "fifo.py"


def test_list_of_faults_with_unknown_entries_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fifo_faults.toml"
    file.write_text("found_by = []\nfaults = []\nother = 1\n")
    with pytest.raises(
        ValueError, match="must have found_by and faults, not found_by, faults, other"
    ):
        read_faults(file)


def names(tree: ast.AST) -> set[str]:
    """Return the names that a tree reads or defines."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


@cache
def known_names(file: Path) -> set[str]:
    """Return the names that a file reads, defines or imports."""
    tree = ast.parse(file.read_text())
    found = names(tree) | set(vars(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def test_faults_use_only_names_of_their_file() -> None:
    """With another name, elaboration fails, and the check that must find the fault does not run."""
    unknown = []
    for file in sorted((ROOT / "tests").rglob("*_faults.toml")):
        for fault in read_faults(file):
            known = known_names(fault.edit.source(ROOT))
            if new := names(ast.parse(fault.edit.wrong)) - known:
                unknown.append(f"{file.name}: {fault.meaning}: {', '.join(sorted(new))}")
    assert not unknown
