"""One stream of elements in, one out: what the testbenches of the element-serial units share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbenches.bench import Bench
from testbenches.packing import from_integers, pack, to_integers, unpack

Fields = dict[str, NDArray[Any]]

BEATS = ["none", "random", "bursty", "adversarial"]
"""Pause patterns, each of which is put against another on the other side."""


class SerialBench:
    """A unit that answers every element with one element, in order.

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

    async def run(self, elements: Fields) -> int:
        """Send all elements after a reset, wait for as many; return the cycles to the last."""
        await self.bench.reset()
        self.sink.received.clear()
        payloads = to_integers(pack(self.shapes[0], elements))
        self.source.send(payloads)
        cycles = await self.bench.run(until=lambda: len(self.sink.received) == len(payloads))
        # Nothing more may come.
        for _ in range(20):
            await self.bench.step()
        return cycles

    async def disturb(self, elements: Fields, *, times: int, longest: int) -> None:
        """Reset in the middle of work, again and again."""
        payloads = to_integers(pack(self.shapes[0], elements))
        for _ in range(times):
            await self.bench.reset()
            self.source.send(payloads)
            for _cycle in range(self.bench.rng.randint(1, longest)):
                await self.bench.step()

    def check(self, expected: Fields) -> None:
        """Compare every field of every element."""
        cycles = [cycle for cycle, _payload in self.sink.received]
        packed = [payload for _cycle, payload in self.sink.received]
        got = unpack(self.shapes[1], from_integers(packed, self.shapes[1].size))
        for name, values in expected.items():
            self.bench.compare(
                name, values.astype(np.int64), _codes(got[name]), cycles=cycles, show=_shown
            )


def code_fields(codes: NDArray[Any]) -> Fields:
    """Return FP16 codes as the fields of their layout."""
    codes = np.asarray(codes).astype(np.int64)
    return {"mantissa": codes & 1023, "exponent": codes >> 10 & 31, "sign": codes >> 15}


def last_of(rows: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return 1 at each row's last element."""
    ends = np.cumsum([len(row) for row in rows]) - 1
    last = np.zeros(ends[-1] + 1, np.int64)
    last[ends] = 1
    return last


def _codes(value: Any) -> NDArray[np.int64]:
    """Return a field as integers, an FP16 struct as its code."""
    if isinstance(value, dict):
        return value["mantissa"] | value["exponent"] << 10 | value["sign"] << 15
    return value


def _shown(code: int) -> str:
    """Write a value as a code and, if it can be one, as an FP16 number."""
    return f"{int(code):#06x} ({np.uint16(code).view(np.float16)})"
