"""Which tokens are so popular that their input vector is stored instead of keys and values.

Section 4.1: a token that most heads keep is cheaper as its input vector, from which every head's
key and value are recomputed. The decision is made once, when the token leaves the recent window.
"""

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import EvictionParameters, vector_layout
from hdl.unit import Unit


def outcome_layout(p: EvictionParameters) -> data.StructLayout:
    """Return what a head did with the arriving token: whom it evicted, if anyone."""
    return data.StructLayout(
        {"head": p.head_bits, "last": 1, "evicts": 1, "evicted": p.token_layout}
    )


def kept_layout(p: EvictionParameters) -> data.StructLayout:
    """Return a token that the prefill keeps in a head."""
    return data.StructLayout({"head": p.head_bits, "token": p.token_layout})


class RecomputedVectors(Unit):
    """Decide on popularity, and keep a bit for each head that still has a recomputed token.

    A stored input vector is free again when the last head has evicted its token. A token is
    promoted only if a vector is free.

    **Latency** 2 cycles from the last head's outcome to the decision. **Throughput** one outcome
    or one prefilled token a cycle while `idle`; `vector_entries` cycles for each vector that is
    stored or freed.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy; at least one vector.

    Members
    -------
    now : In(position)
        Position of the arriving token.
    outcome, outcome_valid : In
        What a head did with it; the heads come in ascending order, `last` with the last one.
    kept, kept_valid : In
        A token of the prefill.
    idle : Out(1)
        Outcomes and prefilled tokens may come.
    promoted : Out(token)
        The token that became popular in the step before.
    vectors : Out(ArrayLayout(vector, vectors))
        Which tokens are recomputed.
    vector_stores : Out(stream)
        A token that became popular, and the place of its input vector.
    scores : Out(stream)
        The entries of a vector come into use, with the highest score, or fall free.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "now": In(p.position_bits),
                "outcome": In(outcome_layout(p)),
                "outcome_valid": In(1),
                "kept": In(kept_layout(p)),
                "kept_valid": In(1),
                "idle": Out(1),
                "promoted": Out(p.promoted_layout),
                "vectors": Out(data.ArrayLayout(vector_layout(p), p.vectors)),
                "vector_stores": Out(stream.Signature(p.promoted_layout)),
                "scores": Out(stream.Signature(p.score_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count the heads that keep the leaving token; hold, free and tell of the vectors."""
        m = Module()
        p = self.parameters
        holders = Array(Signal(p.heads, name=f"holders_{v}") for v in range(p.vectors))
        positions = Array(
            Signal(p.position_bits, name=f"position_{v}", reset_less=True) for v in range(p.vectors)
        )
        for v in range(p.vectors):
            m.d.comb += [
                self.vectors[v].position.eq(positions[v]),
                self.vectors[v].valid.eq(holders[v].any()),
            ]

        # One vector's entries at a time are told to the refresh controllers.
        telling, holds, decides = Signal(), Signal(reset_less=True), Signal()
        told = Signal(range(max(p.vector_entries, 2)))
        vector = Signal(p.vector_bits, reset_less=True)
        m.d.comb += [
            self.idle.eq(~telling & ~decides & ~self.vector_stores.valid),
            self.scores.payload.entry.eq(
                p.heads * p.evictor.slots + vector * p.vector_entries + told
            ),
            self.scores.payload.score.eq((1 << p.score_bits) - 1),
            self.scores.payload.valid.eq(holds),
            self.scores.valid.eq(telling),
        ]
        with m.If(telling & self.scores.ready):
            m.d.sync += told.eq(told + 1)
            with m.If(told == p.vector_entries - 1):
                m.d.sync += [told.eq(0), telling.eq(0)]

        # A head that evicts the leaving token, or a popular one, no longer keeps it.
        keepers = Signal(p.heads)
        many = Signal(bits_for(p.heads))
        leaving = Signal(p.position_bits)
        m.d.comb += leaving.eq(self.now - p.window)
        head, evicted = self.outcome.head, self.outcome.evicted
        leaves = self.outcome.evicts & (evicted.position == leaving)
        remaining = holders[evicted.vector] & ~(1 << head)
        with m.If(self.outcome_valid):
            m.d.sync += [
                keepers.eq(keepers | Mux(leaves, 0, 1 << head)),
                many.eq(many + ~leaves),
                decides.eq(self.outcome.last),
            ]
            with m.If(self.outcome.evicts & evicted.recomputed):
                m.d.sync += holders[evicted.vector].eq(remaining)
                with m.If(~remaining.any()):
                    m.d.sync += [telling.eq(1), holds.eq(0), vector.eq(evicted.vector)]
        kept = self.kept.token
        with m.If(self.kept_valid & kept.recomputed):
            m.d.sync += [
                holders[kept.vector].eq(holders[kept.vector] | (1 << self.kept.head)),
                positions[kept.vector].eq(kept.position),
            ]
            with m.If(~holders[kept.vector].any()):
                m.d.sync += [telling.eq(1), holds.eq(1), vector.eq(kept.vector)]

        free, any_free = Signal(p.vector_bits), Signal()
        for v in reversed(range(p.vectors)):
            with m.If(~holders[v].any()):
                m.d.comb += [free.eq(v), any_free.eq(1)]
        m.d.comb += self.vector_stores.payload.eq(self.promoted)
        left_window = self.now >= p.window + p.sinks
        popular = left_window & p.is_popular(many) & any_free
        with m.If(self.vector_stores.ready):
            m.d.sync += self.vector_stores.valid.eq(0)
        with m.If(decides & ~telling):
            m.d.sync += [
                decides.eq(0),
                keepers.eq(0),
                many.eq(0),
                self.promoted.valid.eq(popular),
            ]
            with m.If(popular):
                m.d.sync += [
                    self.promoted.position.eq(leaving),
                    self.promoted.vector.eq(free),
                    positions[free].eq(leaving),
                    holders[free].eq(keepers),
                    telling.eq(1),
                    holds.eq(1),
                    vector.eq(free),
                    self.vector_stores.valid.eq(1),
                ]
        return m
