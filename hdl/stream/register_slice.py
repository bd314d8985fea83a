"""Registers on every wire of a stream, at full rate: what cuts a long path in two."""

from typing import Any

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit


class RegisterSlice(Unit):
    """Pass items on from register to register; no path leads through, in either direction.

    The producer learns a cycle late that the consumer refuses. What it sends in that cycle goes
    into a second register, the skid buffer.

    **Latency** 1 cycle. **Throughput** one item a cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an item; hashable.

    Members
    -------
    source : In(stream)
        Items; `ready` depends on registers alone.
    sink : Out(stream)
        The same, out of registers.
    """

    def __init__(self, *, shape: ShapeLike) -> None:
        self.shape = shape
        super().__init__(
            {"source": In(stream.Signature(shape)), "sink": Out(stream.Signature(shape))}
        )
        # Here, where a proof can name them.
        self.skid = Signal(shape, reset_less=True)
        self.skid_full = Signal()

    def elaborate(self, platform: Any) -> Module:
        """Fill the output; while that is refused, the skid buffer."""
        m = Module()
        source, sink = self.source, self.sink
        moves = ~sink.valid | sink.ready
        m.d.comb += source.ready.eq(~self.skid_full)
        with m.If(self.skid_full):
            # Nothing comes in: what waited leaves first.
            with m.If(moves):
                m.d.sync += [sink.payload.eq(self.skid), self.skid_full.eq(0)]
        with m.Else():
            m.d.sync += self.skid.eq(source.payload)
            with m.If(moves):
                m.d.sync += [sink.payload.eq(source.payload), sink.valid.eq(source.valid)]
            with m.Else():
                m.d.sync += self.skid_full.eq(source.valid)
        return m
