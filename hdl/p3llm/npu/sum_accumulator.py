"""The accumulator of the compute units' sums, with their 8-bit group scales."""

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
from hdl.p3llm.npu.result_scaler import SUM_BITS
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places
from hdl.unit import Unit


class SumAccumulator(Unit):
    """Store the units' sums; for a linear layer, accumulate group sums times their scales.

    The memory of scales holds two sets of rounds: the sums of one set's last round are read when
    the scales of the next set have already arrived.

    **Latency** 2 cycles from a result to the memory. **Throughput** one slice per cycle.
    **Numerics** exact: the sum of a row is less than ``2**48``.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    coming : In(struct)
        Tag of the next cycle's result, see `tag_layout`.
    result : In(struct)
        Data of the result.
    scales_write, scales_address : In
        The result is a column of scales; its set, position and unit.
    read_enable, read_address, sums : In, In, Out
        Read port of the vector unit; `sums` are valid one cycle after the address.
    ending : In(1)
        The last group of a linear layer is in progress.
    complete : Out
        With `ending`: the place below which results of the last group have arrived, in ascending
        order. With two inputs it refers to the first one only.

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
        """Return the layout of a tag.

        ``weighted``: multiply the sums by scales; ``more``: add them to those at ``place``;
        ``final``: they complete their rows and advance `complete`. With `group_scaling`, the
        ``high`` bits of all elements' totals precede both ``wide`` halves.
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
        """Read stored sums and scales; multiply; add; write: one stage each."""
        m = Module()
        p, places = self.parameters, Places(self.parameters)
        tag = self.coming
        # Groups are accumulated in a separate memory, as the NPU reads the totals at the same time.
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
        # Both memories are read in the first cycle; products are computed in the second, then
        # added.
        now, write = delay_line(m, tag, 2, name="tag", reset=True)[1:]
        before = delay_line(m, groups.read_data, 1, name="before")[1]
        scale = scales.read_data.word_select(now.part, 8 * p.result)
        words = []
        for i in range(p.result):
            product = Signal(SUM_BITS, name=f"product_{i}", reset_less=True)
            arrived = self.result.word_select(i, 32).as_signed()
            factor = Mux(now.weighted, scale.word_select(i, 8), 1)
            m.d.sync += product.eq(multiply_add(m, f"multiply_{i}", arrived, factor))
            # The sums of the first group replace those of an earlier product.
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
        """Store a result's sums for the NPU, and track how far a layer's last group has arrived."""
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
            # A slice of the NPU consists of one or two results.
            totals.write_enable.eq(valid << part),
            totals.write_address.eq(write.place >> len(part)),
            totals.write_data.eq(Cat(words).replicate(p.lanes // p.result)),
        ]
        # Places of the layer's sums start at 0; those of the last group arrive in ascending order.
        with m.If(~self.ending):
            m.d.sync += self.complete.eq(0)
        with m.Elif(valid & write.final):
            m.d.sync += self.complete.eq(write.place + 1)
