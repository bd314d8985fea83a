"""Popular tokens, whose input vectors are stored instead of their keys and values.

Section 4.1: for a token that most heads keep, the input vector takes less storage than all keys and
values, which every step recomputes from it. The decision is made once, when the token moves out of
the recent window.
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import bits_for

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.unit import Unit


def outcome_layout(p: EvictionParameters) -> data.StructLayout:
    """Return the layout of a placement's outcome: the head, and the token that it evicts."""
    return data.StructLayout(
        {"head": p.head_bits, "last": 1, "evicts": 1, "evicted": p.token_layout}
    )


def prefilled_layout(p: EvictionParameters) -> data.StructLayout:
    """Return the layout of a token that the prefill keeps in a head."""
    return data.StructLayout({"head": p.head_bits, "token": p.token_layout})


@dataclass(frozen=True)
class Report:
    """The vector whose entries are being reported to the refresh controllers."""

    active: Signal
    in_use: Signal
    vector: Signal

    def begin(self, m: Module, vector: Value, *, in_use: int) -> None:
        """Start a report of a vector's entries as in use or free."""
        m.d.sync += [self.active.eq(1), self.in_use.eq(in_use), self.vector.eq(vector)]


@dataclass(frozen=True)
class Free:
    """A vector that is not in use, if `found`."""

    vector: Signal
    found: Signal


def record_layout(p: EvictionParameters) -> data.StructLayout:
    """Return the layout of a layer's record: holders and position of each vector, and `promoted`.

    The holders of a vector are one bit for each head that has its token.
    """
    return data.StructLayout(
        {
            "holders": data.ArrayLayout(p.kv_heads, p.vectors),
            "positions": data.ArrayLayout(p.position_bits, p.vectors),
            "promoted": p.promoted_layout,
        }
    )


def vector_ports(p: EvictionParameters) -> dict[str, Member]:
    """Return the ports of a unit that manages the input vectors of a layer."""
    return {
        "layer": In(p.layer_bits),
        "now": In(p.position_bits),
        "outcome": In(outcome_layout(p)),
        "outcome_valid": In(1),
        "important": In(p.kv_heads),
        "prefilled": In(prefilled_layout(p)),
        "prefilled_valid": In(1),
        "clear": In(1),
        "idle": Out(1),
        "decides": Out(1),
        "promoted": Out(p.promoted_layout),
        "vector_stores": Out(stream.Signature(p.promoted_layout)),
        "scores": Out(stream.Signature(p.score_layout)),
    }


class RecomputedVectors(Unit):
    """Decide on popularity, and hold one bit per stored vector and head that has its token.

    A stored input vector is free again when the last head has evicted its token. A token is
    promoted only if a vector is free.

    **Latency** 2 cycles from the last head's outcome to the decision. **Throughput** one outcome
    or one prefilled token per cycle while `idle`; `vector_entries` cycles for each vector that is
    stored or freed.

    Parameters
    ----------
    parameters : EvictionParameters
        Dimensions and policy; at least one vector.

    Members
    -------
    layer : In
        Layer of the vectors.
    record : Out(record), load : In(1), loaded : In(record)
        The layer's record; and another layer's, which replaces it in a cycle with `load`. Only
        while `idle`, and without an outcome or a prefilled token.
    now : In(position)
        Position of the arriving token.
    outcome, outcome_valid : In
        Outcome of the arriving token's placement in a head, in ascending order of the heads; `last`
        is 1 for the last head.
    important : In(kv_heads)
        As in `ImportanceJudge`: heads for which the leaving token is important.
    prefilled, prefilled_valid : In
        A token of the prefill.
    clear : In(1)
        The text ends while the unit is idle: free all vectors.
    idle : Out(1)
        The unit accepts outcomes and prefilled tokens.
    decides : Out(1)
        All heads have an outcome, and the decision on the leaving token is outstanding.
    promoted : Out(token)
        The token that became popular in the previous step.
    vector_stores : Out(stream)
        A token that became popular, and the number of its input vector.
    scores : Out(stream)
        Score updates of a vector's entries: the highest score while in use, `valid` = 0 when freed.
    """

    def __init__(self, *, parameters: EvictionParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                **vector_ports(p),
                "record": Out(record_layout(p)),
                "load": In(1),
                "loaded": In(record_layout(p)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Track the holders of each vector; decide on the leaving token after the last head."""
        m = Module()
        p = self.parameters
        # One bit for each head that has the token: a vector is in use while any bit is 1.
        holders = Array(Signal(p.kv_heads, name=f"holders_{v}") for v in range(p.vectors))
        positions = Array(
            Signal(p.position_bits, name=f"position_{v}", reset_less=True) for v in range(p.vectors)
        )
        report = self._report_entries(m)
        clears = Signal()
        m.d.comb += self.idle.eq(
            ~report.active & ~self.decides & ~self.vector_stores.valid & ~clears
        )
        for v in range(p.vectors):
            m.d.comb += [
                self.record.positions[v].eq(positions[v]),
                self.record.holders[v].eq(holders[v]),
            ]

        m.d.comb += self.record.promoted.eq(self.promoted)
        # Popularity is decided for the leaving token only: the one that has just left the recent
        # window.
        leaving = Signal(p.position_bits)
        keepers, many = Signal(p.kv_heads), Signal(bits_for(p.kv_heads))
        m.d.comb += leaving.eq(self.now - p.window)
        self._count_keepers(m, leaving, keepers, many)
        self._release(m, holders, report)
        self._take_prefill(m, holders, positions, report)

        free = self._find_free(m, holders)
        # Sinks are never promoted, and a text shorter than the window has no leaving token.
        left_window = self.now >= p.window + p.sinks
        popular = left_window & p.is_popular(many) & free.found
        m.d.comb += self.vector_stores.payload.eq(self.promoted)
        with m.If(self.vector_stores.ready):
            m.d.sync += self.vector_stores.valid.eq(0)
        # The entries of a freed vector are reported before the vector may be used again.
        with m.If(self.decides & ~report.active):
            m.d.sync += [
                self.decides.eq(0),
                keepers.eq(0),
                many.eq(0),
                self.promoted.valid.eq(popular),
            ]
            with m.If(popular):
                m.d.sync += [
                    self.promoted.position.eq(leaving),
                    self.promoted.vector.eq(free.vector),
                    positions[free.vector].eq(leaving),
                    holders[free.vector].eq(keepers),
                    self.vector_stores.valid.eq(1),
                ]
                report.begin(m, free.vector, in_use=1)
        self._clear(m, holders, report, clears)
        with m.If(self.load):
            m.d.sync += self.promoted.eq(self.loaded.promoted)
            for v in range(p.vectors):
                m.d.sync += [
                    holders[v].eq(self.loaded.holders[v]),
                    positions[v].eq(self.loaded.positions[v]),
                ]
        return m

    def _report_entries(self, m: Module) -> Report:
        """Report the entries of one vector to the refresh controllers, sequentially."""
        p = self.parameters
        report = Report(
            active=Signal(name="reporting"),
            in_use=Signal(name="in_use", reset_less=True),
            vector=Signal(p.vector_bits, name="vector", reset_less=True),
        )
        entry = Signal(range(max(p.vector_entries, 2)))
        # The entries of the vectors follow those of the slots.
        vector = p.cached_vector(self.layer, report.vector)
        first = p.stored_heads * p.evictor.slots + vector * p.vector_entries
        m.d.comb += [
            self.scores.payload.entry.eq(first + entry),
            # An input vector serves every head, so it always has the highest score.
            self.scores.payload.score.eq((1 << p.score_bits) - 1),
            self.scores.payload.valid.eq(report.in_use),
            self.scores.valid.eq(report.active),
        ]
        with m.If(report.active & self.scores.ready):
            m.d.sync += entry.eq(entry + 1)
            with m.If(entry == p.vector_entries - 1):
                m.d.sync += [entry.eq(0), report.active.eq(0)]
        return report

    def _count_keepers(self, m: Module, leaving: Signal, keepers: Signal, many: Signal) -> None:
        """Record which heads keep the leaving token, and count those for which it is important.

        All heads that keep it become holders of its vector, whether it is important to them or not.
        """
        head, evicted = self.outcome.head, self.outcome.evicted
        leaves = self.outcome.evicts & (evicted.position == leaving)
        with m.If(self.outcome_valid):
            m.d.sync += [
                keepers.eq(keepers | Mux(leaves, 0, 1 << head)),
                many.eq(many + (~leaves & self.important.bit_select(head, 1))),
                self.decides.eq(self.outcome.last),
            ]

    def _release(self, m: Module, holders: Array, report: Report) -> None:
        """Remove a head that evicts a recomputed token from the holders of its vector."""
        head, evicted = self.outcome.head, self.outcome.evicted
        remaining = holders[evicted.vector] & ~(1 << head)
        with m.If(self.outcome_valid):
            with m.If(self.outcome.evicts & evicted.recomputed):
                m.d.sync += holders[evicted.vector].eq(remaining)
                # The last holder frees the vector.
                with m.If(~remaining.any()):
                    report.begin(m, evicted.vector, in_use=0)

    def _take_prefill(self, m: Module, holders: Array, positions: Array, report: Report) -> None:
        """Add a head to the holders of a vector that a prefill assigns to a token."""
        token = self.prefilled.token
        with m.If(self.prefilled_valid & token.recomputed):
            m.d.sync += [
                holders[token.vector].eq(holders[token.vector] | (1 << self.prefilled.head)),
                positions[token.vector].eq(token.position),
            ]
            # The first holder brings its entries into use.
            with m.If(~holders[token.vector].any()):
                report.begin(m, token.vector, in_use=1)

    def _clear(self, m: Module, holders: Array, report: Report, clears: Signal) -> None:
        """Free the vectors in use, from the lowest on, and report each."""
        p = self.parameters
        used, any_used = Signal(p.vector_bits), Signal()
        # The last assignment has priority, so the loop is descending.
        for v in reversed(range(p.vectors)):
            with m.If(holders[v].any()):
                m.d.comb += [used.eq(v), any_used.eq(1)]
        with m.If(self.clear):
            m.d.sync += [clears.eq(1), self.promoted.valid.eq(0)]
        with m.If(clears & ~report.active):
            m.d.sync += clears.eq(any_used)
            with m.If(any_used):
                m.d.sync += holders[used].eq(0)
                report.begin(m, used, in_use=0)

    def _find_free(self, m: Module, holders: Array) -> Free:
        """Find the lowest free vector."""
        p = self.parameters
        free = Free(vector=Signal(p.vector_bits, name="free"), found=Signal(name="any_free"))
        # The last assignment has priority, so the loop is descending.
        for v in reversed(range(p.vectors)):
            with m.If(~holders[v].any()):
                m.d.comb += [free.vector.eq(v), free.found.eq(1)]
        return free
