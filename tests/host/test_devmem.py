"""The transport over a file of the physical address space, with a file in its place."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden.shell.shell_jobs import Region
from hdl.errors import UserError
from hdl.shell.register_map import IDENTIFICATION, MAP_VERSION, AxiRegistersParameters
from systola.host.device import Device
from systola.host.devmem import DevMem
from systola.host.transport import Window

PAGE = mmap.PAGESIZE
MEMORY = Window(3 * PAGE, 5 * PAGE)
P = AxiRegistersParameters(bases=2, alignment=16, digest=0xCAFE_F00D)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a register block in its second page, which never changes by itself."""
    found = tmp_path / "mem"
    content = bytearray(6 * PAGE)
    for offset, value in ((0, IDENTIFICATION), (4, MAP_VERSION), (8, P.digest)):
        content[PAGE + offset : PAGE + offset + 4] = value.to_bytes(4, "little")
    found.write_bytes(content)
    return found


@pytest.fixture
def board(file: Path) -> Iterator[DevMem]:
    with DevMem(PAGE, MEMORY, file) as found:
        yield found


def test_registers_are_words_at_their_offsets(board: DevMem, file: Path) -> None:
    board.write_register(0x40, 0x1234_5678)
    assert file.read_bytes()[PAGE + 0x40 : PAGE + 0x48] == bytes.fromhex("7856341200000000")
    assert board.read_register(0x40) == 0x1234_5678


def test_memory_is_at_its_addresses(board: DevMem, file: Path) -> None:
    board.write_memory(MEMORY.first + 5, b"weights")
    board.write_memory(MEMORY.end - 1, b"!")
    content = file.read_bytes()
    assert content[3 * PAGE + 5 : 3 * PAGE + 12] == b"weights" and content[5 * PAGE - 1] == ord("!")
    assert content[5 * PAGE :] == bytes(PAGE) and content[2 * PAGE : 3 * PAGE] == bytes(PAGE)
    assert board.read_memory(MEMORY.first + 5, 7) == b"weights"
    with pytest.raises(ValueError, match="an access must be from"):
        board.write_memory(MEMORY.end - 1, b"!!")


def test_a_device_opens_over_it(board: DevMem) -> None:
    device = Device(board, P, ["port", "core"])
    device.set_regions([Region(0x3_0000_0010, 0x3_0000_0020)])
    assert [board.read_register(offset) for offset in (0x40, 0x44, 0x48)] == [0x10, 3, 0x20]


@pytest.mark.parametrize(
    ("registers", "memory"),
    [(PAGE + 4, MEMORY), (PAGE, Window(PAGE + 1, 2 * PAGE)), (PAGE, Window(PAGE, 2 * PAGE - 8))],
)
def test_unaligned_addresses_are_refused(registers: int, memory: Window, file: Path) -> None:
    with pytest.raises(UserError, match=f"must be multiples of {PAGE}, not 0x"):
        DevMem(registers, memory, file)


def test_a_file_that_cannot_be_mapped_is_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(UserError, match="must be readable and writable at 0x1000 and 0x3000, not"):
        DevMem(PAGE, MEMORY, tmp_path / "absent")
    with pytest.raises(UserError, match="must be readable and writable"):
        DevMem(PAGE, Window(MEMORY.first, 9 * PAGE), file)
