"""From rows to pairs of neighbours, one after the other."""

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.parameters import require_range
from hdl.unit import Unit


class PairSerialiser(Unit):
    """Take a row of FP16 numbers, and give its pairs: elements 0 and 1, 2 and 3, and so on.

    **Latency** 1 cycle. **Throughput** one pair a cycle, also from row to row.

    Parameters
    ----------
    pairs : int
        Of a row, 2 to 4096.

    Members
    -------
    rows : In(stream)
        `values`, and `tag`, which accompanies each of its pairs; `last` with the last row.
    pairs : Out(stream)
        `x` and `y` in FP16, `tag`, and `last` with the last row's last pair.

    Raises
    ------
    ValueError
        If the number of pairs is out of range.
    """

    def __init__(self, *, pairs: int) -> None:
        require_range("pairs", pairs, 2, 4096)
        self.number = pairs
        fp16, marks = BINARY16.layout, {"tag": 1, "last": 1}
        row = data.StructLayout({"values": data.ArrayLayout(fp16, 2 * pairs), **marks})
        pair = data.StructLayout({"x": fp16, "y": fp16, **marks})
        super().__init__({"rows": In(stream.Signature(row)), "pairs": Out(stream.Signature(pair))})

    def elaborate(self, platform: Any) -> Module:
        """Shift a row out."""
        m = Module()
        row, pair = self.rows.payload, self.pairs.payload
        held = Signal(32 * self.number, reset_less=True)
        tag, last = Signal(reset_less=True), Signal(reset_less=True)
        left = Signal(range(self.number + 1))
        ends = Signal()
        m.d.comb += [
            self.pairs.valid.eq(left != 0),
            Value.cast(pair.x).eq(held[:16]),
            Value.cast(pair.y).eq(held[16:32]),
            ends.eq(left == 1),
            pair.tag.eq(tag),
            pair.last.eq(last & ends),
            self.rows.ready.eq((left == 0) | (ends & self.pairs.ready)),
        ]
        with m.If(self.pairs.valid & self.pairs.ready):
            m.d.sync += [held.eq(held >> 32), left.eq(left - 1)]
        with m.If(self.rows.valid & self.rows.ready):
            m.d.sync += [
                held.eq(Value.cast(row["values"])),
                tag.eq(row.tag),
                last.eq(row.last),
                left.eq(self.number),
            ]
        return m
