"""The popular tokens of a prefilled text: the best few by heads, then by importance.

Section 4.1: a token that most heads keep is stored as its input vector. A text has many times more
of them than there are vectors; those that the most heads keep, and keep as important, save most.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.unit import Unit


class PopularTokens(Unit):
    """Keep the best tokens offered, in order, and say for any position whether it is among them.

    A sorted list of registers: a token that is better than an entry takes its place, and pushes it
    and all behind it one place on. Among equals the earlier one stays.

    **Latency** 1 cycle from an offer to the list; `vector` follows `position` in the same cycle.
    **Throughput** one token a cycle.

    Parameters
    ----------
    parameters : PrefillSelectorParameters
        Dimensions.

    Members
    -------
    clear : In(1)
        Forget all.
    offer, rank, offered : In
        Whether there is a token, how good it is (`heads` before `importance`), and its position.
    position : In
        Any position.
    found, vector : Out
        Whether the list has it, and in which place: the number of its input vector.
    """

    def __init__(self, *, parameters: PrefillSelectorParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "clear": In(1),
                "offer": In(1),
                "rank": In(p.rank_layout),
                "offered": In(p.place_bits),
                "position": In(p.place_bits),
                "found": Out(1),
                "vector": Out(p.eviction.vector_bits),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compare with every entry at once: each knows by itself and its neighbour what to do."""
        m = Module()
        p = self.parameters
        # The importance's sign inverted is offset binary: the whole rank is one unsigned number.
        importance = self.rank.importance
        key = Cat(importance[:-1], ~importance[-1], self.rank.heads)
        # In front of the first entry stands the token itself.
        before: tuple[Any, ...] = (Const(1, 1), Const(1, 1), key, self.offered)
        for place in range(p.eviction.prefilled_vectors):
            valid = Signal(name=f"valid_{place}")
            best = Signal(len(key), name=f"best_{place}", reset_less=True)
            where = Signal(p.place_bits, name=f"where_{place}", reset_less=True)
            stays = Signal(name=f"stays_{place}")
            m.d.comb += stays.eq(valid & (best >= key))
            # The first entry that does not stay takes the token; those behind take their neighbour.
            stays_before, valid_before, best_before, where_before = before
            with m.If(self.offer & ~stays):
                m.d.sync += [
                    valid.eq(stays_before | valid_before),
                    best.eq(Mux(stays_before, key, best_before)),
                    where.eq(Mux(stays_before, self.offered, where_before)),
                ]
            with m.If(self.clear):
                m.d.sync += valid.eq(0)
            with m.If(valid & (where == self.position)):
                m.d.comb += [self.found.eq(1), self.vector.eq(place)]
            before = (stays, valid, best, where)
        return m
