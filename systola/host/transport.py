"""Access to an accelerator's registers and memory, which each kind of board implements."""

import mmap
import time
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Content = TypeVar("Content", mmap.mmap, bytearray)


@dataclass(frozen=True)
class Window:
    """A part of memory that the host and the accelerator share.

    Parameters
    ----------
    first, end : int
        Byte address of its first byte, and of the first byte after it, at the accelerator's AXI4
        ports.
    """

    first: int
    end: int


class RefusedAccessError(Exception):
    """The register block refused an access; on many boards, this ends the process."""


class Transport(Protocol):
    """Registers and memory of an accelerator.

    Addresses of memory are those at the accelerator's AXI4 ports.
    """

    @property
    def memory(self) -> Window:
        """The memory that the accelerator may use."""
        ...

    def read_register(self, offset: int) -> int:
        """Return the 32 bits of a register, by its byte offset in the register block."""
        ...

    def write_register(self, offset: int, value: int) -> None:
        """Write the 32 bits of a register."""
        ...

    def read_memory(self, address: int, count: int) -> bytes:
        """Return bytes of the memory."""
        ...

    def write_memory(self, address: int, content: bytes) -> None:
        """Write bytes to the memory."""
        ...

    def pause(self) -> None:
        """Let time pass between two reads of the status."""
        ...


def require_okay(kind: str, offset: int, response: int) -> None:
    """Check the response to an access to a register in a simulation.

    Raises
    ------
    RefusedAccessError
        If the response is an error.
    """
    if response:
        raise RefusedAccessError(f"{kind} at offset {offset:#x}: response {response}")


def place_in(memory: Window, address: int, count: int) -> int:
    """Return the offset of bytes in a window.

    Raises
    ------
    ValueError
        If they are not inside it.
    """
    if not memory.first <= address <= address + count <= memory.end:
        raise ValueError(
            f"an access must be from {memory.first:#x} to {memory.end:#x}, not {count} bytes at "
            f"{address:#x}"
        )
    return address - memory.first


def sleep_between_reads() -> None:
    """Sleep for half a millisecond, the pause of transports to a board."""
    time.sleep(0.0005)


class OpenMemory(Generic[Content]):
    """Memory of a transport whose bytes the host can read and write directly.

    Parameters
    ----------
    memory : Window
        The addresses of the memory.
    content : Content
        Its bytes.
    """

    def __init__(self, memory: Window, content: Content) -> None:
        self.memory = memory
        self._bytes = content

    def read_memory(self, address: int, count: int) -> bytes:
        """Return bytes of the memory."""
        first = place_in(self.memory, address, count)
        return bytes(self._bytes[first : first + count])

    def write_memory(self, address: int, content: bytes) -> None:
        """Write bytes to the memory."""
        first = place_in(self.memory, address, len(content))
        self._bytes[first : first + len(content)] = content
