"""The memory of the compute units' sums and totals."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.memory.memory import Memory
from hdl.p3llm.npu.result_scaler import SUM_BITS
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.pim.dot_product import SUM
from hdl.p3llm.pim.group_scaler import HIGH_BITS
from hdl.p3llm.places import Places
from hdl.unit import Unit


class TotalCollector(Unit):
    """Store the units' sums and totals; assemble each total from its two parts.

    The high bits of all elements' totals are held until both halves of the low bits arrive. If two
    units compute parts of the same totals, the first part is held until the second one arrives.

    **Latency** 2 cycles from a result to the memory. **Throughput** one slice per cycle.
    **Numerics** the 48 bits of a total are stored unchanged; the sum of two parts is exact.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    next_tag : In(struct)
        Tag of the next cycle's result, see `tag_layout`.
    result : In
        Data of the result.
    read_enable, read_address, sums : In, In, Out
        Read port of the vector unit; `sums` are valid one cycle after the address.
    linear_runs : In(1)
        A linear layer is in flight; 0 in the cycle in which one is complete.
    complete : Out
        With `linear_runs`: the place below which its totals have arrived, in ascending order. With
        two inputs it refers to the first one only.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        places = Places(p)
        super().__init__(
            {
                "next_tag": In(self.tag_layout(p)),
                "result": In(p.channel.unit.column_bits),
                "read_enable": In(1),
                "read_address": In(places.sums_bits),
                "linear_runs": In(1),
                "complete": Out(places.result_bits),
                "sums": Out(data.ArrayLayout(SUM_BITS, p.lanes)),
            }
        )

    @staticmethod
    def tag_layout(p: P3llmParameters) -> data.StructLayout:
        """Return the layout of a tag.

        ``final``: the result advances `complete`. The ``high`` bits of all elements' totals precede
        both ``wide`` halves; ``upper`` selects the half. A ``part`` of the totals of ``pump`` is
        held, and ``added`` to the next one.
        """
        return data.StructLayout(
            {
                "valid": 1,
                "final": 1,
                "place": Places(p).result_bits,
                "upper": 1,
                "wide": 1,
                "high": 1,
                "part": 1,
                "added": 1,
                "pump": p.in_flight - 1,
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Register a result; hold the high bits until both halves of the low bits have arrived."""
        m = Module()
        p = self.parameters
        now, write = delay_line(m, self.next_tag, 2, name="tag", reset=True)[1:]
        result = delay_line(m, self.result, 1, name="arrived")[1]
        above = Signal(len(self.result), reset_less=True)
        with m.If(now.valid & now.high):
            m.d.sync += above.eq(self.result)
        half = above.word_select(write.upper, HIGH_BITS * p.result)
        words = []
        for i in range(p.result):
            low = result.word_select(i, SUM.width)
            sign = low[-1].replicate(HIGH_BITS)
            words.append(Cat(low, Mux(write.wide, half.word_select(i, HIGH_BITS), sign)))
        valid = write.valid & ~write.high
        totals = self._added(m, write, valid & write.part, Cat(words))
        self._stores(m, write, valid & ~write.part, totals)
        return m

    def _added(self, m: Module, write: data.View, holds: Value, words: Value) -> list[Value]:
        """Hold the first part of each total, and return the sum with the second part."""
        p = self.parameters
        layout = data.ArrayLayout(SUM_BITS, p.result)
        parts = Array(
            Signal(layout.size, name=f"part_{i}", reset_less=True) for i in range(2 * p.in_flight)
        )
        index = Cat(write.upper, write.pump)
        with m.If(holds):
            m.d.sync += parts[index].eq(words)
        held = layout(parts[index] & write.added.replicate(layout.size))
        sums = []
        arrived = layout(words)
        for i in range(p.result):
            sums.append(Signal(SUM_BITS, name=f"sum_{i}"))
            m.d.comb += sums[i].eq(arrived[i] + held[i])
        return sums

    def _stores(self, m: Module, write: data.View, valid: Value, words: list[Value]) -> None:
        """Store a result for the NPU, and track how many totals of a layer have arrived."""
        p = self.parameters
        m.submodules.totals = totals = Memory(
            depth=Places(p).sums_depth, width=SUM_BITS * p.lanes, granularity=SUM_BITS * p.result
        )
        part = write.place[: ceil_log2(p.lanes // p.result)]
        m.d.comb += [
            totals.read_enable.eq(self.read_enable),
            totals.read_address.eq(self.read_address),
            Value.cast(self.sums).eq(totals.read_data),
            # A slice of the NPU consists of one or two results.
            totals.write_enable.eq(valid << part),
            totals.write_address.eq(write.place >> len(part)),
            totals.write_data.eq(Cat(words).replicate(p.lanes // p.result)),
        ]
        # Places of the layer's totals start at 0, and they arrive in ascending order.
        with m.If(~self.linear_runs):
            m.d.sync += self.complete.eq(0)
        with m.Elif(valid & write.final):
            m.d.sync += self.complete.eq(write.place + 1)
