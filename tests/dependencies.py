"""What a test of single units depends on, so that its pass outlives a change elsewhere."""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from hdl.catalog import CATALOG, entry_named
from hdl.entry import Entry
from hdl.paths import ROOT
from hdl.sources import TREES, code_digest, imported_modules
from systola.exploration.checkout import files_digest
from testbenches.faults import Fault

LOCKS = ("base", "data", "dev", "llm", "model", "sim", "synth")
"""Groups of packages that simulations, proofs and their models use."""

CATALOGS = ("hdl.catalog", *sorted({f"hdl.{entry.paper}.catalog" for entry in CATALOG}))
"""Modules that import all units. `presets` covers their effect on a test of one unit."""

NOT_FOLLOWED = (*CATALOGS, "synth.layout.tools")
"""Catalogs, and the programs of a layout, which the module of Debian's packages lists."""


def test_sources(
    values: Iterable[Any], file: Path, units: Iterable[str] | None = None
) -> str | None:
    """Return a digest of all that a test of single units depends on.

    It covers the units' modules, their testbenches and golden models, the runner, the test's own
    file, all that these import, their files other than Python's, the presets, the locked packages
    of `LOCKS`, and the fault. The programs of a layout, which the runner's imports name, are not
    part of it.

    Parameters
    ----------
    values : Iterable[Any]
        The test's parameters: entries of the catalog, or a fault, which names the units and the
        files of tests that find it.
    file : pathlib.Path
        The test's file.
    units : Iterable[str], optional
        Further units, for a test that is marked `depends`; none if it is not marked.

    Returns
    -------
    str or None
        None if no parameter is a unit or a fault, and the test is not marked.
    """
    tops = set(units or ())
    files, changed, faults = {file}, set[Path](), list[Fault]()
    for value in values:
        if isinstance(value, Entry):
            tops.add(value.top)
        elif isinstance(value, Fault):
            faults.append(value)
            for finder in value.found_by:
                if finder.endswith(".py"):
                    files.add(ROOT / finder)
                else:
                    tops.add(finder.split()[0])
            changed.add(value.edit.source(ROOT))
    if not tops and not faults and units is None:
        return None
    digest = _digest(frozenset(tops), frozenset(files), frozenset(changed))
    return hashlib.sha256(f"{digest}{faults}".encode()).hexdigest() if faults else digest


@cache
def _digest(tops: frozenset[str], files: frozenset[Path], others: frozenset[Path]) -> str:
    """Return the digest of units, of files of tests with their imports, and of other files."""
    entries = [entry_named(top) for top in sorted(tops)]
    modules = {"testbenches.runner"}
    for entry in entries:
        modules |= {entry.unit.__module__, entry.testbench}
    found: set[Path] = set()
    for file in files:
        modules |= _imports(file, found)
    sources = sorted(str(file.relative_to(ROOT)) for file in found | others)
    followed = [imported_modules(module, without=NOT_FOLLOWED) for module in sorted(modules)]
    places = [*sources, *_data(frozenset().union(*followed))]
    presets = [(entry.top, sorted(entry.long), dict(entry.presets)) for entry in entries]
    # Tests share the digests of modules and of files, which are computed once.
    parts = [code_digest(module, without=NOT_FOLLOWED) for module in sorted(modules)]
    parts += [_file_digest(place) for place in places]
    return hashlib.sha256("\n".join([*parts, repr(presets)]).encode()).hexdigest()


@cache
def _file_digest(place: str) -> str:
    """Return the digest of a file's name and content."""
    return files_digest([place])


def _imports(file: Path, found: set[Path]) -> set[str]:
    """Return the project's modules that a test's file and the files of tests it imports import.

    All these files, and the conftests of their folders, are added to `found`.
    """
    if file in found:
        return set()
    found.add(file)
    modules: set[str] = set()
    for folder in file.relative_to(ROOT).parents:
        if (conftest := ROOT / folder / "conftest.py").is_file():
            modules |= _imports(conftest, found)
    for node in ast.walk(ast.parse(file.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name.split(".")[0] in TREES and name not in CATALOGS:
                modules.add(name)
            elif (own := ROOT.joinpath(*name.split(".")).with_suffix(".py")).is_file():
                modules |= _imports(own, found)
    return modules


def _data(imported: frozenset[str]) -> list[str]:
    """Return the files other than Python's that modules may read, and the lock files.

    A C++ file is the program of the module whose name its own begins with.
    """
    trees = [ROOT / name for name in ("hdl", "golden", "testbenches", "constraints")]
    files = [file for tree in trees for file in sorted(tree.rglob("*")) if _is_data(file, imported)]
    locks = [ROOT / "systola" / "requirements" / f"{name}.lock" for name in LOCKS]
    return [str(file.relative_to(ROOT)) for file in (*files, *locks)]


def _is_data(file: Path, imported: frozenset[str]) -> bool:
    """Return whether one of the imported modules may read a file other than Python's."""
    if not file.is_file() or file.suffix in {".py", ".pyc"}:
        return False
    program = file.with_name(file.stem.partition("_")[0]).relative_to(ROOT)
    return file.suffix not in {".cpp", ".h"} or ".".join(program.parts) in imported
