"""The recent window of a text: the youngest tokens, which are never evicted (Section 4.1)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.unit import Unit


class RecentWindow(Unit):
    """Hold the position of the youngest token, and the window that protects tokens of a search.

    The window belongs to the step in which the victim of the search is evicted: the youngest
    token's step, or with `evict_before` the next one. Its ends have registers of their own, because
    the paths from them extend into every evictor row.

    **Latency** 1 cycle. **Throughput** one position per cycle.

    Parameters
    ----------
    parameters : EvictionParameters
        Window (W) and position bits.

    Members
    -------
    moves, position : In
        While `moves` is 1: position of the token that becomes the youngest.
    now : Out
        Position of the youngest token.
    oldest : Out
        Lowest position in the window.
    leaving : Out
        Position that has just left the window. In a text shorter than the window, this is no
        position of a cached token.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "moves": In(1),
                "position": In(p.position_bits),
                "now": Out(p.position_bits),
                "oldest": Out(p.position_bits),
                "leaving": Out(p.position_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Compute the ends of the window; after a reset they are those of position 0."""
        m = Module()
        p = self.parameters
        first = int(p.evict_before)
        oldest = Signal(p.position_bits, init=max(first - (p.window - 1), 0))
        leaving = Signal(p.position_bits, init=(first - p.window) % (1 << p.position_bits))
        ahead = self.position + first
        with m.If(self.moves):
            m.d.sync += [
                self.now.eq(self.position),
                oldest.eq(Mux(ahead >= p.window - 1, ahead - (p.window - 1), 0)),
                leaving.eq(ahead - p.window),
            ]
        m.d.comb += [self.oldest.eq(oldest), self.leaving.eq(leaving)]
        return m
