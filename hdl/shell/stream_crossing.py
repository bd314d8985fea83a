"""Crossing of a stream between the clock of the design and another clock."""

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Shape, ShapeLike, Value
from amaranth.lib import stream
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_power_of_two
from hdl.unit import Unit


class StreamCrossing(Unit):
    """Transfer the items of a stream to or from the domain of another clock, in order.

    The two clocks may have any frequencies and phases. `rst` resets both sides: it is asserted in
    the other domain at once, and released at its second clock edge afterwards. Items in the
    crossing are lost. A design whose clocks are equal does not need the crossing.

    **Latency** about one cycle of the source's clock and three of the sink's. **Throughput** one
    item per cycle of the slower clock, if `depth` covers the latency in both directions.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    depth : int
        Number of items that are stored, a power of two from 4 to 64. A depth of 8 or more is
        sufficient for full throughput at equal frequencies.
    inwards : bool
        The source is in the other clock's domain, and the sink in that of the design.

    Members
    -------
    other_clk : In(1)
        The other clock; its rising edge is active.
    source : In(stream)
        Incoming items.
    sink : Out(stream)
        Outgoing items.

    Raises
    ------
    ValueError
        If the depth is not legal.
    """

    def __init__(self, *, shape: ShapeLike, depth: int, inwards: bool) -> None:
        require_power_of_two("depth", depth, 4, 64)
        self.shape, self.depth, self.inwards = shape, depth, inwards
        super().__init__(
            {
                "other_clk": In(1),
                "source": In(stream.Signature(shape)),
                "sink": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect Amaranth's FIFO of two clocks, whose pointers cross in Gray code."""
        m = Module()
        m.domains.other = ClockDomain(local=True)
        m.d.comb += ClockSignal("other").eq(self.other_clk)
        m.submodules.reset = ResetSynchronizer(ResetSignal("sync"), domain="other")
        write, read = ("other", "sync") if self.inwards else ("sync", "other")
        width = Shape.cast(self.shape).width
        m.submodules.items = items = AsyncFIFO(
            width=width, depth=self.depth, w_domain=write, r_domain=read
        )
        m.d.comb += [
            items.w_data.eq(Value.cast(self.source.payload)),
            items.w_en.eq(self.source.valid),
            # Reset ends later in the other domain: until then an item would be lost there.
            self.source.ready.eq(items.w_rdy & ~ResetSignal(write)),
            Value.cast(self.sink.payload).eq(items.r_data),
            self.sink.valid.eq(items.r_rdy),
            items.r_en.eq(self.sink.ready),
        ]
        return m
