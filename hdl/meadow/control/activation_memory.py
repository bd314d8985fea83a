"""On-chip memory for hidden states and the intermediate values of a layer."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.control.address_walk import AddressWalk
from hdl.meadow.control.row_narrower import RowNarrower
from hdl.meadow.parameters import MeadowParameters, MemoryUser
from hdl.memory.memory import Memory
from hdl.stream.connect import connect_streams, every
from hdl.unit import Unit


class ActivationMemory(Unit):
    """Memory of hidden states and activations, addressed by nested loops.

    Each loop names the part that reads or writes its words, and each part has a stream in its own
    format.

    A word has only the bits that its rows need (`MeadowParameters.planes`). Other bits of a word
    that is read are undefined; no reader uses them.

    With the parameter `token_exponents`, the input rows of linear layers have up to 24 bits and
    pass a `RowNarrower` to the tile.

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
    tokens, queries : Out(stream)
        INT8 words for the tile; `last` ends a loop. `tokens` is the tile's `token_layout`.
    old : Out(stream)
        Words for the combiner.
    states : Out(stream)
        Rows for the normaliser; `last` ends a row.
    stored : Out(stream)
        Words for external memory; `last` ends a loop.
    loaded, normalised, combined : In(stream)
        Words from external memory, from the normaliser and from the combiner, one for each address
        of their write loops.
    written, emptied : Out(1)
        The last word of a write loop is written in this cycle; that of a loop for external memory
        is output.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        word = stream.Signature(p.state_layout)
        super().__init__(
            {
                "reads": In(stream.Signature(p.loop_layout)),
                "writes": In(stream.Signature(p.loop_layout)),
                "tokens": Out(stream.Signature(p.tile.token_layout)),
                "queries": Out(stream.Signature(p.tile.word_layout)),
                "old": Out(word),
                "states": Out(stream.Signature(p.row_layout)),
                "stored": Out(stream.Signature(p.writes(p.state_layout).word_layout)),
                "loaded": In(word),
                "normalised": In(word),
                "combined": In(word),
                "written": Out(1),
                "emptied": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Prefetch one word; write when both an address and a word are valid."""
        m = Module()
        p = self.parameters
        m.submodules.reading = reading = AddressWalk(parameters=p)
        m.submodules.writing = writing = AddressWalk(parameters=p)
        connect_streams(m, self.reads, reading.loops)
        connect_streams(m, self.writes, writing.loops)
        # An address is read only if the output can hold its word, so that no word is lost.
        source, target = reading.addresses, writing.addresses
        flags = data.StructLayout({"row_last": 1, "last": 1})
        word = Signal(p.state_layout)
        tokens = self.tokens
        if p.token_exponents:
            m.submodules.narrower = narrower = RowNarrower(parameters=p)
            tokens = narrower.words
            self._extend(m, word, source, tokens)
            connect_streams(m, narrower.tokens, self.tokens)
        marks, results = Signal(flags, reset_less=True), stream.Signature(p.state_layout).create()
        taken, arrives = Signal(), Signal()
        m.d.comb += [
            taken.eq(source.valid & source.ready),
            arrives.eq(results.valid),
            target.ready.eq(results.valid),
            self.written.eq(arrives & target.payload.last),
            self.emptied.eq(self.stored.valid & self.stored.ready & self.stored.payload.last),
        ]
        for number, plane in enumerate(p.planes):
            m.submodules[f"plane_{number}"] = memory = Memory(
                depth=plane.words, width=(plane.high - plane.low) * p.head_size
            )
            kept = slice(plane.low, plane.high)
            m.d.comb += [
                memory.read_enable.eq(taken & (source.payload.address < plane.words)),
                memory.read_address.eq(source.payload.address),
                memory.write_enable.eq(arrives & (target.payload.address < plane.words)),
                memory.write_address.eq(target.payload.address),
                memory.write_data.eq(Cat(Value.cast(item)[kept] for item in results.payload)),
                Cat(Value.cast(item)[kept] for item in word).eq(memory.read_data),
            ]
        # The memory's output is the payload of each reader: it is stable until the next read. Each
        # reader has a valid bit of its own, so that no decoder precedes its handshake.
        serves = Signal(len(MemoryUser))
        with m.If(source.ready):
            m.d.sync += serves.eq(reading.serves)
        with m.If(taken):
            m.d.sync += [marks[name].eq(source.payload[name]) for name, _field in flags]
        readers = {
            MemoryUser.TILE: tokens,
            MemoryUser.ROWS: self.queries,
            MemoryUser.COMBINER: self.old,
            MemoryUser.NORM: self.states,
            MemoryUser.OUTSIDE: self.stored,
        }
        m.d.comb += source.ready.eq(
            every([~serves[user.value] | reader.ready for user, reader in readers.items()])
        )
        m.d.comb += [reader.valid.eq(serves[user.value]) for user, reader in readers.items()]
        self._output(m, marks, word, tokens)
        if p.token_exponents:
            m.d.comb += [
                narrower.written.eq(arrives),
                narrower.first.eq(target.payload.first),
                narrower.target.eq(target.payload.place),
                narrower.word.eq(results.payload),
                narrower.read.eq(taken),
                narrower.source.eq(source.payload.place),
            ]
        # The address of a loop selects its writer, whose `ready` is a register.
        for user, writer in (
            (MemoryUser.OUTSIDE, self.loaded),
            (MemoryUser.NORM, self.normalised),
            (MemoryUser.COMBINER, self.combined),
        ):
            own = writing.serves[user.value]
            m.d.comb += writer.ready.eq(own)
            with m.If(own):
                m.d.comb += [results.valid.eq(writer.valid), results.payload.eq(writer.payload)]
        return m

    def _extend(
        self, m: Module, word: data.View, source: stream.Interface, tokens: stream.Interface
    ) -> None:
        """Extend the words of normalised rows, which have fewer bits, by their signs."""
        plane = self.parameters.planes[-1]
        whole = Signal(reset_less=True)
        with m.If(source.valid & source.ready):
            m.d.sync += whole.eq(source.payload.address < plane.words)
        for number, extended in enumerate(tokens.payload.word):
            item = word[number]
            signed_low = Value.cast(item)[: plane.low].as_signed()
            m.d.comb += extended.eq(Mux(whole, item, signed_low) if plane.low else item)

    def _output(
        self, m: Module, marks: data.View, word: data.View, tokens: stream.Interface
    ) -> None:
        """Output a word to all readers, of which one is valid."""
        m.d.comb += [
            self.old.payload.eq(word),
            self.states.payload["values"].eq(word),
            self.states.payload.last.eq(marks.row_last),
            self.stored.payload.word.eq(word),
            self.stored.payload.last.eq(marks.last),
            tokens.payload.last.eq(marks.last),
            self.queries.payload.last.eq(marks.last),
        ]
        for sink in (self.queries, *([] if self.parameters.token_exponents else [tokens])):
            for i, narrow in enumerate(sink.payload.word):
                m.d.comb += narrow.eq(word[i][: len(narrow)])
