"""The frame of every testbench: clock, reset, cycle count, drivers, comparison, facts.

One generator moves everything: a cycle is two timer events, whatever the number of streams. Inputs
change after the falling edge; outputs are read just before the rising edge, when they have settled,
so that every simulator sees the same.
"""

import atexit
import faulthandler
import json
import os
import pickle
import random
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbenches.half_cycles import pass_half_cycles
from testbenches.streams import PAUSES, Port, StreamSink, StreamSource, not_before_offered

CONTEXT_VARIABLE = "SYSTOLA_CONTEXT"
PARAMETERS_FILE = "parameters.pickle"
"""The parameter object of a run, in its directory."""
FACTS_FILE = "facts.json"
"""What the tests of a run found out, in its directory."""


@cache
def context() -> dict[str, Any]:
    """Return what the runner tells: top, preset, seed, directory, full, simulator."""
    return json.loads(Path(os.environ[CONTEXT_VARIABLE]).read_text())


@cache
def catalog_parameters() -> Any:
    """Return the parameter object of the unit under test."""
    return pickle.loads(Path(context()["directory"], PARAMETERS_FILE).read_bytes())


PATIENCE = 2000
"""Cycles without any transfer on any stream after which most designs count as stuck."""

LOOK = 64
"""Cycles from one look at the clock on the wall to the next."""

STARTED = time.monotonic()
"""When the simulator imported this."""

SLACK = 1.1
"""Part of a run's time after which a simulator is ended that passes no cycles any more."""


@cache
def _end_in_time() -> None:
    """End a loop in the simulator, or in a testbench between two cycles, from outside."""
    left = STARTED + SLACK * context()["seconds"] - time.monotonic()
    faulthandler.dump_traceback_later(max(left, 1), exit=True)


class Stuck(AssertionError):
    """The design does not get on, or to no end; the message shows the cycle."""


class Mismatch(AssertionError):
    """The design and the golden model differ; the message shows the first difference."""


class Bench:
    """Clock, reset and comparison for one design under test.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test, mixed into the seed so that each test draws its own numbers.
    patience : int
        Cycles without any transfer on any stream that this design never needs.

    Members
    -------
    cycle : int
        Rising edges since the bench was made.
    rng : random.Random
        Seeded from the run's seed and the salt.
    """

    def __init__(self, dut: Any, salt: str, *, patience: int = PATIENCE) -> None:
        self.dut = dut
        self.patience = patience
        self.told = context()
        self.rng = random.Random(f"{self.told['seed']} {salt}")
        self.cycle = 0
        self.parts: list[Any] = []
        self._clock, self._reset = Port(dut.clk), Port(dut.rst)
        self._counted = 0
        self._expect_transfers()
        _end_in_time()

    @property
    def numpy_rng(self) -> np.random.Generator:
        """A numpy generator drawn from the same seed."""
        return np.random.default_rng(self.rng.getrandbits(64))

    def pauses(self, pattern: str) -> Iterator[bool]:
        """Return pauses by the pattern's name."""
        return PAUSES[pattern](random.Random(self.rng.getrandbits(64)))

    def source(self, name: str, pattern: str = "none") -> StreamSource:
        """Attach a driver to an input stream."""
        return self.add(StreamSource(self.dut, name, self.pauses(pattern)))

    def sink(self, name: str, pattern: str = "none") -> StreamSink:
        """Attach a receiver, which checks the stream's rules, to an output stream.

        An adversarial one is ready for nothing that is not yet there.
        """
        sink = self.add(StreamSink(self.dut, name, self.pauses(pattern), self))
        if pattern == "adversarial":
            sink.pauses = not_before_offered(sink, sink.pauses)
        return sink

    def add(self, part: Any) -> Any:
        """Attach anything with `clear`, `drive` and `sample`."""
        self.parts.append(part)
        return part

    async def step(self, cycles: int = 1) -> None:
        """Pass cycles.

        Raises
        ------
        Stuck
            If nothing has moved for `patience` cycles, or the run's time is over.
        """
        end = self.cycle + cycles
        await pass_half_cycles(self._cycles(lambda: self.cycle >= end))

    async def wait(self, cycle: int) -> None:
        """Pass cycles until a given one is reached; nothing needs to move in them."""
        self._expect_transfers(cycle)
        await self.step(cycle - self.cycle)

    async def reset(self, cycles: int = 2) -> None:
        """Hold reset for some cycles; every driver forgets its work."""
        self._reset.value = 1
        for part in self.parts:
            part.clear()
        await pass_half_cycles(self._held(cycles))
        self._reset.value = 0
        self._expect_transfers()

    async def run(self, *, until: Callable[[], bool]) -> int:
        """Pass cycles until a condition holds; return how many."""
        start = self.cycle
        self._expect_transfers()
        await pass_half_cycles(self._cycles(until))
        return self.cycle - start

    def _cycles(self, until: Callable[[], bool]) -> Iterator[None]:
        """Move all parts until a condition holds between two cycles."""
        drives = [part.drive for part in self.parts]
        samples = [part.sample for part in self.parts]
        while not until():
            self._clock.value = 0
            for drive in drives:
                drive()
            yield
            for sample in samples:
                sample()
            self._clock.value = 1
            yield
            self.cycle += 1
            if self.cycle >= self._look_at:
                self._look()

    def _held(self, cycles: int) -> Iterator[None]:
        """Pass cycles in which no part moves."""
        for _ in range(cycles):
            self._clock.value = 0
            yield
            self._clock.value = 1
            yield
            self.cycle += 1

    def _look(self) -> None:
        """Require transfers in time, and an end in time."""
        limit = self.told["seconds"]
        if time.monotonic() > STARTED + limit:
            raise Stuck(f"cycle {self.cycle}: no end after {limit:g} s")
        if self.cycle >= self._due:
            if self._transfers() == self._moved:
                raise Stuck(f"cycle {self.cycle}: no transfer for {self.patience} cycles")
            self._expect_transfers()
        self._look_at = min(self._due, self.cycle + LOOK)

    def _expect_transfers(self, start: int = 0) -> None:
        """Count those until now; the next is due `patience` cycles from now or from `start`."""
        self._moved = self._transfers()
        self._due = max(start, self.cycle) + self.patience
        self._look_at = min(self._due, self.cycle + LOOK)

    def _transfers(self) -> int:
        return sum(
            part.taken if isinstance(part, StreamSource) else len(part.received)
            for part in self.parts
            if isinstance(part, StreamSource | StreamSink)
        )

    def compare(
        self,
        what: str,
        expected: NDArray[Any],
        got: NDArray[Any],
        *,
        cycles: NDArray[Any] | list[int] | None = None,
        show: Callable[[int], str] = str,
    ) -> None:
        """Require equality, and count the values.

        Parameters
        ----------
        what : str
            What the values are.
        expected, got : numpy.ndarray
            Arrays of one shape; the first axis is time.
        cycles : array, optional
            For each item of the first axis, the cycle in which it was seen.
        show : Callable[[int], str]
            Writes a value in its own format.

        Raises
        ------
        Mismatch
            At the first difference, with its cycle, index and both values.
        """
        if expected.shape != got.shape:
            raise Mismatch(f"{what}: expected {expected.shape} values, got {got.shape}")
        differs = expected != got
        wrong = int(np.count_nonzero(differs))
        passed, self._counted = self.cycle - self._counted, self.cycle
        _count(values_checked=expected.size, mismatches=wrong, simulated_cycles=passed)
        if wrong:
            index = tuple(int(axis[0]) for axis in np.nonzero(differs))
            when = f"cycle {cycles[index[0]]}, " if cycles is not None else ""
            raise Mismatch(
                f"{what}: {when}index {list(index)}: expected {show(expected[index])}, "
                f"got {show(got[index])} ({wrong} of {expected.size} values differ)"
            )

    def record(self, *, cycles: int, ideal_cycles: int, **facts: Any) -> None:
        """Add steady-state work to the run's figures.

        Parameters
        ----------
        cycles : int
            What the design needed.
        ideal_cycles : int
            What the unit's throughput bound or the paper's formula allows.
        **facts : Any
            Anything else that belongs in ``sim.json``; numbers of one name are kept as given.
        """
        _count(cycles=cycles, ideal_cycles=ideal_cycles)
        _facts().update(_plain(facts))


def record_fact(name: str, key: str, value: Any) -> None:
    """Add a key and its value to a fact that is a dictionary."""
    _facts().setdefault(name, {}).update(_plain({key: value}))


def root_mean_square(errors: NDArray[np.float64]) -> float:
    """Return the size of errors against float64, rounded for a table."""
    return float(f"{np.sqrt(np.mean(np.square(errors))):.4g}")


@cache
def _facts() -> dict[str, Any]:
    """Return what all tests of this run have found out; it is written when the simulator ends."""
    facts: dict[str, Any] = {}
    file = Path(context()["directory"], FACTS_FILE)
    atexit.register(lambda: file.write_text(json.dumps(facts, indent=2)))
    return facts


def _count(**counts: int) -> None:
    facts = _facts()
    facts.update({name: facts.get(name, 0) + int(count) for name, count in counts.items()})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as a JSON file will hold them, so that one that it cannot hold fails here."""
    return json.loads(json.dumps(values))
