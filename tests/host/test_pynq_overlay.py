"""The transport over PYNQ, with a double of PYNQ's documented interface. No board was used."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hdl.errors import UserError
from systola.host.pynq_overlay import PynqOverlay
from systola.host.transport import Window


class Buffer(np.ndarray[Any, Any]):
    """The processor's copy of memory, which differs from the memory until it is flushed."""

    device_address = 0x7_0000
    stored: Any

    def flush(self) -> None:
        self.stored[:] = self

    def invalidate(self) -> None:
        self[:] = self.stored


class Registers:
    """The double of `pynq.MMIO`."""

    def __init__(self, base: int, length: int) -> None:
        self.place, self.values = (base, length), dict[int, int]()

    def read(self, offset: int) -> int:
        return self.values[offset]

    def write(self, offset: int, value: int) -> None:
        self.values[offset] = value


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install the double; return the names of the bit files that are loaded."""
    files: list[str] = []

    def overlay(file: str) -> Any:
        files.append(file)
        place = {"phys_addr": 0xA000_0000, "addr_range": 0x1000}
        return SimpleNamespace(ip_dict={"meadow_axi_0": place})

    def allocate(*, shape: tuple[int, ...], dtype: Any) -> Buffer:
        buffer = np.zeros(shape, dtype).view(Buffer)
        buffer.stored = np.zeros(shape, dtype)
        return buffer

    double: Any = SimpleNamespace(Overlay=overlay, MMIO=Registers, allocate=allocate)
    monkeypatch.setitem(sys.modules, "pynq", double)
    return files


def test_registers_and_memory(loaded: list[str]) -> None:
    board = PynqOverlay(Path("meadow.bit"), "meadow_axi_0", 64)
    assert loaded == ["meadow.bit"] and board.memory == Window(0x7_0000, 0x7_0040)
    registers: Any = board._registers
    assert registers.place == (0xA000_0000, 0x1000)
    board.write_register(0x30, 9)
    assert board.read_register(0x30) == 9
    board.write_memory(0x7_0010, b"abc")
    buffer: Any = board._buffer
    assert bytes(buffer.stored[15:20]) == b"\0abc\0"
    # The accelerator writes memory, not the processor's copy.
    buffer.stored[17] = ord("x")
    assert board.read_memory(0x7_0010, 3) == b"axc"
    with pytest.raises(ValueError, match="an access must be from 0x70000 to 0x70040, not 2 bytes"):
        board.write_memory(0x7_003F, b"ab")


@pytest.mark.usefixtures("loaded")
def test_another_name_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'meadow_axi_0'"):
        PynqOverlay(Path("meadow.bit"), "meadow_axi", 64)


def test_pynq_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(UserError, match="PYNQ must be installed for an overlay, not absent"):
        PynqOverlay(Path("meadow.bit"), "meadow_axi_0", 64)
