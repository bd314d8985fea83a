"""Common bench of the lanes that convert between number formats."""

from collections.abc import Callable
from functools import partial
from typing import Any

import cocotb
import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.llm.trace import Trace
from hdl.arith.float_format import BINARY32
from testbenches.arith.float_operands import corners, random_codes
from testbenches.bench import catalog_parameters
from testbenches.shared_tests import reset_test, stall_test
from testbenches.unit_bench import Fields, UnitBench

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


class LanesBench(UnitBench[Fields]):
    """The two streams of `NumberLanes`.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Stall patterns.
    model : Callable
        Function from the fields of slices, without `last`, to the results' values.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        *,
        model: Callable[..., Codes],
    ) -> None:
        p = catalog_parameters()
        super().__init__(
            dut,
            salt,
            source,
            sink,
            inputs={"slices": p.slice_layout},
            outputs={"results": p.result_layout},
            offered=lambda fields: {"slices": {**fields, "last": _last(fields)}},
            expected=lambda fields: {"results": {"values": model(**fields), "last": _last(fields)}},
        )

    async def run_at_full_rate(self, fields: Fields, *, latency: int, tensors: str) -> None:
        """Run slices without stalls, require the specified cycles, and record them."""
        cycles, count = await self.run(fields), len(_last(fields))
        self.bench.compare("cycles", np.array([count + latency]), np.array([cycles]))
        self.bench.record(cycles=cycles, ideal_cycles=count, tensors=tensors)


def _last(fields: Fields) -> Codes:
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
    connect = partial(LanesBench, model=model)

    @cocotb.test()
    async def real(dut: Any) -> None:
        """Convert SmolLM2's tensors at full rate; results are bit-identical."""
        bench = connect(dut, "real")
        fields, tensors = real_slices(bench.p.lanes)
        await bench.run_at_full_rate(fields, latency=latency, tensors=tensors)

    @cocotb.test()
    async def any_numbers(dut: Any) -> None:
        """Convert numbers of all magnitudes, special numbers, ties, and the limits of the range."""
        bench = connect(dut, "any_numbers")
        lanes = bench.p.lanes
        count = max(2000, 40_000 // lanes)
        await bench.run(random_slices(bench.bench.numpy_rng, count, lanes))

    def some(count: int) -> Callable[[LanesBench], Fields]:
        return lambda bench: random_slices(bench.bench.numpy_rng, count, bench.p.lanes)

    return (
        real,
        any_numbers,
        stall_test(connect, some(150)),
        reset_test(connect, some(60), longest=40, times=12),
    )
