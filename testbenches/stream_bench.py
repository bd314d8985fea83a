"""Testbench of units with one input stream and one output stream, and one result per item."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbenches.bench import Bench
from testbenches.packing import from_integers, pack, to_integers, unpack
from testbenches.unit_bench import Fields


class StreamBench:
    """Testbench of a unit that returns one item per input item, in order.

    Parameters
    ----------
    dut : Any
        The design under test.
    salt : str
        Name of the test.
    source, sink : tuple[str, ShapeLike]
        Names and payload layouts of the streams.
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
        """Reset, send all items, wait for as many results; return the cycles to the last."""
        await self.bench.reset()
        self.sink.received.clear()
        payloads = to_integers(pack(self.shapes[0], items))
        self.source.send(payloads)
        cycles = await self.bench.run(until=lambda: len(self.sink.received) == len(payloads))
        # There must be no further items.
        for _ in range(20):
            await self.bench.step()
        return cycles

    async def disturb(self, items: Fields, *, times: int, longest: int) -> None:
        """Reset repeatedly during operation."""
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
        """Convert a received field for comparison."""
        return value

    def shown(self, value: int) -> str:
        """Format a value of a field for the report of a difference."""
        return str(value)
