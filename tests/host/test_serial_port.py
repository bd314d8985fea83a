"""The serial port of a machine: a pseudo terminal, at whose other end a thread is the board."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hdl.board.protocol import CHECK_BYTES, MOST_BYTES, Command, Status
from hdl.errors import UserError
from systola.host.serial_line import SerialError, SerialPort, answer_frame, check_of

MEMORY_BYTES = 4096
HEAD_BYTES = 7
"""Start byte, command, address and count of a request."""


class Board:
    """Executes requests of memory and registers; while it is `mute`, it answers none."""

    def __init__(self) -> None:
        self.memory, self.registers = bytearray(MEMORY_BYTES), bytearray(MEMORY_BYTES)
        self.mute = False
        self.end, self._slave = os.openpty()
        self.name = os.ttyname(self._slave)
        threading.Thread(target=self._serve, daemon=True).start()

    def _read(self, count: int) -> bytes:
        """Return bytes of the line."""
        found = b""
        while len(found) < count:
            found += os.read(self.end, count - len(found))
        return found

    def _serve(self) -> None:
        """Answer requests until the terminal is closed."""
        try:
            while True:
                head = self._read(HEAD_BYTES)
                command, count = Command(head[1]), head[6] + 1
                place = int.from_bytes(head[2:6], "little")
                writes = command in (Command.WRITE_MEMORY, Command.WRITE_REGISTER)
                payload = self._read(count) if writes else b""
                assert self._read(CHECK_BYTES) == check_of(head[1:] + payload)
                of_memory = command in (Command.READ_MEMORY, Command.WRITE_MEMORY)
                store = self.memory if of_memory else self.registers
                if writes:
                    store[place : place + count] = payload
                content = b"" if writes else bytes(store[place : place + count])
                if not self.mute:
                    os.write(self.end, answer_frame(Status.OKAY, content))
        except OSError:
            pass

    def close(self) -> None:
        """Close the terminal, which ends the thread."""
        os.close(self._slave)
        os.close(self.end)


@pytest.fixture
def board() -> Iterator[Board]:
    one = Board()
    yield one
    one.close()


def test_port_transfers_every_byte_of_memory_and_registers(board: Board) -> None:
    """Bytes with a meaning for terminals, such as carriage returns, arrive unchanged."""
    content = bytes(range(256)) * 3 + b"\x03\x04\x11\x13\r\n"
    assert len(content) > 2 * MOST_BYTES
    with SerialPort(board.name, MEMORY_BYTES) as port:
        port.write_memory(5, content)
        assert board.memory[5 : 5 + len(content)] == content
        assert port.read_memory(5, len(content)) == content
        port.write_register(0x40, 0x0D0A_1113)
        assert port.read_register(0x40) == 0x0D0A_1113
        assert board.memory[0x40] == content[0x40 - 5]


def test_port_discards_bytes_of_an_earlier_process(board: Board) -> None:
    with SerialPort(board.name, MEMORY_BYTES) as port:
        os.write(board.end, b"late")
        port.line.read(1)
    with SerialPort(board.name, MEMORY_BYTES) as port:
        assert port.read_memory(0, 3) == bytes(3)


def test_board_without_an_answer_is_an_error(board: Board) -> None:
    board.mute = True
    with (
        SerialPort(board.name, MEMORY_BYTES) as port,
        pytest.raises(SerialError, match="the board must answer in time; 0 of 2 bytes arrived"),
    ):
        port.read_register(0)


def test_absent_port_is_refused(tmp_path: Path) -> None:
    name = tmp_path / "ttyUSB0"
    with pytest.raises(UserError, match=f"the serial port {name} must be accessible, not: "):
        SerialPort(str(name), MEMORY_BYTES)
