"""Transport over a serial line to a board: registers and memory by the frames of its bridge."""

import binascii
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from hdl.board.protocol import (
    ANSWER,
    CHECK_BYTES,
    INITIAL,
    MOST_BYTES,
    REGISTER_BYTES,
    START,
    Command,
    Status,
)
from hdl.errors import UserError
from systola.host.transport import RefusedAccessError, Window, place_in, sleep_between_reads

BAUD = 1_000_000
"""Bits per second of a board with the default dimensions."""

TIMEOUT = 1.0
"""Seconds after which a board that does not answer is absent."""


class SerialError(Exception):
    """The board did not execute a request; the message contains the reason.

    Members
    -------
    status : Status | None
        Status of the answer; None without a correct answer.
    """

    def __init__(self, message: str, status: Status | None = None) -> None:
        super().__init__(message)
        self.status = status


class Line(Protocol):
    """A serial line, as ``serial.Serial`` of pyserial implements it."""

    def write(self, content: bytes, /) -> Any:
        """Send bytes."""
        ...

    def read(self, count: int, /) -> bytes:
        """Return a number of bytes, or those that arrive within the timeout."""
        ...


def check_of(content: bytes) -> bytes:
    """Return the check of the bytes of a frame after its first one."""
    return binascii.crc_hqx(content, INITIAL).to_bytes(CHECK_BYTES, "big")


def request_frame(command: int, address: int, count: int, payload: bytes = b"") -> bytes:
    """Return the frame of a request."""
    content = bytes([command]) + address.to_bytes(4, "little") + bytes([count - 1]) + payload
    return bytes([START]) + content + check_of(content)


def answer_frame(status: Status, content: bytes = b"") -> bytes:
    """Return the frame of an answer."""
    content = bytes([status.value]) + content
    return bytes([ANSWER]) + content + check_of(content)


class Serial:
    """Registers and memory of an accelerator on a board; implements `Transport`.

    A request is not repeated after an error, because some registers change when they are accessed.

    Parameters
    ----------
    line : Line
        The line; it has no bytes of an earlier answer.
    memory_bytes : int
        Bytes of the board's memory, which begins at address 0.
    pause : Callable[[], None]
        Let time pass between two reads of the status.
    """

    def __init__(
        self,
        line: Line,
        memory_bytes: int,
        *,
        pause: Callable[[], None] = sleep_between_reads,
    ) -> None:
        self.line, self.pause = line, pause
        self.memory = Window(0, memory_bytes)

    def exchange(self, command: Command, address: int, count: int, payload: bytes = b"") -> bytes:
        """Send a request, and return the data of its answer.

        Raises
        ------
        RefusedAccessError
            If the register block refuses the access.
        SerialError
            If the answer is another error, is incomplete, or has a wrong check.
        """
        self.line.write(request_frame(command.value, address, count, payload))
        what = f"{command.name} at {address:#x}"
        status, size = self._status(what), 0
        if status is Status.OKAY and not command.value & 1:
            size = count
        content = self._received(what, size + CHECK_BYTES)
        data, check = content[:size], content[size:]
        if check != check_of(bytes([status.value]) + data):
            raise SerialError(f"{what}: the check of the answer must be correct")
        if status is Status.REFUSED:
            raise RefusedAccessError(f"{what}: the register block refused it")
        if status is not Status.OKAY:
            raise SerialError(f"{what}: the board answered {status.name}", status)
        return data

    def _status(self, what: str) -> Status:
        """Receive the first two bytes of an answer; return its status."""
        first, status = self._received(what, 2)
        if first != ANSWER or status not in {one.value for one in Status}:
            raise SerialError(
                f"{what}: an answer must begin with {ANSWER:#04x} and a status, not "
                f"{first:#04x} {status:#04x}"
            )
        return Status(status)

    def _received(self, what: str, count: int) -> bytes:
        """Receive a number of bytes."""
        found = self.line.read(count)
        if len(found) < count:
            raise SerialError(
                f"{what}: the board must answer in time; {len(found)} of {count} bytes arrived"
            )
        return found

    def read_register(self, offset: int) -> int:
        """Return a register."""
        found = self.exchange(Command.READ_REGISTER, offset, REGISTER_BYTES)
        return int.from_bytes(found, "little")

    def write_register(self, offset: int, value: int) -> None:
        """Write a register."""
        payload = value.to_bytes(REGISTER_BYTES, "little")
        self.exchange(Command.WRITE_REGISTER, offset, REGISTER_BYTES, payload)

    def read_memory(self, address: int, count: int) -> bytes:
        """Return bytes of the memory."""
        place_in(self.memory, address, count)
        return b"".join(
            self.exchange(Command.READ_MEMORY, address + first, min(MOST_BYTES, count - first))
            for first in range(0, count, MOST_BYTES)
        )

    def write_memory(self, address: int, content: bytes) -> None:
        """Write bytes to the memory."""
        place_in(self.memory, address, len(content))
        for first in range(0, len(content), MOST_BYTES):
            part = content[first : first + MOST_BYTES]
            self.exchange(Command.WRITE_MEMORY, address + first, len(part), part)


class SerialPort(AbstractContextManager["SerialPort"], Serial):
    """The same over a serial port of this machine.

    pyserial, a package of the group `sdram`, is imported when an object is built.

    Parameters
    ----------
    port : str
        Name of the port, such as ``/dev/ttyUSB0``.
    memory_bytes : int
        Bytes of the board's memory.
    baud : int
        Bits per second of the board's line.

    Raises
    ------
    UserError
        If pyserial is not installed, or the port cannot be opened.
    """

    def __init__(self, port: str, memory_bytes: int, *, baud: int = BAUD) -> None:
        try:
            import serial
        except ImportError as error:
            raise UserError("pyserial must be installed for a serial port, not absent") from error
        try:
            self._port = serial.Serial(port, baud, timeout=TIMEOUT)
        except serial.SerialException as error:
            raise UserError(f"the serial port {port} must be accessible, not: {error}") from error
        super().__init__(self._port, memory_bytes)

    def __enter__(self) -> Self:
        """Return the transport."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the port."""
        self._port.close()
