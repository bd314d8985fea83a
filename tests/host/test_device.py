"""The host library with the model of the register block: no access is refused."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from golden.shell.axi_registers import OKAY, RegisterModel
from golden.shell.shell_jobs import Region
from hdl.catalog import entry_named
from hdl.errors import UserError
from hdl.shell.axi import Cause
from hdl.shell.register_map import AxiRegistersParameters
from systola.host.device import Device, DeviceError, JobResult, place_regions
from systola.host.transport import Window, place_in

P = AxiRegistersParameters(
    bases=4, axi_address_bits=40, alignment=8, sources=3, token_depth=2, digest=0x1234_5678
)
SOURCES = ("instructions", "cache_writes", "MEADOW")


class Board:
    """A transport over the model of the register block.

    `work` is called at each pause, as an accelerator that works meanwhile.
    """

    memory = Window(0, 0)

    def __init__(self, work: Callable[[RegisterModel], None] = lambda model: None) -> None:
        self.model, self.work = RegisterModel(P), work
        self.written: list[tuple[int, int]] = []

    def read_register(self, offset: int) -> int:
        value, response = self.model.read(offset)
        assert response == OKAY, f"a read of {offset:#x} is refused"
        return value

    def write_register(self, offset: int, value: int) -> None:
        assert self.model.write(offset, value) == OKAY, f"a write of {offset:#x} is refused"
        self.written.append((offset, value))

    def read_memory(self, address: int, count: int) -> bytes:
        raise AssertionError("a device reads no memory")

    def write_memory(self, address: int, content: bytes) -> None:
        raise AssertionError("a device writes no memory")

    def pause(self) -> None:
        if self.model.flushing:
            self.model.end_flush()
        else:
            self.work(self.model)


def test_a_job_takes_numbers_and_gives_tokens() -> None:
    """More tokens than the FIFO stores are received while the job runs."""
    left = [5, 0xFFFF_FFFE, 7, 8]
    taken: list[int] = []

    def work(model: RegisterModel) -> None:
        taken.extend(model.inputs)
        model.inputs.clear()
        while left and len(model.outputs) < P.token_depth:
            model.outputs.append(left.pop(0))
        if not left:
            model.finish((3 << 32) + 9)

    device = Device(Board(work), P, SOURCES)
    assert device.run([30, 31], 60) == JobResult([5, 0xFFFF_FFFE, 7, 8], (3 << 32) + 9)
    assert taken == [30, 31]


def test_regions_are_written_to_both_halves() -> None:
    board = Board()
    Device(board, P, SOURCES).set_regions([Region(0x12_0000_0008, 0x20), Region(0x28, 0x30)])
    assert board.model.bases == [0x12_0000_0008, 0x20, 0x28, 0x30]


@pytest.mark.parametrize("region", [Region(4, 8), Region(0, 12), Region(0, 1 << 40)])
def test_illegal_regions_are_refused_before_a_write(region: Region) -> None:
    board = Board()
    device = Device(board, P, SOURCES)
    board.written.clear()
    with pytest.raises(UserError, match=r"must be multiples of 8 below 2\*\*40, not 0x"):
        device.set_regions([Region(0, 8), region])
    assert board.written == []


@pytest.mark.parametrize(
    ("error", "message", "source"),
    [
        ((1, 2, 0x40), "SLVERR at address 0x40 of the port cache_writes", "cache_writes"),
        (
            (0, 3, 1 << 36),
            "DECERR at address 0x1000000000 of the port instructions",
            "instructions",
        ),
        ((2, 1, 5), "MEADOW reported the error flags 0x5", "MEADOW"),
    ],
)
def test_an_error_is_reported_and_cleared(
    error: tuple[int, int, int], message: str, source: str
) -> None:
    def work(model: RegisterModel) -> None:
        model.error = error
        model.outputs.append(3)
        model.finish(4)

    board = Board(work)
    device = Device(board, P, SOURCES)
    with pytest.raises(DeviceError, match=re.escape(f"the job was stopped: {message}")) as caught:
        device.run([1, 2], 60)
    found = caught.value
    assert (found.cause, found.source, found.address) == (Cause(error[1]), source, error[2])
    assert board.model.error is None and not board.model.outputs and not board.model.inputs
    board.work = lambda model: model.finish(1)
    assert device.run([1, 2], 60) == JobResult([], 1)


def test_a_job_without_end_is_stopped() -> None:
    board = Board()
    device = Device(board, P, SOURCES)
    with pytest.raises(DeviceError, match="a job must end within 0 s; it was stopped"):
        device.run([1], 0)
    assert not board.model.busy and not board.model.inputs


def test_a_second_start_and_too_many_numbers_are_refused() -> None:
    device = Device(Board(), P, SOURCES)
    with pytest.raises(UserError, match="the input tokens of a job must be at most 2, not 3"):
        device.start([1, 2, 3])
    device.start([1])
    with pytest.raises(UserError, match="must be idle before a job starts, not busy"):
        device.start([1])


def test_a_job_of_an_earlier_process_is_stopped() -> None:
    board = Board()
    model = board.model
    model.busy, model.error = True, (0, 2, 8)
    model.inputs.append(1)
    model.outputs.append(2)
    Device(board, P, SOURCES)
    assert not model.busy and model.error is None and not model.inputs and not model.outputs


@pytest.mark.parametrize(
    ("place", "name"), [(0, "identification"), (4, "map_version"), (8, "digest")]
)
def test_another_accelerator_is_refused_without_a_write(place: int, name: str) -> None:
    class Other(Board):
        def read_register(self, offset: int) -> int:
            return 0xABC if offset == place else super().read_register(offset)

    board = Other()
    with pytest.raises(UserError, match=f"register {name} .* must be 0x.*, not 0x00000abc"):
        Device(board, P, SOURCES)
    assert board.written == []


def test_regions_are_placed_in_pages() -> None:
    sizes = {"a": 1, "b": 4096, "c": 4097, "d": 0}
    regions = place_regions(sizes, Window(0x1800, 0x6000))
    assert regions == {
        "a": Region(0x2000, 0x3000),
        "b": Region(0x3000, 0x4000),
        "c": Region(0x4000, 0x6000),
        "d": Region(0x6000, 0x6000),
    }
    with pytest.raises(UserError, match="must have 18,432 bytes for the model, not 18,431"):
        place_regions(sizes, Window(0x1800, 0x5FFF))


@pytest.mark.parametrize("access", [(15, 1), (20, 13), (32, 1)])
def test_an_access_outside_the_memory_is_refused(access: tuple[int, int]) -> None:
    memory = Window(16, 32)
    assert place_in(memory, 16, 16) == 0 and place_in(memory, 31, 1) == 15
    with pytest.raises(ValueError, match="an access must be from 0x10 to 0x20, not"):
        place_in(memory, *access)


def test_each_parameter_changes_the_digest() -> None:
    tiny: Any = entry_named("meadow_axi").parameters("tiny")
    others = [
        replace(tiny, outstanding=4),
        replace(tiny, data_bytes=16),
        replace(tiny, meadow=replace(tiny.meadow, tokens=13)),
    ]
    assert len({one.digest for one in (tiny, *others)}) == 4
