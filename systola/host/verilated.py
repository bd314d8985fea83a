"""Transport over a C++ program: registers and memory of an accelerator in Verilator."""

import contextlib
import json
import mmap
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from hdl.errors import UserError
from hdl.shell.shell_parameters import ShellParameters
from systola.host.transport import OpenMemory, Window, require_okay
from testbenches import harness as streams
from testbenches import simulators
from testbenches.harness import RESET_CYCLES, Harness

PROGRAM = streams.PROGRAM.with_name("axi_board.cpp")
"""Source of the program, for `Harness.compiled`."""

POLL = 2000
"""Cycles between two reads of the status; an exchange with the program takes as long as a few."""

STUCK = 200_000
"""Cycles of waiting without any transfer at the memory after which the accelerator is stuck."""

BURSTS = 8
"""Most bursts that wait at a port of the memory."""


class Verilated(OpenMemory[mmap.mmap]):
    """Registers and memory of an accelerator in Verilator; implements `Transport`.

    The program has no interpreter in its loop. It serves each AXI4 port with one beat per cycle,
    and answers bursts outside the memory with DECERR.

    Parameters
    ----------
    harness : Harness
        The compiled accelerator, with the program of `PROGRAM`.
    parameters : ShellParameters
        Dimensions of the accelerator.
    memory : Window
        Addresses of the memory; all bytes are 0 at the start.
    folder : Path
        Folder of the memory's file and of the program's settings.
    seed : int
        Seed of the initial state, and of pauses in half of all cycles at every channel; 0 for no
        pauses.
    latency : int
        Cycles from a burst to its first beat or its response.

    Members
    -------
    cycle : int
        Cycles at the last pause.
    moved : dict[str, int]
        Bytes that each port has transferred, at the last pause.
    watch, closed : Callable[[], None]
        Called at each pause, and after the end of the program.
    """

    def __init__(
        self,
        harness: Harness,
        parameters: ShellParameters,
        memory: Window,
        folder: Path,
        *,
        seed: int = 0,
        latency: int = 24,
    ) -> None:
        self.cycle = 0
        self.moved = dict.fromkeys((port.name for port in parameters.ports), 0)
        self.watch: Callable[[], None] = lambda: None
        self.closed: Callable[[], None] = lambda: None
        file = folder / "memory"
        with file.open("w+b") as content:
            content.truncate(memory.end - memory.first)
            super().__init__(memory, mmap.mmap(content.fileno(), memory.end - memory.first))
        inputs = [port.name for port in harness.ports if port.direction == "input"]
        settings = [
            f"settings {RESET_CYCLES} {latency} {BURSTS} {seed} {STUCK}",
            *(f"clear {name}" for name in inputs),
            f"memory {json.dumps(str(file.resolve()))} {memory.first}",
            "host s_axi_",
            *(
                f"{'writes' if port.writes else 'reads'} m_axi_{port.name}_ {port.name} "
                f"{parameters.data_bytes}"
                for port in parameters.ports
            ),
        ]
        (folder / "settings").write_text("\n".join([*settings, ""]))
        self._program = subprocess.Popen(
            [harness.program, "settings", *simulators.random_state(seed)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        """Return the transport."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the program."""
        self._program.kill()
        self._program.communicate()
        self._bytes.close()
        self.closed()

    def _call(self, *words: object) -> list[str]:
        """Send a command, and return the words of the answer."""
        assert self._program.stdin is not None and self._program.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(*words, file=self._program.stdin, flush=True)
        answer = self._program.stdout.readline().split()
        if not answer:
            assert self._program.stderr is not None
            raise UserError(self._program.stderr.read().strip() or "the simulation has ended")
        return answer

    def read_register(self, offset: int) -> int:
        """Return a register."""
        value, response = map(int, self._call("read", offset))
        require_okay("read", offset, response)
        return value

    def write_register(self, offset: int, value: int) -> None:
        """Write a register."""
        (response,) = map(int, self._call("write", offset, value))
        require_okay("write", offset, response)

    def pause(self) -> None:
        """Run some cycles."""
        cycle, *counts = self._call("wait", POLL)
        self.cycle = int(cycle)
        self.moved = {name: int(moved) for name, moved in (word.split("=") for word in counts)}
        self.watch()

    def fail(self, port: str, number: int, code: int) -> None:
        """Answer a burst of a port, counted from 1 for the next one, with a response's code."""
        self._call("fail", port, number, code)
