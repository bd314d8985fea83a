"""What the tests of text generation by accelerators with the AXI shell share.

A host is built by a function of the prepared system, a transport, and parameters of the accelerator
instead of the system's.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hdl.errors import UserError
from hdl.shell.axi import Response
from systola.generation.shell import MEMORY
from systola.host.device import DeviceError
from systola.host.transport import Window
from systola.host.verilated import Verilated

HostOf = Callable[..., Any]


@contextmanager
def failing(board: Verilated, port: str, number: int, response: Response) -> Iterator[None]:
    """Answer a burst of a port with an error, which the host library reports."""
    board.fail(port, number, response.value)
    with pytest.raises(DeviceError, match=rf"{response.name} at address 0x\w+ of the port {port}"):
        yield


def require_same_digest(host_of: HostOf, system: Any, board: Verilated, other: Any) -> None:
    """Require that a host with other parameters is refused before it writes to memory."""
    with pytest.raises(UserError, match="digest of the accelerator must be 0x"):
        host_of(system, board, other)
    assert board.read_memory(MEMORY.first, 1 << 16) == bytes(1 << 16)


def require_large_memory(host_of: HostOf, system: Any, folder: Path) -> None:
    """Require that a memory of 4 KB is refused."""
    small = Window(MEMORY.first, MEMORY.first + 4096)
    with (
        Verilated(system.harness, system.p, small, folder) as transport,
        pytest.raises(UserError, match=r"the memory must have .* bytes .*, not 4,096"),
    ):
        host_of(system, transport)
