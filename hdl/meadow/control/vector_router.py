"""Route of the vectors that are read from external memory, by the kind of the instruction."""

from amaranth.hdl import Module, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.meadow.instructions import Kind
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.pipelined_softmax import EXPONENTIAL_BITS
from hdl.stream.connect import connect_handshake
from hdl.stream.serialiser import Serialiser
from hdl.unit import Unit


class VectorRouter(Unit):
    """Route of hidden states (`LOAD`), a norm's weights (`NORM`) and exponentials to their readers.

    The port has 24 bits per element, as hidden states need; the other vectors have 16.

    **Latency** 0 cycles, 1 for exponentials. **Throughput** one word per cycle, or one exponential.

    Parameters
    ----------
    parameters : MeadowParameters
        Layouts of words.

    Members
    -------
    kind : In
        Operation of the current instruction, of which only one kind of vector is in flight.
    words : In(stream)
        Words of the vector port.
    loaded : Out(stream)
        Hidden states.
    weights : Out(stream)
        As in `Normaliser`.
    entries : Out(stream)
        As in `HybridTile`.
    """

    def __init__(self, *, parameters: MeadowParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "kind": In(Kind),
                "words": In(stream.Signature(p.reads(p.state_layout).word_layout)),
                "loaded": Out(stream.Signature(p.state_layout)),
                "weights": Out(stream.Signature(p.norm_weights_layout)),
                "entries": Out(stream.Signature(unsigned(EXPONENTIAL_BITS))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Select the reader."""
        m = Module()
        p, words, weights = self.parameters, self.words, self.weights
        m.submodules.table = table = Serialiser(shape=unsigned(EXPONENTIAL_BITS), items=p.head_size)
        group = table.groups
        m.d.comb += [
            self.loaded.payload.eq(words.payload.word),
            weights.payload.last.eq(words.payload.last),
            group.payload.last.eq(words.payload.last),
            self.entries.payload.eq(table.items.payload["item"]),
        ]
        connect_handshake(m, table.items, self.entries)
        for i, value in enumerate(words.payload.word):
            m.d.comb += [
                weights.payload["item"][i].eq(value[: len(weights.payload["item"][i])]),
                group.payload["items"][i].eq(value[:EXPONENTIAL_BITS]),
            ]
        with m.Switch(self.kind):
            with m.Case(Kind.LOAD):
                connect_handshake(m, words, self.loaded)
            with m.Case(Kind.NORM):
                connect_handshake(m, words, weights)
            with m.Case(Kind.TPHS, Kind.SOFTMAX):
                connect_handshake(m, words, group)
        return m
