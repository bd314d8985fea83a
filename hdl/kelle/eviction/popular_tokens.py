"""The popular tokens of a prefilled text, ranked by the heads that keep them, then by importance.

Section 4.1: a token that most heads keep is stored as its input vector. A text has many times more
such tokens than there are vectors; those that the most heads keep, with the largest importances,
save the most.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.unit import Unit


@dataclass(frozen=True)
class Listed:
    """An entry of the list."""

    stays: Value  # It ranks at least as high as the token that is offered.
    valid: Value
    key: Value
    position: Value


class PopularTokens(Unit):
    """A sorted list of the best tokens offered, with a lookup by position.

    A token that ranks higher than an entry is inserted before it, and shifts it and all lower
    entries down by one. Ties resolve to the earlier token.

    **Latency** 1 cycle from an offer to the list; 0 cycles from `position` to `vector`.
    **Throughput** one token per cycle.

    Parameters
    ----------
    parameters : PrefillSelectorParameters
        Dimensions of the selector.

    Members
    -------
    clear : In(1)
        Clear the list.
    offer, rank, offered : In
        Whether a token is offered, its rank (`heads` before `importance`), and its position.
    position : In
        Position to look up.
    found, vector : Out
        Whether the list contains the position, and its index in the list, which is the number of
        its input vector.
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

    def elaborate(self, platform: object) -> Module:
        """Compare with every entry in parallel; each entry keeps, shifts or takes the token."""
        m = Module()
        p = self.parameters
        # The importance's sign inverted is offset binary: the whole rank is one unsigned number.
        importance = self.rank.importance
        key = Cat(importance[:-1], ~importance[-1], self.rank.heads)
        # The first entry shifts in the token itself.
        before = Listed(stays=Const(1, 1), valid=Const(1, 1), key=key, position=self.offered)
        for place in range(p.eviction.prefilled_vectors):
            entry = Listed(
                stays=Signal(name=f"stays_{place}"),
                valid=Signal(name=f"valid_{place}"),
                key=Signal(len(key), name=f"key_{place}", reset_less=True),
                position=Signal(p.place_bits, name=f"position_{place}", reset_less=True),
            )
            m.d.comb += entry.stays.eq(entry.valid & (entry.key >= key))
            # The first entry that ranks lower takes the token; the following ones take their
            # neighbour's entry.
            with m.If(self.offer & ~entry.stays):
                m.d.sync += [
                    entry.valid.eq(before.stays | before.valid),
                    entry.key.eq(Mux(before.stays, key, before.key)),
                    entry.position.eq(Mux(before.stays, self.offered, before.position)),
                ]
            with m.If(self.clear):
                m.d.sync += entry.valid.eq(0)
            with m.If(entry.valid & (entry.position == self.position)):
                m.d.comb += [self.found.eq(1), self.vector.eq(place)]
            before = entry
        return m
