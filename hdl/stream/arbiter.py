"""Several streams share one: in turns, item by item or packet by packet."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.parameters import require_choice, require_range
from hdl.unit import Unit


class Arbiter(Unit):
    """Grant the sink to one of several sources, round robin.

    Whoever offers is served before any other source has been served twice (by packets: before any
    other has sent two packets). An offer that the sink has not yet taken stays the chosen one.

    **Latency** 0 cycles. **Throughput** one item a cycle, also from source to source.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.
    sources : int
        How many, 2 to 64.
    packets : bool
        Whether a source, once granted, keeps the sink up to its item with `last`; pauses included.

    Members
    -------
    sources : In(stream).array(sources)
        An `item`; and `last`, if by packets.
    sink : Out(stream)
        The same, and which `source` it came from.

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
        # Who was granted last, and whether that stands; here, where a proof can name them.
        self.granted = Signal(range(sources), init=sources - 1)
        self.locked = Signal()

    def elaborate(self, platform: Any) -> Module:
        """Choose the next source behind the last one granted, unless the grant is locked."""
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
        # Within a packet the grant outlasts transfers.
        ends = sink.payload.last if self.packets else 1
        with m.If(sink.valid):
            m.d.sync += [self.granted.eq(chosen), self.locked.eq(~(sink.ready & ends))]
        return m

    def _next(self) -> Value:
        """Return the first source that offers, from the one behind the last granted on."""
        numbers = list(range(self.number))
        # Lowest priority first: each Mux overrules those before it.
        chosen: Value = self.granted
        for number in reversed(numbers):
            chosen = Mux(self.sources[number].valid, number, chosen)
        for number in reversed(numbers[1:]):
            behind = self.granted < number
            chosen = Mux(self.sources[number].valid & behind, number, chosen)
        return chosen
