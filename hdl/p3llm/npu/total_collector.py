"""Totals that left the compute units, whose groups were scaled there."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal

from hdl.arith.delay_line import delay_line
from hdl.p3llm.npu.sum_accumulator import SumAccumulator
from hdl.p3llm.pim.dot_product import SUM
from hdl.p3llm.pim.group_scaler import HIGH_BITS


class TotalCollector(SumAccumulator):
    """Keep the units' totals and sums; put a total's two parts together.

    What is high of all elements' totals waits for both halves of the rest. Nothing is added up, and
    no scales come here.

    **Latency** 2 cycles from a result to its place. **Throughput** one slice per cycle. **Numerics**
    none: 48 bits pass as they are.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    See `SumAccumulator`; `ending` and `complete` say of the last round what they say of a group.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def elaborate(self, platform: Any) -> Module:
        """Keep a result for a cycle, and what is high until the other halves are here."""
        m = Module()
        p = self.parameters
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
        self._stores(m, write, write.valid & ~write.high, words)
        return m
