"""One stream in, one out: a bench for units that answer every item with one item."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbenches.bench import Bench
from testbenches.packing import from_integers, pack, to_integers, unpack

Fields = dict[str, Any]
"""Items of a stream by the fields of their layout; the first axis is time."""


class StreamBench:
    """A unit that answers every item with one item, in order.

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

    async def run(self, items: Fields) -> int:
        """Send all items after a reset, wait for as many; return the cycles to the last."""
        await self.bench.reset()
        self.sink.received.clear()
        payloads = to_integers(pack(self.shapes[0], items))
        self.source.send(payloads)
        cycles = await self.bench.run(until=lambda: len(self.sink.received) == len(payloads))
        # Nothing more may come.
        for _ in range(20):
            await self.bench.step()
        return cycles

    async def disturb(self, items: Fields, *, times: int, longest: int) -> None:
        """Reset in the middle of work, again and again."""
        payloads = to_integers(pack(self.shapes[0], items))
        for _ in range(times):
            await self.bench.reset()
            self.source.send(payloads)
            for _cycle in range(self.bench.rng.randint(1, longest)):
                await self.bench.step()

    def check(self, expected: Fields) -> None:
        """Compare every field of every item."""
        cycles = [cycle for cycle, _payload in self.sink.received]
        packed = [payload for _cycle, payload in self.sink.received]
        got = unpack(self.shapes[1], from_integers(packed, self.shapes[1].size))
        for name, values in expected.items():
            read = self.integers(got[name])
            self.bench.compare(
                name, np.asarray(values, np.int64), read, cycles=cycles, show=self.shown
            )

    def integers(self, value: Any) -> NDArray[np.int64]:
        """Return a field that was received as it is compared."""
        return value

    def shown(self, value: int) -> str:
        """Write a value of a field as a difference is reported."""
        return str(value)
