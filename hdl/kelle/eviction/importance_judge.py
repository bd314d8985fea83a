"""Decides for each head whether the token that has just left the recent window is important.

Section 4.1: a token is popular if it is important to most heads. Every head still holds the leaving
token, since tokens of the window are never evicted. The criterion is therefore its score, compared
with the scores of the tokens that the head may evict.
"""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.unit import Unit


class ImportanceJudge(Unit):
    """Compare the leaving token's coarse score with the mean score of a head's evictable tokens.

    One score per cycle arrives while the head's search passes its slots, so that the mean needs one
    adder per layer and none per row. The leaving token is one of the evictable tokens.

    **Latency** 2 cycles from a search's last score to `important`. **Throughput** one score per
    cycle, also from search to search.

    **Numerics** exact: the token's score times the count is compared with the sum.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy.

    Members
    -------
    standing : In(standing)
        `evictable`: the current score is that of a token that may be evicted; `leaving`: it is that
        of the leaving token.
    score : In
        The coarse score.
    ends, head : In
        The search of `head` ends with the current cycle.
    important : Out(kv_heads)
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
                "important": Out(p.kv_heads),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Add up the scores of a search, and compare in the cycle after its last score."""
        m = Module()
        p = self.parameters
        slots = p.evictor.slots
        total = Signal(bits_for(slots * ((1 << p.score_bits) - 1)))
        count, own, found = Signal(bits_for(slots)), Signal(p.score_bits), Signal()
        # The next search may start in the cycle of the comparison.
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
        # A register after the product and the comparison, because the count of heads follows.
        verdict, decided, decided_head = Signal(), Signal(), Signal.like(judged_head)
        m.d.sync += [
            verdict.eq(found & (own * count >= total)),
            decided.eq(judges),
            decided_head.eq(judged_head),
        ]

        # A placement may follow its search immediately, so the result is also forwarded.
        kept = Array(Signal(name=f"important_{head}") for head in range(p.kv_heads))
        with m.If(decided):
            m.d.sync += kept[decided_head].eq(verdict)
        for head in range(p.kv_heads):
            now = decided & (decided_head == head)
            m.d.comb += self.important[head].eq(Mux(now, verdict, kept[head]))
        return m
