"""Totals that left the compute units, whose groups were scaled there."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.memory.memory import Memory
from hdl.p3llm.npu.places import Places
from hdl.p3llm.npu.result_scaler import SUM_BITS
from hdl.p3llm.npu.sum_accumulator import SumAccumulator
from hdl.p3llm.pim.dot_product import SUM
from hdl.p3llm.pim.group_scaler import HIGH_BITS


class TotalCollector(SumAccumulator):
    """Keep the units' totals and sums; put a total's two parts together.

    What is high of all elements' totals waits for both halves of the rest. Nothing is added up, and
    no scales come here.

    **Latency** 2 cycles from a result to its place. **Throughput** a slice a cycle. **Numerics**
    none: 48 bits pass as they are.

    Parameters
    ----------
    parameters : P3llmParameters
        Dimensions.

    Members
    -------
    See `SumAccumulator`; `ending` and `complete` say of the last round what they say of a group.

    Raises
    ------
    ValueError
        By `P3llmParameters`.
    """

    def elaborate(self, platform: Any) -> Module:
        """Keep a result for a cycle, and what is high until the other halves are here."""
        m = Module()
        p, size = self.parameters, SUM_BITS * self.parameters.result
        m.submodules.totals = totals = Memory(
            depth=Places(p).sums_depth, width=SUM_BITS * p.lanes, granularity=size
        )
        now, write = delay_line(m, self.coming, 2, name="tag", reset=True)[1:]
        result = delay_line(m, self.result, 1, name="arrived")[1]
        above = Signal(len(self.result), reset_less=True)
        with m.If(now.valid & now.high):
            m.d.sync += above.eq(self.result)
        half = above.word_select(write.part[0], HIGH_BITS * p.result)
        words = []
        for i in range(p.result):
            low = result.word_select(i, SUM.width)
            sign = low[-1].replicate(HIGH_BITS)
            words.append(Cat(low, Mux(write.wide, half.word_select(i, HIGH_BITS), sign)))
        part = write.place[: ceil_log2(p.lanes // p.result)]
        stores = write.valid & ~write.high
        m.d.comb += [
            totals.read_enable.eq(self.read_enable),
            totals.read_address.eq(self.read_address),
            Value.cast(self.sums).eq(totals.read_data),
            # A slice of the NPU's is a result, or two.
            totals.write_enable.eq(stores << part),
            totals.write_address.eq(write.place >> len(part)),
            totals.write_data.eq(Cat(words).replicate(p.lanes // p.result)),
        ]
        with m.If(~self.ending):
            m.d.sync += self.complete.eq(0)
        with m.Elif(stores & write.final):
            m.d.sync += self.complete.eq(write.place + 1)
        return m
