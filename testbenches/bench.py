"""Common part of all testbenches: clock, reset, cycle count, drivers, comparison, facts.

One generator drives all parts: a cycle takes two timer events, whatever the number of streams.
Inputs change after the falling edge. Outputs are sampled just before the rising edge, when they are
stable, so that every simulator gives the same result.
"""

import atexit
import faulthandler
import json
import logging
import math
import os
import pickle
import random
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from testbenches.functional import StreamCoverage
from testbenches.half_cycles import pass_half_cycles
from testbenches.streams import (
    PATTERNS,
    Port,
    StreamSink,
    StreamSource,
    four_states,
    not_before_offered,
)

CONTEXT_VARIABLE = "SYSTOLA_CONTEXT"
PARAMETERS_FILE = "parameters.pickle"
"""File of a run's parameter object, in its directory."""
FACTS_FILE = "facts.json"
"""File of the facts that the tests of a run record, in its directory."""
BINS = "bins"
"""The fact that has the bins of functional coverage."""


@cache
def context() -> dict[str, Any]:
    """Return the settings of the run.

    They are those of `testbenches.runner`: top, preset, seed, directory, full, simulator, seconds.
    In a runner of cocotb, they are cocotb's seed, no long versions and no time limit.
    """
    if file := os.environ.get(CONTEXT_VARIABLE):
        return json.loads(Path(file).read_text())
    simulator = "icarus" if four_states() else "verilator"
    return {"full": False, "simulator": simulator, "seconds": math.inf}


@cache
def catalog_parameters() -> Any:
    """Return the parameter object that `testbenches.runner` gives to the simulation.

    Raises
    ------
    LookupError
        If another runner simulates.
    """
    if "directory" not in context():
        raise LookupError("the bench must be given parameters=, because this runner has none")
    return pickle.loads(Path(context()["directory"], PARAMETERS_FILE).read_bytes())


TIMEOUT = 2000
"""Default number of cycles without a transfer on any stream after which a design is stuck."""

CHECK_INTERVAL = 64
"""Cycles between two checks of the wall-clock time."""

STARTED = time.monotonic()
"""Time at which the simulator imported this module."""

SLACK = 1.1
"""Ratio of a run's time limit after which a simulator that passes no cycles is terminated."""


@cache
def _end_in_time() -> None:
    """Terminate the process if the simulator or the testbench never reaches the next cycle."""
    left = STARTED + SLACK * context()["seconds"] - time.monotonic()
    if left < math.inf:
        faulthandler.dump_traceback_later(max(left, 1), exit=True)


class Stuck(AssertionError):
    """The design makes no progress or does not finish; the message contains the cycle."""


class Mismatch(AssertionError):
    """The design and the golden model differ; the message contains the first difference."""


class Bench:
    """Clock, reset and comparison for one design under test.

    It runs in any runner of cocotb.

    Parameters
    ----------
    dut : Any
        The design under test, with the ports `clk` and `rst`.
    salt : str
        Name of the test, combined with the seed so that each test has its own random numbers.
    seed : int, optional
        Seed of the random numbers. If absent, it is that of `testbenches.runner`; in another
        runner, cocotb's, which differs from test to test.
    parameters : Any
        Parameter object of the design; that of `testbenches.runner` if absent.
    timeout : int
        Cycles without a transfer on any stream after which the design is stuck.

    Members
    -------
    cycle : int
        Number of rising edges since the bench was created.
    rng : random.Random
        Generator seeded from the run's seed and the salt.
    streams : dict[str, StreamSource | StreamSink]
        Drivers and receivers of streams by name.
    """

    def __init__(
        self,
        dut: Any,
        salt: str = "",
        *,
        seed: int | None = None,
        parameters: Any = None,
        timeout: int = TIMEOUT,
    ) -> None:
        self.dut = dut
        self.timeout = timeout
        self.context = context()
        if seed is None:
            seed = self.context["seed"] if "seed" in self.context else cocotb.RANDOM_SEED
        self.rng = random.Random(f"{seed} {salt}")
        self._parameters = parameters
        self.cycle = 0
        self.parts: list[Any] = []
        self.streams: dict[str, StreamSource | StreamSink] = {}
        self._clock, self._reset = Port(dut.clk), Port(dut.rst)
        self._counted = 0
        # Transfers so far, the cycle until which there must be another, and that of the next check.
        self._moved, self._due, self._check_at = 0, timeout, CHECK_INTERVAL
        self._expect_transfers()
        _end_in_time()

    @property
    def parameters(self) -> Any:
        """Parameter object of the design."""
        return catalog_parameters() if self._parameters is None else self._parameters

    @property
    def numpy_rng(self) -> np.random.Generator:
        """A numpy generator seeded from `rng`."""
        return np.random.default_rng(self.rng.getrandbits(64))

    def pauses(self, pattern: str) -> Iterator[bool]:
        """Return the pauses of a named pattern."""
        return PATTERNS[pattern](random.Random(self.rng.getrandbits(64)))

    def source(self, name: str, pattern: str = "none", *, layout: Any = None) -> StreamSource:
        """Attach a driver to an input stream; the layout is as for `sink`."""
        source = self.streams[name] = self.add(StreamSource(self.dut, name, self.pauses(pattern)))
        self._cover(source, layout)
        return source

    def sink(self, name: str, pattern: str = "none", *, layout: Any = None) -> StreamSink:
        """Attach a receiver, which checks the stream's rules, to an output stream.

        With the pattern `adversarial`, `ready` also waits for `valid`. The layout of the payload
        gives the bins of functional coverage.
        """
        sink = StreamSink(self.dut, name, self.pauses(pattern), self)
        self.streams[name] = self.add(sink)
        if pattern == "adversarial":
            sink.pauses = not_before_offered(sink, sink.pauses)
        self._cover(sink, layout)
        return sink

    def _cover(self, driver: StreamSource | StreamSink, layout: Any) -> None:
        """Count the bins of a stream if the run measures coverage."""
        if self.context.get("coverage"):
            bins = _facts().setdefault(BINS, {})
            self.add(StreamCoverage(driver.stream, layout, bins))

    def add(self, part: Any) -> Any:
        """Attach an object with the methods `clear`, `drive` and `sample`."""
        self.parts.append(part)
        return part

    async def step(self, cycles: int = 1) -> None:
        """Run a number of cycles.

        Raises
        ------
        Stuck
            If no transfer occurs for `timeout` cycles, or the run's time limit is exceeded.
        """
        end = self.cycle + cycles
        await pass_half_cycles(self._cycles(lambda: self.cycle >= end))

    async def wait(self, cycle: int) -> None:
        """Run until a given cycle; no transfer is required in between."""
        self._expect_transfers(cycle)
        await self.step(cycle - self.cycle)

    async def reset(self, cycles: int = 2) -> None:
        """Assert reset for some cycles; every driver discards its work."""
        self._reset.value = 1
        for part in self.parts:
            part.clear()
        await pass_half_cycles(self._held(cycles))
        self._reset.value = 0
        self._expect_transfers()

    async def run(self, *, until: Callable[[], bool]) -> int:
        """Run until a condition holds; return the number of cycles."""
        start = self.cycle
        self._expect_transfers()
        await pass_half_cycles(self._cycles(until))
        return self.cycle - start

    def _cycles(self, until: Callable[[], bool]) -> Iterator[None]:
        """Drive and sample all parts until a condition holds between two cycles."""
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
            if self.cycle >= self._check_at:
                self._check()

    def _held(self, cycles: int) -> Iterator[None]:
        """Run cycles without driving any part."""
        for _ in range(cycles):
            self._clock.value = 0
            yield
            self._clock.value = 1
            yield
            self.cycle += 1

    def _check(self) -> None:
        """Check that a transfer occurred in time, and that the run is within its time limit."""
        limit = self.context["seconds"]
        if time.monotonic() > STARTED + limit:
            raise Stuck(f"cycle {self.cycle}: no end after {limit:g} s")
        if self.cycle >= self._due:
            if self._transfers() == self._moved:
                raise Stuck(f"cycle {self.cycle}: no transfer for {self.timeout} cycles")
            self._expect_transfers()
        self._check_at = min(self._due, self.cycle + CHECK_INTERVAL)

    def _expect_transfers(self, start: int = 0) -> None:
        """Count the transfers; the next is due `timeout` cycles from now or from `start`."""
        self._moved = self._transfers()
        self._due = max(start, self.cycle) + self.timeout
        self._check_at = min(self._due, self.cycle + CHECK_INTERVAL)

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
        """Require equal values, and count them.

        Parameters
        ----------
        what : str
            Name of the values.
        expected, got : numpy.ndarray
            Arrays of one shape; the first axis is time.
        cycles : array, optional
            Cycle of each item of the first axis.
        show : Callable[[int], str]
            Format a value for the message.

        Raises
        ------
        Mismatch
            At the first difference, with its cycle, its index and both values.
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
        """Add steady-state work to the run's figures; in another runner, write it to the log.

        Parameters
        ----------
        cycles : int
            Cycles that the design took.
        ideal_cycles : int
            Cycles by the unit's throughput bound or the paper's formula.
        **facts : Any
            Other values for ``sim.json``, stored under their names.
        """
        _count(cycles=cycles, ideal_cycles=ideal_cycles)
        _facts().update(_plain(facts))
        if "directory" not in self.context:
            figures = {"cycles": cycles, "ideal cycles": ideal_cycles} | facts
            log = logging.getLogger("cocotb.systola")
            log.info(", ".join(f"{name} {value}" for name, value in figures.items()))


def record_fact(name: str, key: str, value: Any) -> None:
    """Add an item to a fact that is a dictionary."""
    _facts().setdefault(name, {}).update(_plain({key: value}))


def root_mean_square(errors: NDArray[np.float64]) -> float:
    """Return the root mean square of errors, rounded to four digits."""
    return float(f"{np.sqrt(np.mean(np.square(errors))):.4g}")


@cache
def _facts() -> dict[str, Any]:
    """Return the facts recorded by all tests of this run.

    They are written when the simulator ends, if `testbenches.runner` has started it.
    """
    facts: dict[str, Any] = {}
    if directory := context().get("directory"):
        file = Path(directory, FACTS_FILE)
        atexit.register(lambda: file.write_text(json.dumps(facts, indent=2)))
    return facts


def _count(**counts: int) -> None:
    facts = _facts()
    facts.update({name: facts.get(name, 0) + int(count) for name, count in counts.items()})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as JSON stores them, so that an unsupported type fails here."""
    return json.loads(json.dumps(values))
