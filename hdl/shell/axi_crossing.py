"""Crossing of AXI4 channels between the clock of a design and that of its memory."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.shell.axi import AxiReadSignature, AxiWriteSignature
from hdl.shell.stream_crossing import StreamCrossing
from hdl.unit import Unit

READ_CHANNELS = {"ar": False, "r": True}
WRITE_CHANNELS = {"aw": False, "w": False, "b": True}
"""Channels by prefix, and whether they transfer from the memory to the master."""


class AxiCrossing(Unit):
    """Connect a master in the design's clock domain to a memory with another clock.

    Each channel crosses independently, as AXI4 allows. A design whose memory has the same clock
    does not need it: both of its ports have one signature.

    **Latency** that of `StreamCrossing` per channel. **Throughput** one beat per cycle of the
    slower clock.

    Parameters
    ----------
    address_bits, data_bytes : int
        As for `AxiReadSignature`.
    writes : bool
        Connect the write channels instead of the read channels.
    depth : int
        Items per channel, a power of two from 4 to 64.

    Members
    -------
    memory_clk : In(1)
        Clock of the memory.
    s_axi : In(AxiReadSignature or AxiWriteSignature)
        Port of the master, in the design's clock domain.
    m_axi : Out(AxiReadSignature or AxiWriteSignature)
        Port of the memory, in that of `memory_clk`.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(self, *, address_bits: int, data_bytes: int, writes: bool, depth: int = 8) -> None:
        kind = AxiWriteSignature if writes else AxiReadSignature
        self.writes, self.depth = writes, depth
        self.port_signature = kind(address_bits=address_bits, data_bytes=data_bytes)
        super().__init__(
            {
                "memory_clk": In(1),
                "s_axi": In(self.port_signature),
                "m_axi": Out(self.port_signature),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Cross all signals of a channel as one item."""
        m = Module()
        for prefix, inwards in (WRITE_CHANNELS if self.writes else READ_CHANNELS).items():
            names = [
                name
                for name in self.port_signature.members
                if name.startswith(prefix) and name[len(prefix) :] not in ("valid", "ready")
            ]
            source, sink = (self.m_axi, self.s_axi) if inwards else (self.s_axi, self.m_axi)
            item, crossed_item = (
                Cat(*(Value.cast(getattr(port, name)) for name in names)) for port in (source, sink)
            )
            crossing = StreamCrossing(shape=len(item), depth=self.depth, inwards=inwards)
            m.submodules[prefix] = crossing
            m.d.comb += [
                crossing.other_clk.eq(self.memory_clk),
                crossing.source.payload.eq(item),
                crossing.source.valid.eq(getattr(source, f"{prefix}valid")),
                getattr(source, f"{prefix}ready").eq(crossing.source.ready),
                crossed_item.eq(crossing.sink.payload),
                getattr(sink, f"{prefix}valid").eq(crossing.sink.valid),
                crossing.sink.ready.eq(getattr(sink, f"{prefix}ready")),
            ]
        return m
