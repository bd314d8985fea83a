"""Gate of the prefetcher: a group's previous steps are complete before its rows are fetched."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.lad.parameters import LadTileParameters
from hdl.unit import Unit


class HeadGate(Unit):
    """Accept the heads of the next steps; output the first head of each group.

    The previous steps of a group write its rows and its record of active positions. A group is
    therefore held back until the step of its last head is written back.

    **Latency** 0 cycles. **Throughput** one head per cycle.

    Parameters
    ----------
    parameters : LadTileParameters
        Number of heads, heads per group, and rows to prefetch.

    Members
    -------
    heads : In(stream)
        Heads of the next steps, one per step.
    head_groups : Out(stream)
        The first head of each group.
    begins : In(1)
        A step begins.
    may_begin : Out(1)
        The head of the next step has been accepted.
    freed, freed_head : In
        A step is complete, and its head.
    """

    def __init__(self, *, parameters: LadTileParameters) -> None:
        self.parameters = p = parameters
        heads = stream.Signature(p.head_layout)
        super().__init__(
            {
                "heads": In(heads),
                "head_groups": Out(heads),
                "begins": In(1),
                "may_begin": Out(1),
                "freed": In(1),
                "freed_head": In(p.head_shape),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the heads of a group, and the accepted heads whose steps have not begun."""
        m = Module()
        p, head = self.parameters, self.heads.payload.head
        turn, first, final = Signal(range(p.shared)), Signal(), Signal(p.head_shape)
        # A group is `away` from its first head's acceptance until its last head's step is complete.
        away, ahead = Signal(p.stored_heads), Signal(range(p.prefetched + 4))
        free = ~(first & away.bit_select(final, 1)) & ~ahead.all()
        taken = self.heads.valid & self.heads.ready
        m.d.comb += [
            first.eq(turn == 0),
            final.eq(head + (p.shared - 1)),
            self.head_groups.payload.eq(self.heads.payload),
            self.head_groups.valid.eq(self.heads.valid & free & first),
            self.heads.ready.eq(free & (self.head_groups.ready | ~first)),
            self.may_begin.eq(ahead != 0),
        ]
        m.d.sync += ahead.eq(ahead + taken - self.begins)
        with m.If(self.freed):
            m.d.sync += away.bit_select(self.freed_head, 1).eq(0)
        with m.If(taken):
            m.d.sync += turn.eq(Mux(turn == p.shared - 1, 0, turn + 1))
            with m.If(first):
                m.d.sync += away.bit_select(final, 1).eq(1)
        return m
