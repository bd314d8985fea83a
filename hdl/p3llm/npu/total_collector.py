"""The memory of totals from compute units that scale their groups."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal

from hdl.arith.delay_line import delay_line
from hdl.p3llm.npu.sum_accumulator import SumAccumulator
from hdl.p3llm.pim.dot_product import SUM
from hdl.p3llm.pim.group_scaler import HIGH_BITS


class TotalCollector(SumAccumulator):
    """Store the units' totals and sums; assemble each total from its two parts.

    The high bits of all elements' totals are held until both halves of the low bits arrive. Nothing
    is accumulated, and no scales are read.

    **Latency** 2 cycles from a result to the memory. **Throughput** one slice per cycle.
    **Numerics** none: 48 bits are stored unchanged.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    As `SumAccumulator`; `ending` and `complete` refer to the last round instead of the last group.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def elaborate(self, platform: Any) -> Module:
        """Register a result; hold the high bits until both halves of the low bits have arrived."""
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
