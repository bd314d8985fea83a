"""Register slice of a stream at full throughput, to cut long paths."""

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit


class RegisterSlice(Unit):
    """Register all signals of a stream; no combinational path exists in either direction.

    `source.ready` drops one cycle after `sink.ready`. The skid buffer, a second register, stores
    the item that the producer sends in that cycle.

    **Latency** 1 cycle. **Throughput** one item per cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.

    Members
    -------
    source : In(stream)
        Incoming items; `ready` depends on registers only.
    sink : Out(stream)
        Outgoing items, driven by registers.
    """

    def __init__(self, *, shape: ShapeLike) -> None:
        self.shape = shape
        super().__init__(
            {"source": In(stream.Signature(shape)), "sink": Out(stream.Signature(shape))}
        )
        # Attributes, so that proofs can use them.
        self.skid = Signal(shape, reset_less=True)
        self.skid_full = Signal()

    def elaborate(self, platform: object) -> Module:
        """Fill the output register, or the skid buffer while the sink is not ready."""
        m = Module()
        source, sink = self.source, self.sink
        moves = ~sink.valid | sink.ready
        m.d.comb += source.ready.eq(~self.skid_full)
        with m.If(self.skid_full):
            # The source is not ready: move the skid buffer's item to the output first.
            with m.If(moves):
                m.d.sync += [sink.payload.eq(self.skid), self.skid_full.eq(0)]
        with m.Else():
            m.d.sync += self.skid.eq(source.payload)
            with m.If(moves):
                m.d.sync += [sink.payload.eq(source.payload), sink.valid.eq(source.valid)]
            with m.Else():
                m.d.sync += self.skid_full.eq(source.valid)
        return m
