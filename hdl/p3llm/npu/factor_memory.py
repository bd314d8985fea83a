"""The NPU's memories of FP16 numbers from the banks."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.memory.memory import Memory
from hdl.p3llm.npu.spread_reader import SpreadReader, distribution
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places
from hdl.unit import Unit


class FactorMemory(Unit):
    """Norm weights, row scales, smoothing factors, scales of keys and values.

    There is one memory per pseudo-channel, written in columns as the banks output them.

    **Latency** 2 cycles from `start`. **Throughput** one slice read and one column of each
    pseudo-channel written per cycle.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    write_enable, write_address, columns : In
        Write port for a column of each pseudo-channel.
    start, first, count, one_channel, head : In
        As of `SpreadReader`.
    slices : Out(stream)
        `values` in FP16, and `last`.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        places, values = Places(p), data.ArrayLayout(16, p.lanes)
        super().__init__(
            {
                "write_enable": In(1),
                "write_address": In(places.column_bits),
                "columns": In(p.pseudo_channels * p.channel.unit.column_bits),
                "start": In(1),
                "first": In(places.factors_bits),
                "count": In(places.count_bits),
                **distribution(p),
                "slices": Out(stream.Signature(data.StructLayout({"values": values, "last": 1}))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read a column of all memories; select the pseudo-channel, and half of the column."""
        m = Module()
        p, places = self.parameters, Places(self.parameters)
        column, depth = p.channel.unit.column_bits, places.columns(places.factors_depth)
        m.submodules.reader = reader = SpreadReader(parameters=p, address_bits=places.factors_bits)
        memories = [Memory(depth=depth, width=column) for _ in range(p.pseudo_channels)]
        slices, shown = self.slices, reader.slices.payload
        read = Cat(memory.read_data for memory in memories).word_select(shown.channel, column)
        # A column has one or two slices of FP16 numbers.
        halves = p.elements // p.lanes
        m.d.comb += [
            reader.start.eq(self.start),
            reader.first.eq(self.first),
            reader.count.eq(self.count),
            *(getattr(reader, name).eq(getattr(self, name)) for name in distribution(p)),
            reader.slices.ready.eq(slices.ready),
            slices.valid.eq(reader.slices.valid),
            slices.payload.last.eq(shown.last),
            Value.cast(slices.payload["values"]).eq(
                read.word_select(shown.low, 16 * p.lanes) if halves > 1 else read
            ),
        ]
        for number, memory in enumerate(memories):
            m.submodules[f"columns_{number}" if number else "columns"] = memory
            m.d.comb += [
                memory.read_enable.eq(reader.read_enable),
                memory.read_address.eq(reader.read_address >> ceil_log2(halves)),
                memory.write_enable.eq(self.write_enable),
                memory.write_address.eq(self.write_address),
                memory.write_data.eq(self.columns.word_select(number, column)),
            ]
        return m
