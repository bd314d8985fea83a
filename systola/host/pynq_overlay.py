"""Transport over a PYNQ overlay: the accelerator's registers, and an allocated buffer.

This transport has not run on a board. It uses PYNQ's documented interface: `Overlay` and its
`ip_dict`, `MMIO`, and `allocate`.
"""

from pathlib import Path
from typing import Any

import numpy as np

from hdl.errors import UserError, unknown
from systola.host.transport import Window, place_in, sleep_between_reads


class PynqOverlay:
    """Registers and memory of an accelerator in an overlay; implements `Transport`.

    PYNQ is imported when an object is built, because it exists on boards only.

    Parameters
    ----------
    bitfile : Path
        The overlay's bit file, which is loaded; its ``.hwh`` file is next to it.
    name : str
        Name of the accelerator in the block design.
    memory_bytes : int
        Bytes to allocate.

    Raises
    ------
    UserError
        If PYNQ is not installed, or the overlay has no accelerator of this name.
    """

    def __init__(self, bitfile: Path, name: str, memory_bytes: int) -> None:
        try:
            import pynq  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise UserError("PYNQ must be installed for an overlay, not absent") from error
        overlay = pynq.Overlay(str(bitfile))
        if name not in overlay.ip_dict:
            raise UserError(unknown("the accelerator of an overlay", name, overlay.ip_dict))
        found = overlay.ip_dict[name]
        # Without a reference, the overlay and its buffer could be released.
        self._overlay = overlay
        self._registers = pynq.MMIO(found["phys_addr"], found["addr_range"])
        self._buffer: Any = pynq.allocate(shape=(memory_bytes,), dtype=np.uint8)
        first = int(self._buffer.device_address)
        self.memory = Window(first, first + memory_bytes)

    def read_register(self, offset: int) -> int:
        """Return a register."""
        return int(self._registers.read(offset))

    def write_register(self, offset: int, value: int) -> None:
        """Write a register."""
        self._registers.write(offset, value)

    def read_memory(self, address: int, count: int) -> bytes:
        """Return bytes of the buffer as the accelerator has written them."""
        first = place_in(self.memory, address, count)
        self._buffer.invalidate()
        return bytes(self._buffer[first : first + count])

    def write_memory(self, address: int, content: bytes) -> None:
        """Write bytes to the buffer, so that the accelerator reads them."""
        first = place_in(self.memory, address, len(content))
        self._buffer[first : first + len(content)] = np.frombuffer(content, np.uint8)
        self._buffer.flush()

    def pause(self) -> None:
        """Sleep for a fraction of a millisecond."""
        sleep_between_reads()
