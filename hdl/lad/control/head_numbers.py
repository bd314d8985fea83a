"""Numbers of the heads of a token's steps, and their tiles."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from hdl.lad.parameters import LadParameters
from hdl.unit import Unit


class HeadNumbers(Unit):
    """Count through the heads of all layers and samples in the order of their steps.

    The heads of a group have consecutive numbers in one tile; groups are assigned to the tiles
    round-robin.

    **Latency** 1 cycle. **Throughput** one head per cycle.

    Parameters
    ----------
    parameters : LadParameters
        Dimensions of the model, and number of tiles.

    Members
    -------
    restart : In(1)
        The next step is the first one of a token.
    advance : In(1)
        Move to the next step; ignored during `restart`.
    step : Out(struct)
        The `head` of the step within its `tile`.
    last : Out(1)
        The step is the last one of a token.
    """

    def __init__(self, *, parameters: LadParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "restart": In(1),
                "advance": In(1),
                "step": Out(p.shared_tiles.named(p.tile.head_layout)),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count heads of a group, then tiles, then groups of a tile."""
        m = Module()
        p, shared = self.parameters, self.parameters.tile.shared
        head, tile = self.step.head, self.step.tile
        member, final = Signal(range(shared)), Signal()
        m.d.comb += final.eq(member == shared - 1)
        with m.If(self.restart):
            m.d.sync += [head.eq(0), tile.eq(0), member.eq(0)]
        with m.Elif(self.advance & ~final):
            m.d.sync += [head.eq(head + 1), member.eq(member + 1)]
        with m.Elif(self.advance):
            # The next group belongs to the next tile; the number advances after the last tile.
            m.d.sync += [head.eq(head - (shared - 1)), tile.eq(tile + 1), member.eq(0)]
            with m.If(tile == p.tiles - 1):
                m.d.sync += [tile.eq(0), head.eq(head + 1)]
        rounds, more = divmod(p.layers * p.heads * p.batch // shared - 1, p.tiles)
        m.d.comb += self.last.eq((head == rounds * shared + shared - 1) & (tile == more))
        return m
