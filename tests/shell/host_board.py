"""A simulated accelerator with the AXI shell, for tests of the host library."""

from collections.abc import Callable
from typing import Any

from golden.shell.shell_jobs import Region
from systola.host.simulation import Simulation, run_host
from systola.host.transport import Window
from testbenches.shell.shell_bench import ShellBench


class HostBoard:
    """The accelerator, and a memory of random content.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    memory : Window
        Addresses of the memory.

    Members
    -------
    one : ShellBench
        The bench.
    p : ShellParameters
        Dimensions of the accelerator.
    content : bytearray
        Content of the memory.
    transport : Simulation
        The transport of the host library.
    """

    def __init__(self, dut: Any, salt: str, memory: Window) -> None:
        self.one = ShellBench(dut, salt, "random", "bursty")
        self.p: Any = self.one.p
        self.one.memory.place({"memory": Region(memory.first, memory.end)})
        self.content = self.one.memory.images["memory"]
        self.content[:] = self.one.rng.randbytes(len(self.content))
        self.transport = Simulation(self.one, memory, self.content)

    async def use(self, work: Callable[[], None]) -> None:
        """Reset, then run a function that uses the host library; check stray writes."""
        await self.one.bench.reset()
        await run_host(work)
        assert not self.one.memory.strays
