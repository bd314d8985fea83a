"""Intentional faults in the hardware: a check must detect them.

Faults are data: a file ``<stem>_faults.toml`` next to the tests of a unit lists them.
"""

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

PACKAGES = ("systola", "hdl", "golden", "testbenches", "synth", "tests")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One changed line.

    Parameters
    ----------
    meaning : str
        Effect of the fault.
    file : str
        Source file, relative to the checkout.
    right, wrong : str
        Text to replace, which occurs exactly once, and its replacement.
    found_by : Sequence[str]
        Checks that must detect the fault: a simulation as ``"<top> <preset> [lanes=4 ...]"``, with
        changes to the preset, or a file of tests.
    """

    meaning: str
    file: str
    right: str
    wrong: str
    found_by: Sequence[str]

    def occurrences(self, checkout: Path = ROOT) -> int:
        """Count the occurrences of the text to replace in its file."""
        return (checkout / self.file).read_text().count(self.right)


def read_faults(file: Path) -> list[Fault]:
    """Read a list of faults."""
    return [Fault(**row) for row in tomllib.loads(file.read_text())["fault"]]


def finds(copy: Path, finder: str) -> bool:
    """Return whether one of `Fault.found_by` fails in a faulty copy of the checkout."""
    if finder.endswith(".py"):
        return proof_finds(copy, finder)
    return simulation_finds(copy, finder)


def proof_finds(copy: Path, test_file: str) -> bool:
    """Return whether a test file fails in a faulty copy of the checkout."""
    command = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test_file]
    status = _python(copy, command)
    if status not in (0, 1):
        raise RuntimeError(f"{test_file} could not run on the fault: pytest ended with {status}")
    return status == 1


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
    status = _python(copy, ["-c", program])
    if status not in (0, 3):
        raise RuntimeError(f"{finder} could not run on the fault: status {status}")
    return status == 3


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
        If the text to replace does not occur exactly once.
    """
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, directory / package, ignore=ignored, dirs_exist_ok=True)
    shutil.copy(ROOT / "pyproject.toml", directory)
    # The captured tensors are shared; everything else is rebuilt.
    build = directory / "build"
    build.mkdir(exist_ok=True)
    if not (build / "llm").exists():
        (build / "llm").symlink_to(BUILD / "llm")
    file = directory / fault.file
    if (found := fault.occurrences(directory)) != 1:
        raise ValueError(f"a fault's text must occur once in {fault.file}, not {found} times")
    file.write_text(file.read_text().replace(fault.right, fault.wrong))
    return directory


def _python(copy: Path, arguments: Sequence[str]) -> int:
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
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return child.returncode
