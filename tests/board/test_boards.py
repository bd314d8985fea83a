"""Dimensions of boards, and the files of their pins."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hdl.board.accelerator_board import AcceleratorBoard
from hdl.board.board_parameters import SDRAM_BYTES, BoardParameters
from hdl.board.sdram_start import REGISTERS
from hdl.catalog import entry_named
from hdl.errors import UserError
from synth.bitstream import BOARDS, board_parameters, find_board, require_clock
from synth.sdram import core_text, require_registers, write_top

TINY = BoardParameters(shell=entry_named("veda_axi").parameters("tiny"))
WITH_SDRAM = replace(TINY, sdram=True, memory_bytes=SDRAM_BYTES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory_bytes": 5000},
            "memory_bytes must be a power of two between 4096 and 33554432, not 5000",
        ),
        (
            {"memory_bytes": 1 << 19},
            "memory_bytes must be at most the 262144 bytes of block RAM, not 524288",
        ),
        ({"divisor": 3}, "divisor must be an integer from 4 to 65535, not 3"),
        (
            {"silence": 499},
            "silence must be at least 500 cycles, two bytes of the serial line, not 499",
        ),
        ({"shell": 1}, "shell must be a ShellParameters, not 1"),
    ],
)
def test_illegal_dimensions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(TINY, **changes)


def test_memory_must_be_within_the_axi_address_space() -> None:
    veda = replace(TINY.shell, axi_address_bits=25)
    assert BoardParameters(shell=veda, memory_bytes=1 << 18).memory_bytes == 1 << 18


def test_units_without_the_shell_are_refused() -> None:
    veda = entry_named("veda").parameters("tiny")
    with pytest.raises(UserError, match=r"TOP must be an accelerator .*, not veda$"):
        board_parameters("veda", veda)


def test_unknown_board_is_refused() -> None:
    with pytest.raises(UserError, match=r"BOARD must be .*ulx3s.*, not 'icestick'"):
        find_board("icestick")


def test_design_that_misses_the_clock_is_refused() -> None:
    board = find_board("ulx3s")
    require_clock("top", board, 25.0)
    with pytest.raises(UserError, match=r"top must reach the 25 MHz of ulx3s .*, not 24\.9 MHz"):
        require_clock("top", board, 24.9)


def test_unknown_memory_is_refused() -> None:
    with pytest.raises(UserError, match=r"MEMORY must be .*sdram.*, not 'ddr3'"):
        board_parameters("veda_axi", TINY.shell, "ddr3")


def test_the_whole_sdram_is_the_default() -> None:
    assert board_parameters("veda_axi", TINY.shell, "sdram") == WITH_SDRAM
    smaller = board_parameters("veda_axi", TINY.shell, "sdram", memory_bytes=1 << 20)
    assert smaller == replace(WITH_SDRAM, memory_bytes=1 << 20)


def test_another_core_is_refused() -> None:
    require_registers(REGISTERS | {"further": 0x81C})
    with pytest.raises(UserError, match=r"sdram_dfii_control of .* must be at 0x800, not 2052"):
        require_registers(REGISTERS | {"sdram_dfii_control": 0x804})
    with pytest.raises(UserError, match=r"must be at 0x0, not None"):
        require_registers({})
    with pytest.raises(UserError, match="must have 16 data pins sdram_dq, not 0 such ports"):
        core_text("input wire [31:0] sdram_dq,")


def bits(name: str, width: int) -> set[str]:
    """Return the bits of a port, as a file of pins names them."""
    return {name} if width == 1 else {f"{name}[{bit}]" for bit in range(width)}


def ports(sdram: bool, folder: Path) -> set[str]:
    """Return all bits of the ports of the packed top."""
    if not sdram:
        unit = AcceleratorBoard(parameters=TINY)
        members = {str(path[0]): member.shape for path, member, _ in unit.signature.flatten(unit)}
        return set().union(*(bits(n, int(str(w))) for n, w in members.items()), {"clk", "rst"})
    text = write_top(folder, "top", "logic", WITH_SDRAM).read_text()
    found = re.findall(r"^  (?:input|output|inout) (?:\[(\d+):0\] )?([^;]+);", text, re.M)
    return set().union(*(bits(n, int(w or 0) + 1) for w, ns in found for n in ns.split(", ")))


@pytest.mark.parametrize("sdram", [False, True])
@pytest.mark.parametrize("board", BOARDS.values(), ids=lambda board: board.name)
def test_each_port_has_one_pin_and_one_standard(board: Any, sdram: bool, tmp_path: Path) -> None:
    text = "".join(file.read_text() for file in board.pins(sdram=sdram))
    sites = re.findall(r'^LOCATE COMP "([^"]+)" SITE "(\w+)";$', text, re.M)
    standards = re.findall(r'^IOBUF PORT "([^"]+)" .*IO_TYPE=LVCMOS33', text, re.M)
    names = [name for name, _site in sites]
    assert sorted(names) == sorted(standards) == sorted(ports(sdram, tmp_path))
    assert len({site for _name, site in sites}) == len(sites)
    (clock,) = re.findall(r'^FREQUENCY PORT "clk" ([\d.]+) MHZ;$', text, re.M)
    assert float(clock) == board.clock_mhz
