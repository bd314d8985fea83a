"""Dimensions of boards, and the files of their pins."""

import re
from dataclasses import replace
from typing import Any

import pytest

from hdl.board.accelerator_board import AcceleratorBoard
from hdl.board.board_parameters import BoardParameters
from hdl.catalog import entry_named
from hdl.errors import UserError
from synth.bitstream import BOARDS, board_parameters, find_board, require_clock

TINY = BoardParameters(shell=entry_named("veda_axi").parameters("tiny"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory_bytes": 5000},
            "memory_bytes must be a power of two between 4096 and 262144, not 5000",
        ),
        (
            {"memory_bytes": 1 << 19},
            "memory_bytes must be a power of two between 4096 and 262144, not 524288",
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


def ports(parameters: BoardParameters) -> set[str]:
    """Return all bits of the top's ports, as a file of pins names them."""
    unit = AcceleratorBoard(parameters=parameters)
    found = {"clk", "rst"}
    for path, member, _value in unit.signature.flatten(unit):
        (name,), width = map(str, path), member.shape
        found |= {name} if width == 1 else {f"{name}[{bit}]" for bit in range(int(str(width)))}
    return found


@pytest.mark.parametrize("board", BOARDS.values(), ids=lambda board: board.name)
def test_each_port_has_one_pin_and_one_standard(board: Any) -> None:
    text = board.pins.read_text()
    sites = re.findall(r'^LOCATE COMP "([^"]+)" SITE "(\w+)";$', text, re.M)
    standards = re.findall(r'^IOBUF PORT "([^"]+)" .*IO_TYPE=LVCMOS33', text, re.M)
    names = [name for name, _site in sites]
    assert sorted(names) == sorted(standards) == sorted(ports(TINY))
    assert len({site for _name, site in sites}) == len(sites)
    (clock,) = re.findall(r'^FREQUENCY PORT "clk" ([\d.]+) MHZ;$', text, re.M)
    assert float(clock) == board.clock_mhz
