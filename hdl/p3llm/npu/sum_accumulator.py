"""Sums that left the compute units, and their 8-bit group scales."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.arith.multiply_add import multiply_add
from hdl.arith.prefix_sum import prefix_sum
from hdl.memory.memory import Memory
from hdl.p3llm.matrix_place import LINEAR_SET
from hdl.p3llm.npu.places import Places
from hdl.p3llm.npu.result_scaler import SUM_BITS
from hdl.p3llm.parameters import P3llmParameters
from hdl.unit import Unit


class SumAccumulator(Unit):
    """Keep the units' sums, or add up those of a linear layer's groups times their scales.

    Scales of two sets of rounds are kept: the sums of one set's last round leave when the scales of
    the next are already here.

    **Latency** 2 cycles from a result to its place. **Throughput** one slice per cycle. **Numerics**
    exact: a row has less than ``2**48``.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    coming : In(struct)
        What the result of the next cycle is, if there is one: see `tag_layout`.
    result : In(struct)
        `valid` and `data` of the channel.
    scales_write, scales_address : In
        The result is a column of scales: of which set, position and unit.
    read_enable, read_address, sums : In, In, Out
        Sums for the vector unit, a cycle later.
    ending : In(1)
        The last group of a linear layer is under way.
    complete : Out
        While it is, below which place results of it have come: they do so front to back. Of two
        inputs that says nothing of the second one's.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        self.scale_bits = ceil_log2(LINEAR_SET // 2 * p.units)
        places = Places(p)
        super().__init__(
            {
                "coming": In(self.tag_layout(p)),
                "result": In(p.channel.unit.column_bits),
                "scales_write": In(1),
                "scales_address": In(1 + self.scale_bits),
                "read_enable": In(1),
                "read_address": In(places.sums_bits),
                "ending": In(1),
                "complete": Out(places.result_bits),
                "sums": Out(data.ArrayLayout(SUM_BITS, p.lanes)),
            }
        )

    @staticmethod
    def tag_layout(p: P3llmParameters) -> data.StructLayout:
        """Return what sums are: ``weighted`` by a scale, ``more`` of what is at `place`.

        A row's ``final`` ones complete it, and are followed by `complete`. With `group_scaling`
        what is ``high`` of all elements' totals comes before both ``wide`` halves.
        """
        return data.StructLayout(
            {
                "valid": 1,
                "weighted": 1,
                "more": 1,
                "final": 1,
                "place": Places(p).result_bits,
                "scales": 1 + ceil_log2(LINEAR_SET // 2 * p.units),
                "part": 2,
                **({"wide": 1, "high": 1} if p.channel.unit.group_scaling else {}),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read what stands there and the scales; multiply, add, write: a cycle each."""
        m = Module()
        p, places = self.parameters, Places(self.parameters)
        tag = self.coming
        # Groups are added up in a memory of their own: the NPU reads beside them.
        m.submodules.groups = groups = Memory(
            depth=places.results(places.linear_end), width=SUM_BITS * p.result
        )
        m.submodules.scales = scales = Memory(
            depth=2 << self.scale_bits, width=p.channel.unit.column_bits
        )
        m.d.comb += [
            scales.read_enable.eq(1),
            scales.read_address.eq(tag.scales),
            scales.write_enable.eq(self.scales_write),
            scales.write_address.eq(self.scales_address),
            scales.write_data.eq(self.result),
            groups.read_enable.eq(1),
            groups.read_address.eq(tag.place),
        ]
        # In the first cycle both memories are read, in the second products made, then added.
        now, write = delay_line(m, tag, 2, name="tag", reset=True)[1:]
        before = delay_line(m, groups.read_data, 1, name="before")[1]
        scale = scales.read_data.word_select(now.part, 8 * p.result)
        words = []
        for i in range(p.result):
            product = Signal(SUM_BITS, name=f"product_{i}", reset_less=True)
            arrived = self.result.word_select(i, 32).as_signed()
            factor = Mux(now.weighted, scale.word_select(i, 8), 1)
            m.d.sync += product.eq(multiply_add(m, f"multiply_{i}", arrived, factor))
            # The first group's sums replace what an earlier product left.
            old = before.word_select(i, SUM_BITS) & write.more.replicate(SUM_BITS)
            words.append(prefix_sum(m, product, old)[:SUM_BITS])
        m.d.comb += [
            groups.write_enable.eq(write.valid & write.weighted),
            groups.write_address.eq(write.place),
            groups.write_data.eq(Cat(words)),
        ]
        self._stores(m, write, write.valid, words)
        return m

    def _stores(self, m: Module, write: Any, valid: Value, words: list[Value]) -> None:
        """Store a result's sums where the NPU reads them, and count a layer's that are there."""
        p = self.parameters
        size = SUM_BITS * p.result
        m.submodules.totals = totals = Memory(
            depth=Places(p).sums_depth, width=SUM_BITS * p.lanes, granularity=size
        )
        part = write.place[: ceil_log2(p.lanes // p.result)]
        m.d.comb += [
            totals.read_enable.eq(self.read_enable),
            totals.read_address.eq(self.read_address),
            Value.cast(self.sums).eq(totals.read_data),
            # A slice of the NPU's is a result, or two.
            totals.write_enable.eq(valid << part),
            totals.write_address.eq(write.place >> len(part)),
            totals.write_data.eq(Cat(words).replicate(p.lanes // p.result)),
        ]
        # Places of the layer's sums begin at 0; the last group's come in their order.
        with m.If(~self.ending):
            m.d.sync += self.complete.eq(0)
        with m.Elif(valid & write.final):
            m.d.sync += self.complete.eq(write.place + 1)
