"""Hidden states of steps: those of the program, or the output of the step before."""

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.memory.memory import Memory
from hdl.stream.connect import connect_handshake
from hdl.unit import Unit


class LayerStates(Unit):
    """Store the output of each step, and give a step its hidden state.

    A layer's output remains on the chip: a copy through memory would delay the next layer by the
    latencies of a write and of a read.

    **Latency** 1 cycle from `starts`. **Throughput** one slice per cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a slice; hashable.
    slices : int
        Slices of the hidden state of a step, 2 or more.

    Members
    -------
    starts, follows : In(1)
        A step starts; its hidden state is the stored one, or else from `states`.
    outputs : In(stream)
        Slices of the output of a step, in order; always ready.
    states : In(stream)
        Slices of hidden states of the program.
    hidden : Out(stream)
        Slices of the hidden state of the step.
    """

    def __init__(self, *, shape: ShapeLike, slices: int) -> None:
        self.shape, self.count = shape, slices
        states = stream.Signature(shape)
        super().__init__(
            {
                "starts": In(1),
                "follows": In(1),
                "outputs": In(states),
                "states": In(states),
                "hidden": Out(states),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Write the outputs in order, and read them back from the first one."""
        m = Module()
        count = self.count
        m.submodules.held = held = Memory(depth=count, width=Shape.cast(self.shape).width)
        giving, stored = Signal(), Signal()
        given, following = Signal(range(count)), Signal(range(count))
        written, last = Signal(range(count)), given == count - 1
        gives = self.hidden.valid & self.hidden.ready
        m.d.comb += [
            self.outputs.ready.eq(1),
            held.write_enable.eq(self.outputs.valid),
            held.write_address.eq(written),
            held.write_data.eq(Value.cast(self.outputs.payload)),
            following.eq(Mux(gives, Mux(last, 0, given + 1), given)),
            # The memory is read one cycle ahead. All outputs of a step precede the next start.
            held.read_enable.eq(1),
            held.read_address.eq(following),
        ]
        with m.If(giving & ~stored):
            connect_handshake(m, self.states, self.hidden)
        with m.Else():
            m.d.comb += self.hidden.valid.eq(giving)
        m.d.comb += Value.cast(self.hidden.payload).eq(
            Mux(stored, held.read_data, Value.cast(self.states.payload))
        )
        m.d.sync += given.eq(following)
        with m.If(self.outputs.valid):
            m.d.sync += written.eq(Mux(written == count - 1, 0, written + 1))
        with m.If(gives & last):
            m.d.sync += giving.eq(0)
        with m.If(self.starts):
            m.d.sync += [giving.eq(1), stored.eq(self.follows)]
        return m
