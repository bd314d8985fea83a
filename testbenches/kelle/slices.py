"""One stream of slices in, one out: what the testbenches of the special functions share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbenches.bench import Bench
from testbenches.packing import from_integers, pack, to_integers, unpack

Fields = dict[str, Any]


class SliceBench:
    """A unit that answers every slice with one slice, in order.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : tuple[str, ShapeLike]
        The streams' names and payload layouts.
    pauses : tuple[str, str]
        Pause patterns of source and sink.
    """

    def __init__(
        self,
        dut: Any,
        salt: str,
        *,
        source: tuple[str, Any],
        sink: tuple[str, Any],
        pauses: tuple[str, str] = ("none", "none"),
    ) -> None:
        self.bench = Bench(dut, salt)
        self.source = self.bench.source(source[0], pauses[0])
        self.sink = self.bench.sink(sink[0], pauses[1])
        self.shapes = source[1], sink[1]

    async def run(self, slices: Fields) -> int:
        """Send all slices after a reset, wait for as many; return the cycles."""
        await self.bench.reset()
        self.sink.received.clear()
        payloads = to_integers(pack(self.shapes[0], slices))
        self.source.send(payloads)
        cycles = await self.bench.run(until=lambda: len(self.sink.received) == len(payloads))
        # Nothing more may come.
        for _ in range(20):
            await self.bench.step()
        return cycles

    async def disturb(self, slices: Fields, *, times: int, longest: int) -> None:
        """Reset in the middle of work, again and again."""
        payloads = to_integers(pack(self.shapes[0], slices))
        for _ in range(times):
            await self.bench.reset()
            self.source.send(payloads)
            for _cycle in range(self.bench.rng.randint(1, longest)):
                await self.bench.step()

    def check(self, expected: Fields) -> None:
        """Compare every field of every slice."""
        cycles = [cycle for cycle, _payload in self.sink.received]
        packed = [payload for _cycle, payload in self.sink.received]
        got = unpack(self.shapes[1], from_integers(packed, self.shapes[1].size))
        for name, values in expected.items():
            self.bench.compare(name, values, got[name], cycles=cycles)


def sliced(rows: Sequence[NDArray[np.int64]], lanes: int) -> Fields:
    """Cut rows of any lengths into slices; fill the last slice of each with noise not to keep."""
    counts = [-(-len(row) // lanes) for row in rows]
    noise = np.random.default_rng(len(rows)).integers(-(1 << 15), 1 << 15, (sum(counts), lanes))
    values, keep = noise.reshape(-1), np.zeros(sum(counts) * lanes, np.int64)
    starts = np.cumsum([0, *counts])
    for row, start in zip(rows, starts[:-1] * lanes, strict=True):
        values[start : start + len(row)] = row
        keep[start : start + len(row)] = 1
    last = np.zeros(sum(counts), np.int64)
    last[starts[1:] - 1] = 1
    keep = keep.reshape(-1, lanes)
    return {"values": values.reshape(-1, lanes), "keep": keep, "last": last}
