"""What text generation with all accelerators with the AXI shell has in common."""

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from golden.llm.language_model import LanguageModel
from hdl.catalog import entry_named
from hdl.errors import UserError
from systola.generation.system import Settings, System
from systola.host.transport import Window
from systola.host.verilated import PROGRAM, Verilated
from testbenches.harness import Harness

T = TypeVar("T")

MEMORY = Window(0x4000_0000, 0x1_0000_0000)
"""Addresses of the memory: 3 GB, of which the file holds what is written."""


class ShellSystem(System):
    """A system that the host library drives by AXI only; a base next to that of the accelerator.

    Members
    -------
    transport : Verilated | None
        Registers and memory, after `begin`.
    """

    bare: str
    """Name of the accelerator's unit without the shell."""

    def __init__(
        self, model: LanguageModel, parameters: Any, settings: Settings, folder: Path
    ) -> None:
        super().__init__(model, parameters, settings, folder)
        self.p: Any
        self._open: ExitStack
        for option, given in (("WAVES", settings.waves), ("MEMORY", settings.memory)):
            if given:
                raise UserError(f"{option} is not for {self.top}; use TOP={self.bare}")
        least = (MEMORY.end - 1).bit_length()
        if self.p.axi_address_bits < least:
            raise UserError(
                f"axi_address_bits must be at least {least} for text generation, not "
                f"{self.p.axi_address_bits}"
            )
        self.transport: Verilated | None = None

    def compile(self, report: Callable[[str], None]) -> None:
        """Compile the Verilog with the program of the transport, or take the cached program."""
        report(f"compiling {self.name}'s Verilog; the first time takes minutes")
        self.harness = Harness.compiled(entry_named(self.top), self.p, source=PROGRAM)

    def idle_speed(self, cycles: int) -> float:
        """Return the speed of the simulation in cycles/s without a job."""
        with self._started() as transport:
            transport.pause()
            first, started = transport.cycle, time.monotonic()
            while transport.cycle < first + cycles:
                transport.pause()
            return (transport.cycle - first) / (time.monotonic() - started)

    def _started(self) -> Verilated:
        """Start the simulation; its end removes the memory."""
        folder = tempfile.TemporaryDirectory(dir=self.folder, prefix="memory-")
        transport = Verilated(self.harness, self.p, MEMORY, Path(folder.name))
        transport.closed = folder.cleanup
        return transport

    def transferred(
        self, run: Callable[[], T], watch: Callable[[dict[str, int], int, float], None]
    ) -> tuple[T, int, int]:
        """Run jobs of the host library; return their result, and the bytes read and written.

        Parameters
        ----------
        run
            Runs the jobs.
        watch
            Called at each pause with the bytes of each port, cycles, and seconds so far.
        """
        transport = self.transport
        assert transport is not None
        before, cycle, started = dict(transport.moved), transport.cycle, time.monotonic()

        def moved() -> dict[str, int]:
            return {name: transport.moved[name] - before[name] for name in before}

        transport.watch = lambda: watch(
            moved(), transport.cycle - cycle, time.monotonic() - started
        )
        result = run()
        # The bytes of the last cycles are known after a pause.
        transport.watch = lambda: None
        transport.pause()
        written = sum(moved()[own.name] for own in self.p.ports if own.writes)
        return result, sum(moved().values()) - written, written

    def connected(self) -> Verilated:
        """Start the simulation of this run and return it; the run's end ends it."""
        self.transport = self._open.enter_context(self._started())
        return self.transport
