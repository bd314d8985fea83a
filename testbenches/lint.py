"""Verilator's lint over the emitted Verilog of every unit, with named waivers."""

import os
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console

from hdl.catalog import CATALOG
from hdl.emit import Emission, write_verilog
from testbenches import simulators

WAIVERS = {
    "DECLFILENAME": "submodules that are no units of their own share their parent's file",
    "UNUSEDSIGNAL": "a struct is split into named fields, also where a field is not read",
    "WIDTHEXPAND": "operands keep their widths; Verilog extends them as Amaranth does",
    "WIDTHTRUNC": "`!vector` is Yosys's comparison with zero; assignments never truncate",
    "VARHIDDEN": "an instance may be named like a port of its module",
    "CASEINCOMPLETE": "what holds where no case matches is assigned before the case",
}
"""Lint messages that the emitted style brings with it, and why each is harmless."""


def lint_unit(top: str, emission: Emission) -> str:
    """Return what Verilator says of a design's Verilog: nothing if it is clean."""
    with tempfile.TemporaryDirectory() as scratch, simulators.environment():
        files = write_verilog(emission, Path(scratch, "rtl"))[:-1]
        command = [simulators.verilator_executable(), "--lint-only", "-Wall", "--top-module", top]
        command += [f"-Wno-{name}" for name in WAIVERS]
        child = subprocess.run(
            [*command, *map(str, files)],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            check=False,
        )
    return child.stdout + child.stderr if child.returncode else ""


def lint_verilog() -> int:
    """Lint every unit at every preset; return the number of designs that are not clean."""
    wrong = 0
    for entry in CATALOG:
        for preset in entry.presets:
            emission = Emission(top=entry.build(preset), name=entry.top)
            if message := lint_unit(entry.top, emission):
                Console(stderr=True).print(f"{entry.top} / {preset}\n{message}", markup=False)
                wrong += 1
    return wrong
