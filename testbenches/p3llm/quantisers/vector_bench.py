"""Common bench of units that process vectors in slices."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbenches.bench import catalog_parameters
from testbenches.p3llm.quantisers.real_vectors import random_vectors
from testbenches.slices import full_rate_cycles
from testbenches.unit_bench import Fields, UnitBench

Codes = NDArray[np.int64]
Vectors = Codes | list[Codes]
"""Vectors of elements, whose lengths may differ."""

MANY_SLICES = 64
"""Slices per vector above which fewer vectors suffice."""


class VectorBench(UnitBench[Vectors]):
    """A quantiser's two streams.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : str
        Stall patterns.
    model : Callable
        Function from vectors, shape (count, elements), to the fields of as many results: those with
        the elements' axis are split into slices, those without it are repeated in every slice.
    latency, read_latency : int
        Cycles to a vector's first result, from its last slice, and from the read of its first
        slice.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        source: str = "none",
        sink: str = "none",
        *,
        model: Callable[[Codes], Fields],
        latency: int,
        read_latency: int,
    ) -> None:
        p = catalog_parameters()
        self.model = model
        self.latencies = {"latency": latency, "read_latency": read_latency}
        super().__init__(
            dut,
            salt,
            source,
            sink,
            inputs={"vectors": p.slice_layout},
            outputs={"results": p.result_layout},
            offered=lambda vectors: {"vectors": self.slices_of(list(vectors))},
            expected=lambda vectors: {"results": self.results_of(list(vectors))},
        )

    def random_vectors(self, count: int) -> Codes:
        """Return random vectors of the unit's width."""
        return random_vectors(self.bench.numpy_rng, count, self.p.width)

    def fewer(self, vectors: Codes) -> Codes:
        """Return a selection of the given vectors, fewer if they are longer."""
        count = max(3, len(vectors) * MANY_SLICES // self.p.slices)
        return vectors[:: max(1, len(vectors) // count)]

    def slices_of(self, vectors: list[Codes]) -> Fields:
        """Cut vectors, whose lengths may differ, into slices."""
        counts = [len(vector) // self.p.lanes for vector in vectors]
        last = np.zeros(sum(counts), np.int64)
        last[np.cumsum(counts) - 1] = 1
        values = np.concatenate(vectors).reshape(-1, self.p.lanes)
        return {"values": values, "last": last}

    def results_of(self, vectors: list[Codes]) -> Fields:
        """Return the fields of all slices of results."""
        fields: dict[str, list[Any]] = {}
        for vector in vectors:
            slices = len(vector) // self.p.lanes
            for name, value in self.model(vector[np.newaxis]).items():
                value = np.asarray(value, np.int64).reshape(-1)
                rows = value.reshape(slices, -1) if len(value) > 1 else value.repeat(slices)
                fields.setdefault(name, []).append(rows)
        whole = {name: np.concatenate(rows) for name, rows in fields.items()}
        return {**whole, "last": self.slices_of(vectors)["last"]}

    async def run_at_full_rate(self, vectors: Codes, tensors: str) -> None:
        """Run vectors without stalls, require the specified cycles, and record them."""
        cycles = await self.run(vectors)
        counts = [len(vector) // self.p.lanes for vector in vectors]
        expected = full_rate_cycles(counts, rows=self.p.vectors, **self.latencies)
        self.bench.compare("cycles", np.array([expected]), np.array([cycles]))
        ideal = sum(counts) + counts[0]
        self.bench.record(cycles=cycles, ideal_cycles=ideal, tensors=tensors)

    def random_lengths(self, vectors: Codes) -> list[Codes]:
        """Truncate vectors to random numbers of slices, at least two."""
        lengths = self.bench.numpy_rng.integers(2, self.p.slices + 1, len(vectors)) * self.p.lanes
        return [row[:length] for row, length in zip(vectors, lengths, strict=True)]
