"""Verilator lint of the emitted Verilog of every unit, with named waivers."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hdl.catalog import CATALOG
from hdl.emit import Emission, write_verilog
from testbenches import simulators


def lint_unit(top: str, emission: Emission) -> str:
    """Return Verilator's messages about a design; empty if it is clean."""
    with tempfile.TemporaryDirectory() as scratch:
        return lint_files(top, write_verilog(emission, Path(scratch, "rtl"))[:-1])


def lint_files(top: str, files: Sequence[Path]) -> str:
    """Return Verilator's messages about a design's files; empty if they are clean."""
    with simulators.environment():
        command = [simulators.verilator_executable(), "--lint-only", *simulators.LINT_FLAGS]
        child = subprocess.run(
            [*command, "--top-module", top, *map(str, files)],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            check=False,
        )
    return child.stdout + child.stderr if child.returncode else ""


def lint_verilog() -> int:
    """Lint every unit with every preset; return the number of designs with messages."""
    wrong = 0
    for entry in CATALOG:
        for preset in entry.presets:
            emission = Emission(top=entry.build(preset), name=entry.top)
            if message := lint_unit(entry.top, emission):
                Console(stderr=True).print(f"{entry.top} / {preset}\n{message}", markup=False)
                wrong += 1
    return wrong
