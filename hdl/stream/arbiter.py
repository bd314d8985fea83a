"""Round-robin arbiter of streams, by item or by packet."""

from amaranth.hdl import Array, Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_choice, require_range
from hdl.unit import Unit


class Arbiter(Unit):
    """Grant the sink to one of several sources in round-robin order.

    A source with a valid item is served before any other source is served twice (by packets: before
    any other source sends two packets). The grant does not change while the sink is not ready.

    **Latency** 0 cycles. **Throughput** one item per cycle, including changes of source.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    sources : int
        Number of sources, 2 to 64.
    packets : bool
        Keep the grant until the source has sent its item with `last`, including idle cycles.

    Members
    -------
    sources : In(stream).array(sources)
        An `item`; and `last`, if by packets.
    sink : Out(stream)
        The item, `last` if by packets, and the index of its `source`.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(self, *, shape: ShapeLike, sources: int, packets: bool = False) -> None:
        require_range("sources", sources, 2, 64)
        require_choice("packets", packets, (False, True))
        self.number, self.packets = sources, packets
        fields: dict[str, ShapeLike] = {"item": shape} | ({"last": 1} if packets else {})
        offered = stream.Signature(data.StructLayout(fields))
        granted = stream.Signature(data.StructLayout(fields | {"source": range(sources)}))
        super().__init__({"sources": In(offered).array(sources), "sink": Out(granted)})
        # The last granted source, and whether the grant is locked; attributes, so that proofs can
        # use them.
        self.granted = Signal(range(sources), init=sources - 1)
        self.locked = Signal()

    def elaborate(self, platform: object) -> Module:
        """Select the next valid source after the last granted one, unless the grant is locked."""
        m = Module()
        sink = self.sink
        chosen = Signal.like(self.granted)
        m.d.comb += chosen.eq(Mux(self.locked, self.granted, self._next()))
        payloads = Array(Value.cast(source.payload) for source in self.sources)
        m.d.comb += [
            sink.valid.eq(Array(source.valid for source in self.sources)[chosen]),
            Value.cast(sink.payload).eq(Cat(payloads[chosen], chosen)),
        ]
        for number, source in enumerate(self.sources):
            m.d.comb += source.ready.eq(sink.ready & (chosen == number))
        # A grant is locked until the sink accepts the item or, by packets, the last item.
        ends = sink.payload.last if self.packets else 1
        with m.If(sink.valid):
            m.d.sync += [self.granted.eq(chosen), self.locked.eq(~(sink.ready & ends))]
        return m

    def _next(self) -> Value:
        """Return the first valid source in the order that starts after the last granted one."""
        numbers = list(range(self.number))
        # Start with the lowest priority: each Mux overrides the previous ones.
        chosen: Value = self.granted
        for number in reversed(numbers):
            chosen = Mux(self.sources[number].valid, number, chosen)
        for number in reversed(numbers[1:]):
            later = self.granted < number
            chosen = Mux(self.sources[number].valid & later, number, chosen)
        return chosen
