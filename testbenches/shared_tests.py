"""Tests that all units with streams share.

A testbench declares its bench and the random work of each test:

    stalls = stall_test(bench_for, lambda bench: random_rows(bench, 40))
    resets = reset_test(bench_for, lambda bench: random_rows(bench, 12), longest=40, times=12)
    slow_stream = slow_stream_test(bench_for, random_rows, streams=["weights"])

The bench's `run` compares every output with the golden model, and its receivers check that no
output is revoked or changed before its transfer. Every simulation starts from a random initial
state that depends on the seed (`testbenches.simulators.runtime_arguments`), so all of these tests
also show that no result depends on it.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import Any, Protocol, TypeVar

import cocotb
from cocotb import Param
from cocotb.regression import TestGenerator

from testbenches.bench import Bench
from testbenches.streams import PAUSES

PAIRS = tuple(product(PAUSES, PAUSES))
"""All pairs of stall patterns, of the inputs and of the outputs."""

SLOW = tuple(name for name in PAUSES if name != "none")
"""Stall patterns of a stream while all others run at full rate."""

W = TypeVar("W")
WorkT = TypeVar("WorkT", contravariant=True)


class ComparingBench(Protocol[WorkT]):
    """A bench to which the shared tests apply, such as `testbenches.unit_bench.UnitBench`."""

    @property
    def bench(self) -> Bench:
        """Clock, reset and streams."""
        ...

    def offer(self, work: WorkT, /) -> Any:
        """Queue work at the inputs."""
        ...

    async def run(self, work: WorkT, /) -> Any:
        """Reset, offer work, wait for all outputs, and compare them with the golden model."""
        ...


B = TypeVar("B", bound=ComparingBench[Any])
Connect = Callable[[Any, str, str, str], B]
"""Function from design, name of the test, and stall patterns of inputs and outputs, to a bench."""

Condition = Callable[[Any], Any]
"""Decorator by `testbenches.applicable.only_if`."""


def stall_test(
    connect: Connect[B],
    work: Callable[[B], Any],
    *,
    pairs: Sequence[tuple[str, str]] = PAIRS,
    runs: int | Callable[[B], int] = 1,
    condition: Condition | None = None,
    name: str = "stalls",
) -> TestGenerator:
    """Return a test for each pair of stall patterns.

    Parameters
    ----------
    connect : Callable
        Return a bench with stall patterns.
    work : Callable
        Return random work for a bench; defined in the testbench's own module.
    pairs : Sequence[tuple[str, str]]
        Stall patterns of inputs and outputs.
    runs : int | Callable
        Pieces of work per pair, or a function of the bench.
    condition : Callable, optional
        Runs to which the test applies.
    name : str
        Name of the test.
    """

    async def stalls(dut: Any, source: str, sink: str) -> None:
        """Run random work under a pair of stall patterns."""
        bench = connect(dut, f"{name} {source} {sink}", source, sink)
        for _ in range(runs(bench) if callable(runs) else runs):
            await bench.run(work(bench))

    stalls.__name__ = name
    named = [_named(pair) for pair in pairs]
    return _test(stalls, work, condition, (("source", "sink"), named))


def reset_test(
    connect: Connect[B],
    work: Callable[[B], Any],
    *,
    longest: int | Callable[[B], int],
    times: int | Callable[[B], int] = 1,
    rounds: int | Callable[[B], int] = 1,
    begun: Callable[[B], Any] | None = None,
    after: Callable[[B], Awaitable[None]] | None = None,
    pauses: tuple[str, str] = ("random", "bursty"),
    condition: Condition | None = None,
    name: str = "resets",
) -> TestGenerator:
    """Return a test that resets in the middle of work; later results do not depend on it.

    Parameters
    ----------
    connect, work, condition
        As for `stall_test`.
    longest : int | Callable
        Most cycles from the start of work to the next reset, or a function of the bench.
    times : int | Callable
        Number of resets in the middle of work before a comparison, or a function of the bench.
    rounds : int | Callable
        Number of comparisons, or a function of the bench.
    begun : Callable, optional
        Return the work before each reset, if it is of another kind.
    after : Callable, optional
        Check after each reset, before work is offered: such as that nothing is output. Another
        reset follows.
    pauses : tuple[str, str]
        Stall patterns of inputs and outputs.
    name : str
        Name of the test; it contains ``resets``, by which the four-state tests select it.
    """

    async def resets(dut: Any) -> None:
        """Reset at random times in the middle of work; then run work and compare all results."""
        bench = connect(dut, name, *pauses)
        for _ in range(rounds(bench) if callable(rounds) else rounds):
            for _ in range(times(bench) if callable(times) else times):
                await bench.bench.reset()
                if after:
                    await after(bench)
                    await bench.bench.reset()
                bench.offer((begun or work)(bench))
                most = longest(bench) if callable(longest) else longest
                await bench.bench.step(bench.bench.rng.randint(1, most))
            await bench.run(work(bench))

    resets.__name__ = name
    return _test(resets, work, condition)


def slow_stream_test(
    connect: Connect[B],
    work: Callable[[B], Any],
    *,
    streams: Sequence[str],
    patterns: Sequence[str] = SLOW,
    condition: Condition | None = None,
) -> TestGenerator:
    """Return tests in which one stream stalls, and all others run at full rate.

    Parameters
    ----------
    connect, work, condition
        As for `stall_test`.
    streams : Sequence[str]
        Names of the streams that stall, one at a time.
    patterns : Sequence[str]
        Stall patterns; with ``"filling"``, every queue upstream of an output becomes full.
    """

    async def slow_stream(dut: Any, slow: str, pattern: str) -> None:
        """Run random work while one stream stalls."""
        bench = connect(dut, f"slow_stream {slow} {pattern}", "none", "none")
        bench.bench.streams[slow].pauses = bench.bench.pauses(pattern)
        await bench.run(work(bench))

    options = ("slow", _named(streams)), ("pattern", _named(patterns))
    return _test(slow_stream, work, condition, *options)


def _named(values: Sequence[str]) -> list[Param]:
    """Return values that occur in the name of a test, which cocotb numbers if they are long."""
    return [Param(value, value) for value in values]


def _test(
    function: Any, work: Callable[..., Any], condition: Condition | None, *options: Any
) -> TestGenerator:
    """Return a test under its own name, in the module of its work."""
    name = function.__name__
    function.__qualname__, function.__module__ = name, work.__module__
    if condition:
        function = condition(function)
    if options:
        function = cocotb.parametrize(*options)(function)
    return cocotb.test(name=name)(function)
