"""cocotb: an accelerator on a board, through the pins of the serial line only.

If the top has SDRAM, the chip's model at its pins counts violations of the data sheet.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.task import resume
from cocotb.triggers import Event, FallingEdge, Timer, ValueChange, with_timeout
from cocotb.triggers import SimTimeoutError as TooLateError

from hdl.board.accelerator_board import SDRAM_PAUSE
from hdl.board.board_parameters import BITS_PER_BYTE
from hdl.board.protocol import MOST_BYTES, REGISTER_BYTES, Command, Status
from hdl.shell.axi import Cause
from hdl.shell.register_map import registers
from hdl.shell.shell_parameters import ShellParameters
from systola.host.device import Device, DeviceError
from systola.host.serial_line import Serial, SerialError, answer_frame, request_frame
from systola.host.simulation import run_host
from systola.host.transport import RefusedAccessError
from testbenches.bench import Bench, catalog_parameters
from tests.board.texts import TEXTS, TIMEOUT

PERIOD = 10
"""Nanoseconds per cycle."""

PATIENCE_BYTES = 400
"""Bytes of the line after which an answer is late."""


class Pins:
    """Drives and samples the pins of a board; one byte at a time, as a host computer does."""

    def __init__(self, dut: Any, salt: str) -> None:
        self.dut, self.p = dut, catalog_parameters()
        self.bench = Bench(dut, salt)
        self.rng = self.bench.rng
        self.bit = self.p.divisor * PERIOD
        self.received, self.arrived = bytearray(), Event()
        self.line = BlockingLine(self)
        self.has_chip = hasattr(dut, "violations")

    async def reset(self) -> None:
        """Start the clock, and press the button for some cycles."""
        self.dut.serial_in.value, self.dut.rst.value = 1, 1
        cocotb.start_soon(Clock(self.dut.clk, PERIOD, unit="ns").start())
        await self.press()
        if self.has_chip:
            cocotb.start_soon(self.watch())
        cocotb.start_soon(self.receive())

    async def watch(self) -> None:
        """Fail at the first violation; the simulation's log has its name."""
        while not int(self.dut.violations.value):
            await ValueChange(self.dut.violations)
        raise AssertionError("the SDRAM received a command that its data sheet does not allow")

    async def press(self) -> None:
        """Press the button at a time that is not that of a clock edge, and release it."""
        await Timer(3, unit="ns")
        self.dut.rst.value = 1
        await Timer(40 * PERIOD, unit="ns")
        self.dut.rst.value = 0
        await Timer(40 * PERIOD, unit="ns")
        assert int(self.dut.leds.value) & 1, "the design is not reset"
        assert self.dut.wifi_gpio0.value
        if self.has_chip:
            # The first access is executed after the start sequence.
            await Timer((SDRAM_PAUSE + 500) * PERIOD, unit="ns")

    async def send(self, content: bytes, *, stop: int = 1) -> None:
        """Send bytes back to back."""
        for byte in content:
            for bit in (0, *(byte >> place & 1 for place in range(8)), stop):
                self.dut.serial_in.value = bit
                await Timer(self.bit, unit="ns")
        self.dut.serial_in.value = 1

    async def receive(self) -> None:
        """Sample the bytes of the board in the middle of each bit."""
        line = self.dut.serial_out
        while True:
            await FallingEdge(line)
            await Timer(self.bit // 2, unit="ns")
            bits = []
            for _ in range(BITS_PER_BYTE):
                bits.append(int(line.value))
                await Timer(self.bit if len(bits) < BITS_PER_BYTE else 1, unit="ns")
            assert (bits[0], bits[-1]) == (0, 1), "a byte must have a start bit and a stop bit"
            self.received.append(sum(bit << place for place, bit in enumerate(bits[1:-1])))
            self.arrived.set()

    async def take(self, count: int) -> bytes:
        """Return received bytes; fewer if the board is late."""
        patience = self.p.silence * PERIOD + PATIENCE_BYTES * BITS_PER_BYTE * self.bit
        while len(self.received) < count:
            self.arrived.clear()
            try:
                await with_timeout(self.arrived.wait(), patience, "ns")
            except TooLateError:
                break
        found, self.received = bytes(self.received[:count]), self.received[count:]
        return found

    async def pass_cycles(self, cycles: int) -> None:
        """Run a number of cycles."""
        await Timer(cycles * PERIOD, unit="ns")

    async def answers(self, frame: bytes, expected: bytes) -> None:
        """Send bytes; the only answer is the expected one."""
        await self.send(frame)
        await self.answer(expected)

    async def answer(self, expected: bytes) -> None:
        """Receive the expected answer, and nothing else."""
        found = await self.take(len(expected))
        assert found == expected, f"expected {expected.hex(' ')}, got {found.hex(' ')}"
        await self.pass_cycles(4 * BITS_PER_BYTE * self.p.divisor)
        assert not self.received, "one answer for each request"

    async def error(self, frame: bytes, status: Status) -> None:
        """Send bytes; the answer is an error, without data, and the diode shows it."""
        await self.answers(frame, answer_frame(status))
        assert int(self.dut.leds.value) >> 2 & 1


class BlockingLine:
    """The pins as a line of `Serial`, whose calls block in a thread of the host library."""

    def __init__(self, pins: Pins) -> None:
        self.write = resume(pins.send)
        self.read = resume(pins.take)


def transport(pins: Pins) -> Serial:
    """Return the transport of the host library."""
    wait = resume(pins.pass_cycles)
    return Serial(pins.line, pins.p.memory_bytes, pause=lambda: wait(20))


async def used(pins: Pins, work: Callable[[], None]) -> None:
    """Run a function of the host library."""
    await run_host(work)


def legal(pins: Pins) -> list[tuple[Command, int, int, bytes]]:
    """Return legal requests of memory that reach its first and its last byte."""
    size = pins.p.memory_bytes
    return [
        (Command.WRITE_MEMORY, 0, 9, pins.rng.randbytes(9)),
        (Command.WRITE_MEMORY, size - 5, 5, pins.rng.randbytes(5)),
        (Command.WRITE_MEMORY, 4096 - 3, MOST_BYTES, pins.rng.randbytes(MOST_BYTES)),
    ]


async def filled(pins: Pins) -> Callable[[], Awaitable[None]]:
    """Fill some bytes of the memory; return a function that checks that they are unchanged."""
    wanted = {}
    for command, address, count, payload in legal(pins):
        frame = request_frame(command.value, address, count, payload)
        await pins.answers(frame, answer_frame(Status.OKAY))
        wanted[address] = payload

    async def unchanged() -> None:
        for address, content in wanted.items():
            frame = request_frame(Command.READ_MEMORY.value, address, len(content))
            await pins.answers(frame, answer_frame(Status.OKAY, content))

    await unchanged()
    return unchanged


@cocotb.test()
async def tokens_equal_the_golden_model(dut: Any) -> None:
    """The host library loads a model by the serial line, and generates the golden tokens."""
    pins = Pins(dut, "tokens")
    await pins.reset()
    shell = pins.p.shell
    await used(pins, lambda: TEXTS[type(shell)](pins.bench, shell, transport(pins)))
    if pins.has_chip:
        counts = {name: int(getattr(dut, name).value) for name in ("refreshes", "reads", "writes")}
        dut._log.info(f"SDRAM: {counts}")
        assert min(counts.values()) > 100


@cocotb.test()
async def errors_write_nothing(dut: Any) -> None:
    """Noise, wrong checks and illegal requests have error answers and no effect."""
    pins = Pins(dut, "errors")
    await pins.reset()
    unchanged = await filled(pins)
    size, rng = pins.p.memory_bytes, pins.rng
    write = Command.WRITE_MEMORY.value
    frame = request_frame(write, 0, 9, rng.randbytes(9))
    # Noise that contains the first byte of a frame only after another byte.
    await pins.error(b"\x00" + frame, Status.FRAME)
    await pins.error(bytes([0xFF, *rng.randbytes(20)]), Status.FRAME)
    # Each part of a frame with an error of one bit: the check finds it, or the length is wrong.
    for place in (1, 2, 5, 9, len(frame) - 2, len(frame) - 1):
        wrong = bytearray(frame)
        wrong[place] ^= 1 << rng.randrange(1, 8)
        await pins.send(bytes(wrong))
        status = await pins.take(len(answer_frame(Status.CHECK)))
        assert status in (answer_frame(Status.CHECK), answer_frame(Status.FRAME)), status
    await pins.error(request_frame(write, 0, 9, rng.randbytes(9))[:-1], Status.FRAME)
    # A frame without one stop bit.
    await pins.send(frame[:8])
    await pins.send(frame[8:9], stop=0)
    await pins.pass_cycles(2 * pins.p.divisor)
    await pins.error(frame[9:], Status.FRAME)
    # Bytes outside the memory, also of an address near 2**32.
    for address, count in ((size, 1), (size - 5, 6), (0xFFFF_FFFF, 2), (size << 1, 4)):
        payload = rng.randbytes(count)
        await pins.error(request_frame(write, address, count, payload), Status.ADDRESS)
        reading = request_frame(Command.READ_MEMORY.value, address, count)
        await pins.error(reading, Status.ADDRESS)
    word = rng.randbytes(REGISTER_BYTES)
    for command, payload in ((Command.READ_REGISTER, b""), (Command.WRITE_REGISTER, word)):
        for address, status in (
            (0x42, Status.ALIGNMENT),
            (0x41, Status.ALIGNMENT),
            (0x1000, Status.ADDRESS),
            (0x8000_0040, Status.ADDRESS),
        ):
            await pins.error(request_frame(command.value, address, 4, payload), status)
        short = request_frame(command.value, 0x40, 3, payload[:3])
        await pins.error(short, Status.LENGTH)
    await pins.error(request_frame(0x30, 0, 4), Status.COMMAND)
    await pins.error(request_frame(0x31, 0, 4, word), Status.COMMAND)
    await unchanged()
    for number in range(2):
        base = request_frame(Command.READ_REGISTER.value, 0x40 + 4 * number, 4)
        await pins.answers(base, answer_frame(Status.OKAY, bytes(4)))
    assert not int(dut.leds.value) >> 2 & 1


@cocotb.test()
async def refused_accesses_are_errors_of_the_library(dut: Any) -> None:
    """The register block refuses a write; the memory refuses a burst outside it."""
    pins = Pins(dut, "refused")
    await pins.reset()
    shell: ShellParameters = pins.p.shell
    offsets = {one.name: one.offset for one in registers(shell.registers)}

    def refuse() -> None:
        serial = transport(pins)
        with pytest.raises(RefusedAccessError, match=r"WRITE_REGISTER at 0x10"):
            serial.write_register(offsets["status"], 1)
        with pytest.raises(SerialError, match="READ_REGISTER at 0x2: the board answered ALIGNMENT"):
            serial.read_register(2)
        with pytest.raises(ValueError, match="an access must be from 0x0 to"):
            serial.write_memory(serial.memory.end - 1, b"xx")
        device = Device(serial, shell.registers, [*(port.name for port in shell.ports), "core"])
        outside = serial.memory.end
        serial.write_register(offsets["base_0_low"], outside)
        serial.write_register(offsets["base_1_low"], outside + 4096)
        with pytest.raises(DeviceError, match="DECERR") as caught:
            device.run([1] + [0] * (len(shell.program) - 1), timeout=TIMEOUT)
        found = caught.value
        assert (found.cause, found.address) == (Cause.DECERR, outside)
        assert found.source == "instructions"

    await used(pins, refuse)


@cocotb.test()
async def the_button_resets_in_a_frame(dut: Any) -> None:
    """A reset in the middle of a frame discards it; the memory keeps its bytes."""
    pins = Pins(dut, "button")
    await pins.reset()
    unchanged = await filled(pins)
    base = request_frame(Command.WRITE_REGISTER.value, 0x40, 4, (64).to_bytes(4, "little"))
    await pins.answers(base, answer_frame(Status.OKAY))
    frame = request_frame(Command.WRITE_MEMORY.value, 0, 9, bytes(9))
    await pins.send(frame[:10])
    await pins.press()
    await pins.answer(b"")
    await unchanged()
    reading = request_frame(Command.READ_REGISTER.value, 0x40, 4)
    await pins.answers(reading, answer_frame(Status.OKAY, bytes(4)))
