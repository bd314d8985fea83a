"""Frames between a host and a board on a serial line: bytes, commands and status codes.

A request is ``START, command, address (4 bytes), count - 1, payload, check (2 bytes)``; only
commands that write have a payload, of `count` bytes. An answer is ``ANSWER, status, data, check``;
only a read with the status OKAY has data, of `count` bytes. Addresses and data are little-endian.
The check is the CRC-16 with the polynomial 0x1021 and the initial value 0xFFFF of all bytes between
the first byte of a frame and the check, upper byte first.

The board receives one request at a time; the host sends the next one after the answer.
"""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import enum

START = 0xA5
"""First byte of a request."""

ANSWER = 0x5A
"""First byte of an answer."""

HEADER_BYTES = 6
"""Bytes of command, address and count."""

CHECK_BYTES = 2
"""Bytes of the check."""

MOST_BYTES = 256
"""Maximum number of bytes that a request reads or writes."""

REGISTER_BYTES = 4
"""Bytes of a register, which a request of a register must have."""

POLYNOMIAL, INITIAL = 0x1021, 0xFFFF
"""Polynomial and initial value of the check."""


class Command(enum.Enum, shape=8):
    """Commands; bit 0 is set if the request has a payload."""

    READ_REGISTER = 0x10
    WRITE_REGISTER = 0x11
    READ_MEMORY = 0x20
    WRITE_MEMORY = 0x21


class Status(enum.Enum, shape=8):
    """Status of an answer. With a status other than OKAY and REFUSED, nothing is accessed."""

    OKAY = 0
    FRAME = 1
    """The bytes are no frame, or the frame is incomplete."""
    CHECK = 2
    """The check is wrong."""
    COMMAND = 3
    """The command does not exist."""
    LENGTH = 4
    """The count of a register is not 4."""
    ALIGNMENT = 5
    """The address of a register is not a multiple of 4."""
    ADDRESS = 6
    """The address, or a byte after it, is outside the registers or the memory."""
    REFUSED = 7
    """The register block refused the access."""


def next_check(check: Value, byte: Value) -> Value:
    """Return the check after one more byte, whose uppermost bit is first."""
    bits = [check[number] for number in range(16)]
    for number in reversed(range(8)):
        carry = bits[15] ^ byte[number]
        bits = [Const(0, 1), *bits[:15]]
        bits = [bit ^ carry if POLYNOMIAL >> place & 1 else bit for place, bit in enumerate(bits)]
    return Cat(*bits)
