"""The bench of lanes between number formats: a slice in, a slice out."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm import open_trace
from golden.llm.trace import Trace
from hdl.arith.float_format import BINARY32
from testbenches.arith.float_operands import corners, random_codes
from testbenches.bench import catalog_parameters
from testbenches.stream_bench import Fields, StreamBench

LAYERS = (0, 14, 29)
TOKENS = 640
SHOWN = 4
"""Tokens of each layer that a simulation takes."""

VECTOR = 5
"""Slices of a vector: how many does not matter to lanes."""

Codes = NDArray[np.int64]


def trace() -> Trace:
    """Return the captured tensors."""
    return open_trace(text="prose", tokens=TOKENS, layers=LAYERS)


def singles(numbers: Any) -> Codes:
    """Return the codes of numbers in binary32."""
    return np.asarray(numbers, np.float32).view(np.uint32).astype(np.int64)


def any_singles(rng: np.random.Generator, count: int) -> Codes:
    """Return codes of binary32 of all magnitudes, special ones among them."""
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
        From the fields of slices, without `last`, to the results' values.
    source, sink : str
        Pause patterns.
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
        """Run slices without a pause, require the cycles of the contract, and record them."""
        cycles, count = await self.run_slices(fields), len(self._last(fields))
        self.bench.compare("cycles", np.array([count + latency]), np.array([cycles]))
        self.bench.record(cycles=cycles, ideal_cycles=count, tensors=tensors)

    async def reset_within(self, fields: Fields) -> None:
        """Reset in the middle of work, again and again; then run all of it."""
        await self.disturb({**fields, "last": self._last(fields)}, times=12, longest=40)
        await self.run_slices(fields)

    def _last(self, fields: Fields) -> Codes:
        """Return which slices are a vector's last."""
        count = len(next(iter(fields.values())))
        return (np.arange(count) % VECTOR == VECTOR - 1).astype(np.int64)
