"""Intentional faults in the hardware: a check must detect them.

Faults are data: a file ``<stem>_faults.toml`` next to the tests of a unit lists them.
"""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdl.catalog import entry_named
from hdl.entry import Entry
from hdl.paths import BUILD, ROOT
from hdl.settings import parse_settings
from testbenches.source_edits import Edit

PACKAGES = ("systola", "hdl", "golden", "testbenches", "synth", "tests")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One changed expression or statement.

    Parameters
    ----------
    meaning : str
        Effect of the fault.
    edit : Edit
        The change.
    found_by : Sequence[str]
        Checks that must detect the fault: a simulation as ``"<top> <preset> [lanes=4 ...]"``, with
        changes to the preset, or a file of tests.
    """

    meaning: str
    edit: Edit
    found_by: Sequence[str]


def read_faults(file: Path) -> list[Fault]:
    """Read a list of faults.

    ``found_by`` has the checks of all faults. ``faults`` has for each fault the place, the right
    text, the wrong text and the meaning, which `Edit` and `Fault` define, and if the checks are
    other ones, these as a fifth element. A place is searched in the folder of `hdl` that the list
    belongs to, then in all of `hdl`.

    Raises
    ------
    ValueError
        If the list has another form.
    """
    lists = tomllib.loads(file.read_text())
    if lists.keys() != {"found_by", "faults"}:
        raise ValueError(f"{file} must have found_by and faults, not {', '.join(lists)}")
    floor = file.relative_to(ROOT / "tests").parts[0]
    faults = []
    for row in lists["faults"]:
        if len(row) not in (4, 5):
            raise ValueError(f"{file}: a fault must have 4 or 5 elements, not {row}")
        place, right, wrong, meaning, *checks = row
        edit = Edit(place=place, right=right, wrong=wrong, folders=(f"hdl/{floor}", "hdl"))
        found_by = checks[0] if checks else lists["found_by"]
        faults.append(Fault(meaning=meaning, edit=edit, found_by=found_by))
    return faults


def finds(copy: Path, finder: str) -> bool:
    """Return whether one of `Fault.found_by` fails in a faulty copy of the checkout."""
    if finder.endswith(".py"):
        return proof_finds(copy, finder)
    return simulation_finds(copy, finder)


def proof_finds(copy: Path, test_file: str) -> bool:
    """Return whether a test file fails in a faulty copy of the checkout."""
    command = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test_file]
    return _python(copy, command, test_file, passed=0, failed=1)


def simulation_finds(copy: Path, finder: str) -> bool:
    """Return whether a unit's simulation fails in a faulty copy of the checkout."""
    program = (
        "import sys\n"
        "from testbenches.faults import requested\n"
        "from testbenches.quick_form import quick_form\n"
        "from testbenches.runner import Request, simulate\n"
        f"entry, preset, dimensions = requested({finder!r})\n"
        "request = Request(seed=1, target=quick_form(entry.top, preset))\n"
        "sys.exit(0 if simulate(entry, dimensions, request).passed else 3)\n"
    )
    return _python(copy, ["-c", program], finder, passed=0, failed=3)


def requested(finder: str) -> tuple[Entry, str, Any]:
    """Return the unit, the preset and the dimensions that a check simulates."""
    top, preset, *changes = finder.split()
    entry = entry_named(top)
    return entry, preset, entry.dimensions(preset, parse_settings(" ".join(changes)))


def faulty_copy(fault: Fault, directory: Path) -> Path:
    """Copy the sources and apply the fault.

    Raises
    ------
    ValueError
        By `Edit.edited`.
    """
    file = fault.edit.source(ROOT).relative_to(ROOT)
    text = ast.unparse(fault.edit.edited(ROOT))
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, directory / package, ignore=ignored, dirs_exist_ok=True)
    shutil.copy(ROOT / "pyproject.toml", directory)
    # The captured tensors are shared; every design is rebuilt. A link to a missing folder would
    # prevent the copy from creating that folder.
    build, tensors = directory / "build", BUILD / "llm"
    build.mkdir(exist_ok=True)
    tensors.mkdir(parents=True, exist_ok=True)
    if not (build / "llm").exists():
        (build / "llm").symlink_to(tensors)
    # Verilator's runtime is the same for every design, and its compilation takes seconds.
    (build / "simulators").mkdir(exist_ok=True)
    for runtime in (BUILD / "simulators").glob("runtime-*"):
        if not (own := build / "simulators" / runtime.name).exists():
            own.symlink_to(runtime)
    (directory / file).write_text(text + "\n")
    return directory


def _python(copy: Path, arguments: Sequence[str], finder: str, *, passed: int, failed: int) -> bool:
    """Run Python in a copy of the checkout, and return whether its exit status is `failed`."""
    # One failure is sufficient.
    own = {
        "PYTHONPATH": str(copy),
        "SYSTOLA_BUILD": str(copy / "build"),
        "COCOTB_MAX_FAILURES": "1",
    }
    child = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if child.returncode not in (passed, failed):
        raise RuntimeError(
            f"{finder} could not run on the fault: status {child.returncode}\n"
            f"{child.stdout[-2000:]}"
        )
    return child.returncode == failed
