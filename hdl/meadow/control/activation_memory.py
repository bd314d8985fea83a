"""On-chip memory for hidden states and the intermediate values of a layer."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.control.address_walk import AddressWalk
from hdl.meadow.parameters import MeadowParameters, Reader
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class ActivationMemory(Unit):
    """Memory of hidden states and activations, addressed by nested loops.

    **Latency** 2 cycles from a loop to its first word. **Throughput** one word read and one word
    written per cycle, including from loop to loop.

    Parameters
    ----------
    parameters : MeadowParameters
        Dimensions of words and memory.

    Members
    -------
    reads, writes : In(stream)
        Nested loops of addresses, as in `AddressWalk`.
    words : Out(stream)
        Each `word` of a read loop with its `reader`; `row_last` ends a row, `last` the loop.
    results : In(stream)
        One word for each address of the write loops.
    written : Out(1)
        The last word of a write loop is written in this cycle.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        word = {"word": p.state_layout, "row_last": 1, "last": 1, "reader": Reader}
        super().__init__(
            {
                "reads": In(stream.Signature(p.loop_layout)),
                "writes": In(stream.Signature(p.loop_layout)),
                "words": Out(stream.Signature(data.StructLayout(word))),
                "results": In(stream.Signature(p.state_layout)),
                "written": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Prefetch one word; write when both an address and a word are valid."""
        m = Module()
        p, words = self.parameters, self.words
        m.submodules.reading = reading = AddressWalk(parameters=p)
        m.submodules.writing = writing = AddressWalk(parameters=p)
        m.submodules.memory = memory = Memory(depth=p.words, width=p.state_layout.size)
        connect_streams(m, self.reads, reading.loops)
        connect_streams(m, self.writes, writing.loops)
        # An address is read only if the output can hold its word, so that no word is lost.
        place, target, leaves, arrives = reading.addresses, writing.addresses, Signal(), Signal()
        m.d.comb += [
            place.ready.eq(~words.valid | words.ready),
            leaves.eq(place.valid & place.ready),
            memory.read_enable.eq(leaves),
            memory.read_address.eq(place.payload.address),
            Value.cast(words.payload.word).eq(memory.read_data),
            arrives.eq(target.valid & self.results.valid),
            target.ready.eq(self.results.valid),
            self.results.ready.eq(target.valid),
            memory.write_enable.eq(arrives),
            memory.write_address.eq(target.payload.address),
            memory.write_data.eq(Value.cast(self.results.payload)),
            self.written.eq(arrives & target.payload.last),
        ]
        # The memory's output is the payload of the stream: it is stable until the next read.
        with m.If(place.ready):
            m.d.sync += words.valid.eq(place.valid)
        with m.If(leaves):
            m.d.sync += [
                words.payload[name].eq(place.payload[name])
                for name in ("row_last", "last", "reader")
            ]
        return m
