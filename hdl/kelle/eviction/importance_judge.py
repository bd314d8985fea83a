"""Which heads find the token that leaves the recent window important.

Section 4.1: popular are tokens that matter to most heads. Every head still holds the leaving token,
since nobody evicts from the window; what tells is whether it is worth more than what it joins.
"""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.unit import Unit


class ImportanceJudge(Unit):
    """Compare the leaving token's coarse score with the mean of those that a head may evict.

    The scores come one at a time while the head's search passes its slots, so that the mean costs
    one adder a layer and none a row. The leaving token is one of those that count.

    **Latency** 1 cycle from a search's last score to `important`. **Throughput** one score a cycle,
    also from search to search.

    **Numerics** exact: the token's score times the count is compared with the sum.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions.

    Members
    -------
    standing : In(standing)
        Whether this cycle's score is that of a token that may be evicted, and of the leaving one.
    score : In
        The coarse score.
    ends, head : In
        This cycle's score, if there is one, was the last of this head's search.
    important : Out(heads)
        For each head, whether the leaving token's score was at least the mean in its last search.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "standing": In(p.standing_layout),
                "score": In(p.score_bits),
                "ends": In(1),
                "head": In(p.head_bits),
                "important": Out(p.heads),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Add up a search's scores; judge in the cycle behind its last one."""
        m = Module()
        p = self.parameters
        slots = p.evictor.slots
        total = Signal(bits_for(slots * ((1 << p.score_bits) - 1)))
        count, own, found = Signal(bits_for(slots)), Signal(p.score_bits), Signal()
        # The next search may begin in the cycle in which this one is judged.
        judges = Signal()
        judged_head = Signal(p.head_bits, reset_less=True)
        takes, leaves = self.standing.evictable, self.standing.leaving
        m.d.sync += [
            judges.eq(self.ends),
            judged_head.eq(self.head),
            total.eq(Mux(judges, 0, total) + Mux(takes, self.score, 0)),
            count.eq(Mux(judges, 0, count) + takes),
            found.eq((found & ~judges) | leaves),
        ]
        with m.If(leaves):
            m.d.sync += own.eq(self.score)
        verdict = found & (own * count >= total)

        # A placement may follow its search at once: the verdict is shown as it is kept.
        kept = Array(Signal(name=f"important_{head}") for head in range(p.heads))
        with m.If(judges):
            m.d.sync += kept[judged_head].eq(verdict)
        for head in range(p.heads):
            now = judges & (judged_head == head)
            m.d.comb += self.important[head].eq(Mux(now, verdict, kept[head]))
        return m
