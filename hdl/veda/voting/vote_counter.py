"""Accumulated votes of a layer, and its victims: the slots with the most votes, Figure 7."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.saturating_add import saturate
from hdl.memory.memory import Memory
from hdl.memory.threshold_search import ThresholdSearch, up_to
from hdl.stream.connect import connect_streams
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit
from hdl.veda.voting.voting_parameters import VotingEngineParameters

SHORT = 4
"""Minimum number of slots for which a pass does not overtake the writes of the previous pass."""


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """The current pass over the slots.

    Parameters
    ----------
    counting, selecting : Value
        The pass adds votes, or selects several victims.
    first_round, last_round : Value
        The pass counts the votes of a layer's first or last round of heads.
    begins_search, searches : Value
        Between passes: the search for the threshold starts, or is in progress.
    surplus : Value
        Between passes: more victims were requested than there are candidates.
    left : Signal
        Victims that have yet to be reported.
    """

    counting: Value
    selecting: Value
    first_round: Value
    last_round: Value
    begins_search: Value
    searches: Value
    surplus: Value
    left: Signal


class VoteCounter(Unit):
    """Add up votes: pass over a layer's slots once for each round of heads.

    A single victim is the slot with the largest count in the last of these passes. For several
    victims, a search over many counts at a time first finds the smallest victim count, the
    threshold. One more pass then selects the slots above the threshold, and as many of those equal
    to it as needed, in slot order.

    **Latency** a count is output 2 cycles after its votes arrive, a victim 3 cycles after the last
    of them. Several victims, and the remaining counts, are output in one pass over the slots, which
    begins after ``bits * (length / search_lanes + 3) + 6`` cycles; ``bits`` is the width of the
    largest count. **Throughput** one slot per cycle, from pass to pass and from step to step; a
    pass over fewer than 4 slots waits for the previous pass.

    **Numerics** unsigned counts, saturated.

    Parameters
    ----------
    parameters : VotingEngineParameters
        Dimensions of the voting engine.

    Members
    -------
    layers, counts_in, counts_out, victims
        As in `VotingEngine`.
    votes : In(stream)
        Votes against each slot, `length` for each round of heads of a step that votes.
    """

    def __init__(self, *, parameters: VotingEngineParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "layers": In(stream.Signature(p.layer_layout)),
                "votes": In(stream.Signature(p.votes_shape)),
                "counts_in": In(stream.Signature(unsigned(p.count_bits))),
                "counts_out": Out(stream.Signature(unsigned(p.count_bits))),
                "victims": Out(stream.Signature(p.victim_layout)),
            }
        )
        item = data.StructLayout(
            {
                "slot": p.slot_bits,
                "first": 1,
                "last": 1,
                "fresh": 1,
                "searches": 1,
                "sends": 1,
                "selects": 1,
            }
        )
        # The slot in each stage (read, add, compare) and the common enable; attributes, so that
        # proofs can use them.
        self.advance = Signal()
        self.items = [Signal(item, name=f"item_{stage}", reset_less=True) for stage in range(3)]
        self.valid = [Signal(name=f"valid_{stage}") for stage in range(3)]
        self.total = Signal(p.count_bits, reset_less=True)
        self.best = Signal(p.victim_layout, reset_less=True)

    def elaborate(self, platform: object) -> Module:
        """Pass over the slots in three stages: read, add, then compare and write."""
        m = Module()
        p = self.parameters
        m.submodules.counts = counts = Memory(
            depth=p.count_words, width=p.search_lanes * p.count_bits, granularity=p.count_bits
        )
        m.submodules.search = search = ThresholdSearch(
            shape=unsigned(p.count_bits),
            lanes=p.search_lanes,
            words=p.count_words,
            most=p.slots,
        )
        m.submodules.named = named = RegisterSlice(shape=p.victim_layout)
        connect_streams(m, named.sink, self.victims)
        # Three stages: read a slot's count, add to it, compare and write it. They advance together.
        advance = self.advance
        now = self._walk(m, advance, search.done)
        item, adding, compared = self.items
        with m.If(advance):
            for stage in (1, 2):
                m.d.sync += [
                    self.items[stage].eq(self.items[stage - 1]),
                    self.valid[stage].eq(self.valid[stage - 1]),
                ]

        # In a layer's first round the counts are read from the input, in later rounds from the
        # memory. The count of the token's own slot starts at zero, whatever the evicted token's
        # count was.
        brought = Signal(p.count_bits, reset_less=True)
        added = Signal(p.votes_shape, reset_less=True)
        step, lane_bits = self.layers.payload, ceil_log2(p.search_lanes)
        with m.If(advance):
            m.d.sync += [
                added.eq(Mux(self.votes.ready, self.votes.payload, 0)),
                brought.eq(Mux(item.slot == step.new_slot, 0, self.counts_in.payload)),
            ]
        word = data.View(data.ArrayLayout(p.count_bits, p.search_lanes), counts.read_data)
        count = Mux(adding.fresh, brought, word[adding.slot[:lane_bits]])
        total, _saturated = saturate(count + added, Shape(p.count_bits))
        writes = self.valid[2] & advance
        m.d.comb += [
            # The search uses the memory exclusively: all counts have been written, and none is
            # read.
            counts.read_enable.eq(Mux(now.searches, search.read_enable, advance)),
            counts.read_address.eq(Mux(now.searches, search.read_address, item.slot[lane_bits:])),
            counts.write_enable.eq(writes << compared.slot[:lane_bits]),
            counts.write_address.eq(compared.slot[lane_bits:]),
            counts.write_data.eq(self.total.replicate(p.search_lanes)),
        ]
        with m.If(advance):
            m.d.sync += self.total.eq(total)
        self._find_threshold(m, search, now, counts.read_data)
        self._name(m, advance, search, now, named.source)
        return m

    def _walk(self, m: Module, advance: Signal, found: Value) -> _Pass:
        """Select the slot to read and its flags; `found` signals that the threshold is known."""
        p = self.parameters
        step, item = self.layers.payload, self.items[0]
        slot, ends, settled = Signal(p.slot_bits), Signal(), Signal()
        now = self._sequence(m, ends, settled, found)
        counts_last = now.counting & now.last_round
        begins = slot == 0
        m.d.comb += [
            settled.eq(~(self.valid[1] | self.valid[2])),
            item.slot.eq(slot),
            item.first.eq(begins),
            item.last.eq(slot + 1 == step.length),
            item.fresh.eq(now.counting & now.first_round),
            item.searches.eq(counts_last & (step.evictions == 1)),
            # With several victims the remaining counts are known only after the search for the
            # threshold.
            item.sends.eq((counts_last & ~(step.evictions > 1)) | now.selecting),
            item.selects.eq(now.selecting),
        ]
        free = ~begins | settled | (step.length >= SHORT)
        walks = now.counting | now.selecting
        read = self.layers.valid & walks & free & advance
        takes_votes, takes_count = step.vote & now.counting, item.fresh
        m.d.comb += [
            self.valid[0].eq(
                read & (self.votes.valid | ~takes_votes) & (self.counts_in.valid | ~takes_count)
            ),
            # A join of the inputs that the slot needs: each is transferred only when the other is
            # valid.
            self.votes.ready.eq(read & takes_votes & (self.counts_in.valid | ~takes_count)),
            self.counts_in.ready.eq(read & takes_count & (self.votes.valid | ~takes_votes)),
        ]
        with m.If(self.valid[0]):
            m.d.sync += slot.eq(Mux(item.last, 0, slot + 1))
        m.d.comb += [
            ends.eq(self.valid[0] & item.last),
            self.layers.ready.eq(ends & item.sends),
        ]
        return now

    def _sequence(self, m: Module, ends: Value, settled: Value, found: Value) -> _Pass:
        """Sequence the passes of a step; `ends` is a pass's last slot."""
        p, step = self.parameters, self.layers.payload
        head_round = Signal(range(p.rounds))
        left = Signal(p.threshold.length_bits)
        counting, selecting, last_round = Signal(), Signal(), Signal()
        begins_search, searches, surplus = Signal(), Signal(), Signal()
        m.d.comb += last_round.eq((head_round == p.rounds - 1) | ~step.vote)
        with m.FSM():
            # Add a round's votes, or none; the last such pass also finds a single victim.
            with m.State("COUNT"):
                m.d.comb += counting.eq(1)
                with m.If(ends):
                    m.d.sync += [
                        head_round.eq(Mux(last_round, 0, head_round + 1)),
                        left.eq(step.evictions),
                    ]
                    with m.If(last_round & (step.evictions > 1)):
                        m.next = "SETTLE"
            # All counts must be in the memory before they are searched.
            with m.State("SETTLE"):
                m.d.comb += begins_search.eq(settled)
                with m.If(settled):
                    m.next = "SEARCH"
            with m.State("SEARCH"):
                m.d.comb += searches.eq(1)
                with m.If(found):
                    m.next = "SELECT"
            # Report the victims, and output the remaining counts.
            with m.State("SELECT"):
                m.d.comb += selecting.eq(1)
                with m.If(ends):
                    m.next = "REST"
            # More victims may have been requested than there are candidates.
            with m.State("REST"):
                m.d.comb += surplus.eq(settled & left.any())
                with m.If(settled & ~left.any()):
                    m.next = "COUNT"
        return _Pass(
            counting=counting,
            selecting=selecting,
            first_round=head_round == 0,
            last_round=last_round,
            begins_search=begins_search,
            searches=searches,
            surplus=surplus,
            left=left,
        )

    def _find_threshold(self, m: Module, search: ThresholdSearch, now: _Pass, word: Value) -> None:
        """Search the counts of all candidates by bit, from the highest bit set in any of them."""
        p, step = self.parameters, self.layers.payload
        last = Signal(p.slot_bits)
        inside = up_to(last, search.read_address, p.search_lanes)
        if p.protect_sink and p.reserved:
            shielded = Const(min(p.reserved, p.slots) - 1, p.slot_bits)
            inside &= ~up_to(shielded, search.read_address, p.search_lanes)
        # The bits set in any count of the layer, then all bits below the highest of them.
        seen = Signal(p.count_bits, reset_less=True)
        below = seen
        for distance in (1, 2, 4, 8):
            below = below | below >> distance
        with m.If(self.valid[2] & self.advance):
            m.d.sync += seen.eq(Mux(self.items[2].first, 0, seen) | self.total)
        m.d.comb += [
            last.eq(step.length - 1),
            search.start.eq(now.begins_search),
            search.wanted.eq(step.evictions),
            search.last_word.eq(last[ceil_log2(p.search_lanes) :]),
            search.highest.eq(Mux(seen.any(), below ^ (below >> 1), 1)),
            search.candidates.eq(inside),
            search.word.eq(word),
        ]

    def _name(
        self, m: Module, advance: Signal, search: ThresholdSearch, now: _Pass, named: Any
    ) -> None:
        """Compare the new counts, output them, report the victims."""
        p = self.parameters
        item, valid, best = self.items[2], self.valid[2], self.best
        eligible = Signal()
        m.d.comb += eligible.eq(item.slot >= p.reserved if p.protect_sink and p.reserved else 1)

        after = Signal(p.victim_layout)
        # The maximum so far belongs to this pass: at its first slot there is none.
        none = item.first | ~best.found
        m.d.comb += [after.eq(best), after.found.eq(~none)]
        # Strict comparison: ties resolve to the lowest slot.
        with m.If(eligible & (none | (self.total > best.votes))):
            m.d.comb += [
                after.slot.eq(item.slot),
                after.votes.eq(self.total),
                after.found.eq(1),
            ]
        with m.If(valid & advance):
            m.d.sync += best.eq(after)

        # With several victims: the slots above the threshold, and the first of those equal to it.
        ties, equal, selected = Signal.like(search.ties, reset_less=True), Signal(), Signal()
        m.d.comb += [
            equal.eq((self.total == search.threshold) & ties.any()),
            selected.eq(item.selects & eligible & ((self.total > search.threshold) | equal)),
        ]
        names, sends, passes = Signal(), Signal(), Signal()
        m.d.comb += [
            names.eq(valid & ((item.searches & item.last) | selected)),
            # Counts of victims are not output: the reader packs the remaining counts.
            sends.eq(valid & item.sends & ~selected),
            # The last count is output together with the victim: a victim that is not accepted
            # stalls the pass.
            passes.eq(~names | named.ready),
            self.counts_out.valid.eq(sends & passes),
            self.counts_out.payload.eq(self.total),
            advance.eq(passes & (~sends | self.counts_out.ready)),
            named.valid.eq((names & advance) | now.surplus),
            named.payload.eq(after),
        ]
        with m.If(item.selects):
            m.d.comb += [
                named.payload.slot.eq(item.slot),
                named.payload.votes.eq(self.total),
                named.payload.found.eq(1),
            ]
        with m.If(now.surplus):
            m.d.comb += named.payload.found.eq(0)
        with m.If(named.ready & ((valid & advance & selected) | now.surplus)):
            m.d.sync += now.left.eq(now.left - 1)
        # The threshold is known when the first slot is read.
        with m.If(now.selecting & self.items[0].first):
            m.d.sync += ties.eq(search.ties)
        with m.Elif(valid & advance & selected & equal):
            m.d.sync += ties.eq(ties - 1)
