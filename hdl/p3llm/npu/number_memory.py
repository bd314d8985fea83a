"""The NPU's memory of vectors in binary32."""

from amaranth.hdl import Module, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory import Memory
from hdl.p3llm.npu.slice_reader import SliceReader
from hdl.p3llm.parameters import P3llmParameters
from hdl.p3llm.places import Places
from hdl.unit import Unit


class NumberMemory(Unit):
    """Hidden states, keys, values, queries, heads' outputs and gates of the requests in flight.

    **Latency** 2 cycles from `start`. **Throughput** one slice read and one written per cycle.

    Parameters
    ----------
    parameters : P3llmParameters
        Model, pseudo-channels and NPU of the system.

    Members
    -------
    write_enable, write_address, write_data : In
        Write port for a slice.
    start, first, count : In
        Read `count` slices from `first`; not while slices are in flight.
    slices : Out(stream)
        `values` in binary32, and `last`.

    Raises
    ------
    ValueError
        If `P3llmParameters` rejects a value.
    """

    def __init__(self, *, parameters: P3llmParameters) -> None:
        self.parameters = p = parameters
        places, values = Places(p), data.ArrayLayout(32, p.lanes)
        super().__init__(
            {
                "write_enable": In(1),
                "write_address": In(places.numbers_bits),
                "write_data": In(values),
                "start": In(1),
                "first": In(places.numbers_bits),
                "count": In(places.count_bits),
                "slices": Out(stream.Signature(data.StructLayout({"values": values, "last": 1}))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the reader to the memory."""
        m = Module()
        places, width = Places(self.parameters), 32 * self.parameters.lanes
        m.submodules.numbers = numbers = Memory(depth=places.numbers_depth, width=width)
        m.submodules.reader = reader = SliceReader(
            address_bits=places.numbers_bits, count_bits=places.count_bits
        )
        slices = self.slices
        m.d.comb += [
            reader.start.eq(self.start),
            reader.first.eq(self.first),
            reader.count.eq(self.count),
            reader.slices.ready.eq(slices.ready),
            slices.valid.eq(reader.slices.valid),
            slices.payload.last.eq(reader.slices.payload.last),
            Value.cast(slices.payload["values"]).eq(numbers.read_data),
            numbers.read_enable.eq(reader.read_enable),
            numbers.read_address.eq(reader.read_address),
            numbers.write_enable.eq(self.write_enable),
            numbers.write_address.eq(self.write_address),
            numbers.write_data.eq(Value.cast(self.write_data)),
        ]
        return m
