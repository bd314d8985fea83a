"""Transport in a cocotb simulation: registers at an AXI4-Lite port, memory of a testbench.

The host library blocks; a simulation awaits. `run_host` runs a function that uses the library in a
thread of its own, and the simulation advances while that thread waits for an access.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from systola.host.transport import OpenMemory, Window, require_okay

T = TypeVar("T")

POLL = 20
"""Cycles between two reads of the status."""


class Simulated(Protocol):
    """A testbench with the registers and the memory of an accelerator."""

    async def write_offset(self, offset: int, value: int) -> int:
        """Write a register; return the response."""
        ...

    async def read_offset(self, offset: int) -> tuple[int, int]:
        """Return a register, and the response."""
        ...

    async def pass_cycles(self, cycles: int) -> None:
        """Run a number of cycles."""
        ...


class Simulation(OpenMemory[bytearray]):
    """Registers and memory of a simulated accelerator; implements `Transport`.

    Parameters
    ----------
    bench : Simulated
        The testbench.
    memory : Window
        Addresses of the content.
    content : bytearray
        The testbench's memory.
    """

    def __init__(self, bench: Simulated, memory: Window, content: bytearray) -> None:
        # Only a simulator has this package's library.
        from cocotb.task import resume

        super().__init__(memory, content)
        self._read = resume(bench.read_offset)
        self._write = resume(bench.write_offset)
        self._pass = resume(bench.pass_cycles)

    def read_register(self, offset: int) -> int:
        """Return a register."""
        value, response = self._read(offset)
        require_okay("read", offset, response)
        return value

    def write_register(self, offset: int, value: int) -> None:
        """Write a register."""
        require_okay("write", offset, self._write(offset, value))

    def pause(self) -> None:
        """Run some cycles."""
        self._pass(POLL)


def run_host(work: Callable[[], T]) -> Awaitable[T]:
    """Return an awaitable that runs a function which uses the host library."""
    from cocotb.task import bridge

    return bridge(work)()
