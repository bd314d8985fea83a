"""Common bench of the lanes that convert between number formats."""

from collections.abc import Callable
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.llm.trace import Trace
from hdl.arith.float_format import BINARY32
from testbenches.arith.float_operands import corners, random_codes
from testbenches.bench import catalog_parameters
from testbenches.stream_bench import Fields, StreamBench
from testbenches.streams import PAUSES

LAYERS = (0, 14, 29)
TOKENS = 640
SHOWN = 4
"""Tokens per layer in a simulation."""

VECTOR = 5
"""Slices per vector; lanes do not depend on it."""

Codes = NDArray[np.int64]


def trace() -> Trace:
    """Return the captured tensors."""
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def prepare(p: Any) -> None:
    """Capture the tensors before the simulator starts."""
    trace()


def singles(numbers: Any) -> Codes:
    """Return the binary32 codes of numbers."""
    return np.asarray(numbers, np.float32).view(np.uint32).astype(np.int64)


def any_singles(rng: np.random.Generator, count: int) -> Codes:
    """Return binary32 codes of all magnitudes, including special numbers."""
    drawn = random_codes(BINARY32, count, rng)
    special = rng.choice(corners(BINARY32), count)
    return np.where(rng.integers(0, 2, count) == 1, special, drawn).astype(np.int64)


class LanesBench(StreamBench):
    """The two streams of `NumberLanes`.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    model : Callable
        Function from the fields of slices, without `last`, to the results' values.
    source, sink : str
        Stall patterns.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        model: Callable[..., Codes],
        *,
        source: str = "none",
        sink: str = "none",
    ) -> None:
        self.p = p = catalog_parameters()
        self.model = model
        super().__init__(
            dut,
            salt,
            source=("slices", p.slice_layout),
            sink=("results", p.result_layout),
            pauses=(source, sink),
        )

    async def run_slices(self, fields: Fields) -> int:
        """Run slices and compare every number; return the cycles."""
        last = self._last(fields)
        cycles = await self.run({**fields, "last": last})
        self.check({"values": self.model(**fields), "last": last})
        return cycles

    async def run_at_full_rate(self, fields: Fields, *, latency: int, tensors: str) -> None:
        """Run slices without stalls, require the specified cycles, and record them."""
        cycles, count = await self.run_slices(fields), len(self._last(fields))
        self.bench.compare("cycles", np.array([count + latency]), np.array([cycles]))
        self.bench.record(cycles=cycles, ideal_cycles=count, tensors=tensors)

    async def reset_within(self, fields: Fields) -> None:
        """Reset repeatedly during operation; then run all slices."""
        await self.disturb({**fields, "last": self._last(fields)}, times=12, longest=40)
        await self.run_slices(fields)

    def _last(self, fields: Fields) -> Codes:
        """Return a mask of the last slices of vectors."""
        count = len(next(iter(fields.values())))
        return (np.arange(count) % VECTOR == VECTOR - 1).astype(np.int64)


def lanes_tests(
    model: Callable[..., Codes],
    real_slices: Callable[[int], tuple[Fields, str]],
    random_slices: Callable[[np.random.Generator, int, int], Fields],
    *,
    latency: int,
) -> tuple[Any, Any, Any, Any]:
    """Return the tests of lanes: real tensors, any numbers, stalls, resets.

    Parameters
    ----------
    model : Callable
        As in `LanesBench`.
    real_slices : Callable
        Function from the number of lanes to slices of real tensors and their description.
    random_slices : Callable
        Function from a generator, a number of slices and of lanes to random slices.
    latency : int
        Cycles from a slice to its results.
    """

    @cocotb.test()
    async def real(dut: Any) -> None:
        """Convert SmolLM2's tensors at full rate; results are bit-identical."""
        bench = LanesBench(dut, "real", model)
        fields, tensors = real_slices(bench.p.lanes)
        await bench.run_at_full_rate(fields, latency=latency, tensors=tensors)

    @cocotb.test()
    async def any_numbers(dut: Any) -> None:
        """Convert numbers of all magnitudes, special numbers, ties, and the limits of the range."""
        bench = LanesBench(dut, "any_numbers", model)
        lanes = bench.p.lanes
        count = max(2000, 40_000 // lanes)
        await bench.run_slices(random_slices(bench.bench.numpy_rng, count, lanes))

    @cocotb.test()
    @cocotb.parametrize(source=list(PAUSES), sink=list(PAUSES))
    async def stalls(dut: Any, source: str, sink: str) -> None:
        """Convert random numbers under every pair of stall patterns."""
        bench = LanesBench(dut, f"stalls {source} {sink}", model, source=source, sink=sink)
        await bench.run_slices(random_slices(bench.bench.numpy_rng, 150, bench.p.lanes))

    @cocotb.test()
    async def resets(dut: Any) -> None:
        """Reset during operation; results after the reset do not depend on earlier data."""
        bench = LanesBench(dut, "resets", model, source="random", sink="bursty")
        await bench.reset_within(random_slices(bench.bench.numpy_rng, 60, bench.p.lanes))

    return real, any_numbers, stalls, resets
