"""Transport over ``/dev/mem``: registers and reserved memory by physical address."""

import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from hdl.errors import UserError
from systola.host.transport import OpenMemory, Window, sleep_between_reads

REGISTER_BYTES = 4096
"""Size of a register block."""


class DevMem(OpenMemory[mmap.mmap]):
    """Registers and memory of an accelerator on a Linux system; implements `Transport`.

    The system must not use the memory itself: reserve it, such as by a `reserved-memory` node of
    the device tree. The file is opened so that accesses are not cached. A register is one access of
    32 bits. An access that the bus refuses ends the process (SIGBUS).

    Parameters
    ----------
    registers : int
        Physical address of the register block, a multiple of the system's page size.
    memory : Window
        Physical addresses of the reserved memory, multiples of the page size.
    file : Path
        The file of the physical address space.

    Raises
    ------
    UserError
        If an address is not aligned, or the file cannot be mapped.
    """

    def __init__(self, registers: int, memory: Window, file: Path = Path("/dev/mem")) -> None:
        for address in (registers, memory.first, memory.end):
            if address % mmap.PAGESIZE:
                raise UserError(
                    f"physical addresses must be multiples of {mmap.PAGESIZE}, not {address:#x}"
                )
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_SYNC)
            try:
                self._block = mmap.mmap(descriptor, REGISTER_BYTES, offset=registers)
                size = memory.end - memory.first
                super().__init__(memory, mmap.mmap(descriptor, size, offset=memory.first))
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{file} must be readable and writable at {registers:#x} and "
                f"{memory.first:#x}, not: {error}"
            ) from error
        # An element is aligned, so that it is read or written by one access of 32 bits.
        self._words = memoryview(self._block).cast("I")

    def __enter__(self) -> Self:
        """Return the transport."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the mapping."""
        self._words.release()
        self._block.close()
        self._bytes.close()

    def read_register(self, offset: int) -> int:
        """Return a register."""
        return self._words[offset // 4]

    def write_register(self, offset: int, value: int) -> None:
        """Write a register."""
        self._words[offset // 4] = value

    def pause(self) -> None:
        """Sleep for a fraction of a millisecond."""
        sleep_between_reads()
