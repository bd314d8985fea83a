"""The bridge executes legal requests, and answers all others with an error and no effect."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hdl.board.protocol import INITIAL, REGISTER_BYTES, Command, Status, next_check
from hdl.shell.register_map import IDENTIFICATION, registers
from systola.host.serial_line import (
    Serial,
    SerialError,
    answer_frame,
    check_of,
    request_frame,
)
from systola.host.transport import RefusedAccessError
from tests.board.bridge_bench import MEMORY_BYTES, REGISTERS, SILENCE, BridgeLine

OFFSETS = {one.name: one.offset for one in registers(REGISTERS)}
WRITE, READ = Command.WRITE_MEMORY.value, Command.READ_MEMORY.value


@pytest.fixture
def line() -> BridgeLine:
    return BridgeLine()


def answers(line: BridgeLine, frame: bytes, expected: bytes) -> None:
    """Send bytes; the only answer is the expected one."""
    line.write(frame)
    assert line.read(len(expected)) == expected
    line.pass_cycles(2 * SILENCE)
    assert not line.received


def test_check_equals_the_crc_of_the_standard_library() -> None:
    """`binascii.crc_hqx` is the same CRC by other authors."""
    rng = random.Random(1)
    check, byte = Signal(16), Signal(8)
    m, found = Module(), Signal(16)
    m.d.comb += found.eq(next_check(check, byte))
    simulator = Simulator(m)

    async def compare(ctx: Any) -> None:
        for content in (b"123456789", rng.randbytes(50)):
            ctx.set(check, INITIAL)
            for number, one in enumerate(content):
                ctx.set(byte, one)
                value = ctx.get(found)
                assert value.to_bytes(2, "big") == check_of(content[: number + 1])
                ctx.set(check, value)

    simulator.add_testbench(compare)
    simulator.run()
    # The published check value of this CRC.
    assert check_of(b"123456789") == bytes.fromhex("29b1")


def test_transport_accesses_registers_and_memory(line: BridgeLine) -> None:
    serial = Serial(line, MEMORY_BYTES)
    assert serial.read_register(OFFSETS["identification"]) == IDENTIFICATION
    serial.write_register(OFFSETS["base_1_low"], 0x1234)
    assert serial.read_register(OFFSETS["base_1_low"]) == 0x1234
    rng, content = random.Random(2), bytearray(MEMORY_BYTES)
    serial.write_memory(0, bytes(content[:300]))
    for address, count in ((0, 1), (7, 2), (3, 257), (MEMORY_BYTES - 256, 256)):
        part = rng.randbytes(count)
        content[address : address + count] = part
        serial.write_memory(address, part)
        assert serial.read_memory(address, count) == part
    assert serial.read_memory(0, 300) == content[:300]


@pytest.fixture
def filled(line: BridgeLine) -> Iterator[BridgeLine]:
    """A line to a memory whose first and last bytes and registers must not change."""
    serial = Serial(line, MEMORY_BYTES)
    first, last = random.Random(3).randbytes(12), random.Random(4).randbytes(8)
    serial.write_memory(0, first)
    serial.write_memory(MEMORY_BYTES - 8, last)
    serial.write_register(OFFSETS["base_0_low"], 0x40)
    yield line
    line.pass_cycles(2 * SILENCE)
    assert not line.received
    assert serial.read_memory(0, 12) == first
    assert serial.read_memory(MEMORY_BYTES - 8, 8) == last
    assert serial.read_register(OFFSETS["base_0_low"]) == 0x40
    assert serial.read_register(OFFSETS["base_1_low"]) == 0


FRAME = request_frame(WRITE, 0, 9, bytes(range(100, 109)))


@pytest.mark.parametrize("noise", [b"\x00", b"\x5a\xa5", b"\x00" + FRAME, bytes(range(40))])
def test_noise_has_one_answer(filled: BridgeLine, noise: bytes) -> None:
    answers(filled, noise, answer_frame(Status.FRAME))


@pytest.mark.parametrize("count", range(1, len(FRAME)))
def test_incomplete_frame_has_one_answer(filled: BridgeLine, count: int) -> None:
    answers(filled, FRAME[:count], answer_frame(Status.FRAME))


@pytest.mark.parametrize("place", range(7, len(FRAME)))
def test_error_of_one_bit_is_a_wrong_check(filled: BridgeLine, place: int) -> None:
    wrong = bytearray(FRAME)
    wrong[place] ^= 1 << place % 8
    answers(filled, bytes(wrong), answer_frame(Status.CHECK))


def test_bytes_after_a_wrong_check_are_discarded(filled: BridgeLine) -> None:
    wrong = FRAME[:-1] + bytes([FRAME[-1] ^ 1])
    answers(filled, wrong + FRAME, answer_frame(Status.CHECK))


@pytest.mark.parametrize("place", [0, 3, 8, len(FRAME) - 1])
def test_byte_without_a_stop_bit_ends_the_frame(filled: BridgeLine, place: int) -> None:
    filled.write(FRAME[:place])
    filled.write_corrupted(FRAME[place])
    answers(filled, FRAME[place + 1 :], answer_frame(Status.FRAME))


@pytest.mark.parametrize("command", [WRITE, READ])
@pytest.mark.parametrize(
    ("address", "count"),
    [(MEMORY_BYTES, 1), (MEMORY_BYTES - 8, 9), (0xFFFF_FFFF, 2), (2 * MEMORY_BYTES, 4)],
)
def test_bytes_outside_the_memory_are_refused(
    filled: BridgeLine, command: int, address: int, count: int
) -> None:
    payload = bytes(count) if command == WRITE else b""
    frame = request_frame(command, address, count, payload)
    answers(filled, frame, answer_frame(Status.ADDRESS))


@pytest.mark.parametrize("command", [Command.READ_REGISTER, Command.WRITE_REGISTER])
@pytest.mark.parametrize(
    ("address", "count", "status"),
    [
        (0x41, 4, Status.ALIGNMENT),
        (0x42, 4, Status.ALIGNMENT),
        (0x1040, 4, Status.ADDRESS),
        (0x8000_0040, 4, Status.ADDRESS),
        (0x40, 3, Status.LENGTH),
        (0x40, 256, Status.LENGTH),
    ],
)
def test_illegal_registers_are_refused(
    filled: BridgeLine, command: Command, address: int, count: int, status: Status
) -> None:
    payload = bytes(count) if command is Command.WRITE_REGISTER else b""
    answers(filled, request_frame(command.value, address, count, payload), answer_frame(status))


@pytest.mark.parametrize("command", [0x00, 0x12, 0x21 ^ 0x80, 0x31, 0xFF])
def test_unknown_commands_are_refused(filled: BridgeLine, command: int) -> None:
    payload = bytes(REGISTER_BYTES) if command & 1 else b""
    frame = request_frame(command, 0x40, REGISTER_BYTES, payload)
    answers(filled, frame, answer_frame(Status.COMMAND))


def test_errors_are_exceptions_of_the_transport(filled: BridgeLine) -> None:
    serial = Serial(filled, MEMORY_BYTES)
    with pytest.raises(RefusedAccessError, match="WRITE_REGISTER at 0x10: the register block"):
        serial.write_register(OFFSETS["status"], 1)
    with pytest.raises(SerialError, match="READ_REGISTER at 0x2: the board answered ALIGNMENT"):
        serial.read_register(2)
    larger = Serial(filled, 2 * MEMORY_BYTES)
    with pytest.raises(SerialError, match="the board answered ADDRESS"):
        larger.write_memory(MEMORY_BYTES - 4, bytes(8))
    with pytest.raises(ValueError, match="an access must be from 0x0 to 0x1000, not 2 bytes at"):
        serial.write_memory(MEMORY_BYTES - 1, b"xx")
