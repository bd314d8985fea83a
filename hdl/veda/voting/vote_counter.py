"""Accumulated votes of a layer's slots, Figure 7 of the paper."""

from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.saturating_add import saturate
from hdl.memory.memory import Memory
from hdl.memory.threshold_search import ThresholdSearch, up_to
from hdl.stream.connect import connect_streams
from hdl.unit import Unit
from hdl.veda.voting.victim_selector import VictimSelector
from hdl.veda.voting.voting_parameters import CountUse, VotingEngineParameters

SHORT = 4
"""Minimum number of slots for which a pass does not overtake the writes of the previous pass."""


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """The current pass over the slots.

    Parameters
    ----------
    counts, selects : Value
        The pass adds a round's votes, or selects several victims. Neither: the counts are searched.
    first_round : Value
        The pass adds the votes of the step's first round of heads.
    use : EnumView
        Use of the counts of the pass.
    """

    counts: Value
    selects: Value
    first_round: Value
    use: "enum.EnumView[CountUse]"


class VoteCounter(Unit):
    """Add up votes: pass over a layer's slots once for each round of heads.

    The last of these passes also outputs the counts, and finds a single victim. For several
    victims, a search over many counts at a time first finds the smallest victim count, the
    threshold; one more pass then outputs the remaining counts and selects the victims.

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
    steps, counts_in, counts_out, victims
        As in `VotingEngine`.
    votes : In(stream)
        Votes against each slot, `length` for each round of heads of a step that votes.
    """

    def __init__(self, *, parameters: VotingEngineParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "steps": In(stream.Signature(p.step_layout)),
                "votes": In(stream.Signature(p.votes_shape)),
                "counts_in": In(stream.Signature(unsigned(p.count_bits))),
                "counts_out": Out(stream.Signature(unsigned(p.count_bits))),
                "victims": Out(stream.Signature(p.victim_layout)),
            }
        )
        item = data.StructLayout(
            {"slot": p.slot_bits, "first": 1, "last": 1, "fresh": 1, "use": CountUse}
        )
        # The slot in each stage (read, add, select) and the common enable; attributes, so that
        # proofs can use them.
        self.advance = Signal()
        self.items = [Signal(item, name=f"item_{stage}", reset_less=True) for stage in range(3)]
        self.valid = [Signal(name=f"valid_{stage}") for stage in range(3)]

    def elaborate(self, platform: object) -> Module:
        """Read a slot's count, add to it, then write it and pass it to the victims' selection."""
        m = Module()
        p = self.parameters
        m.submodules.counts = counts = Memory(
            depth=p.count_words, width=p.search_lanes * p.count_bits, granularity=p.count_bits
        )
        m.submodules.search = search = ThresholdSearch(
            shape=unsigned(p.count_bits), lanes=p.search_lanes, words=p.count_words, most=p.slots
        )
        m.submodules.selector = selector = VictimSelector(parameters=p)
        connect_streams(m, selector.counts, self.counts_out)
        connect_streams(m, selector.victims, self.victims)
        now = self._sequence(m, search)
        self._read(m, now)

        # The three stages advance together.
        read, total = self.items[0], self.items[2]
        advance, lane_bits = self.advance, ceil_log2(p.search_lanes)
        with m.If(advance):
            for stage in (1, 2):
                m.d.sync += [
                    self.items[stage].eq(self.items[stage - 1]),
                    self.valid[stage].eq(self.valid[stage - 1]),
                ]
        votes = self._add(m, counts.read_data)
        # The search uses the memory exclusively: all counts have been written, and none is read.
        searches = ~(now.counts | now.selects)
        m.d.comb += [
            advance.eq(~self.valid[2] | selector.totals.ready),
            counts.read_enable.eq(Mux(searches, search.read_enable, advance)),
            counts.read_address.eq(Mux(searches, search.read_address, read.slot[lane_bits:])),
            counts.write_enable.eq((self.valid[2] & advance) << total.slot[:lane_bits]),
            counts.write_address.eq(total.slot[lane_bits:]),
            counts.write_data.eq(votes.replicate(p.search_lanes)),
        ]
        selected = selector.totals.payload
        m.d.comb += [
            selector.totals.valid.eq(self.valid[2]),
            selected.votes.eq(votes),
            *(selected[name].eq(total[name]) for name in ("slot", "first", "last", "use")),
            selector.begin.eq(now.selects & read.first),
            selector.wanted.eq(self.steps.payload.evictions),
            selector.threshold.eq(search.threshold),
            selector.ties.eq(search.ties),
        ]
        self._find_threshold(m, search, counts.read_data, votes)
        return m

    def _sequence(self, m: Module, search: ThresholdSearch) -> _Pass:
        """Sequence the passes of a step."""
        step = self.steps.payload
        head_round, use = Signal(range(self.parameters.rounds)), Signal(CountUse)
        last_round, ends, settled = Signal(), Signal(), Signal()
        m.d.comb += [
            last_round.eq((head_round == self.parameters.rounds - 1) | ~step.vote),
            ends.eq(self.valid[0] & self.items[0].last),
            settled.eq(~(self.valid[1] | self.valid[2])),
        ]
        with m.FSM() as passes:
            # Add a round's votes, or none; the last such pass also finds a single victim.
            with m.State("COUNT"):
                with m.If(last_round & (step.evictions == 0)):
                    m.d.comb += use.eq(CountUse.OUTPUT)
                with m.Elif(last_round & (step.evictions == 1)):
                    m.d.comb += use.eq(CountUse.ARGMAX)
                with m.If(ends):
                    m.d.sync += head_round.eq(Mux(last_round, 0, head_round + 1))
                    with m.If(last_round & (step.evictions > 1)):
                        m.next = "SETTLE"
            # All counts must be in the memory before they are searched.
            with m.State("SETTLE"):
                m.d.comb += search.start.eq(settled)
                with m.If(settled):
                    m.next = "SEARCH"
            with m.State("SEARCH"), m.If(search.done):
                m.next = "SELECT"
            # Report the victims, and output the remaining counts.
            with m.State("SELECT"):
                m.d.comb += use.eq(CountUse.SELECT)
                with m.If(ends):
                    m.next = "COUNT"
        return _Pass(
            counts=passes.ongoing("COUNT"),
            selects=passes.ongoing("SELECT"),
            first_round=head_round == 0,
            use=use,
        )

    def _read(self, m: Module, now: _Pass) -> None:
        """Select the slot to read, and take the inputs that it needs."""
        p, step = self.parameters, self.steps.payload
        item, slot = self.items[0], Signal(p.slot_bits)
        # A short pass begins when all counts of the previous pass are in the memory.
        free = (slot != 0) | (step.length >= SHORT) | ~(self.valid[1] | self.valid[2])
        reads = self.steps.valid & (now.counts | now.selects) & free & self.advance
        # A join of the inputs that the slot needs: each is transferred only when the other is
        # valid.
        takes_votes, takes_count = step.vote & now.counts, item.fresh
        votes_known = self.votes.valid | ~takes_votes
        count_known = self.counts_in.valid | ~takes_count
        m.d.comb += [
            item.slot.eq(slot),
            item.first.eq(slot == 0),
            item.last.eq(slot + 1 == step.length),
            item.fresh.eq(now.counts & now.first_round),
            item.use.eq(now.use),
            self.valid[0].eq(reads & votes_known & count_known),
            self.votes.ready.eq(reads & takes_votes & count_known),
            self.counts_in.ready.eq(reads & takes_count & votes_known),
            # The step ends with the pass that outputs its counts.
            self.steps.ready.eq(self.valid[0] & item.last & (now.use != CountUse.STORE)),
        ]
        with m.If(self.valid[0]):
            m.d.sync += slot.eq(Mux(item.last, 0, slot + 1))

    def _add(self, m: Module, read: Value) -> Signal:
        """Add a slot's votes to its count; return the new count one stage later."""
        p = self.parameters
        item, adding = self.items[:2]
        # In a step's first round the counts are read from the input, in later rounds from the
        # memory. The count of the token's own slot starts at zero, whatever the evicted token's
        # count was.
        brought = Signal(p.count_bits, reset_less=True)
        added = Signal(p.votes_shape, reset_less=True)
        new_count = Signal(p.count_bits, name="votes", reset_less=True)
        word = data.View(data.ArrayLayout(p.count_bits, p.search_lanes), read)
        count = Mux(adding.fresh, brought, word[adding.slot[: ceil_log2(p.search_lanes)]])
        total, _saturated = saturate(count + added, Shape(p.count_bits))
        own = item.slot == self.steps.payload.new_slot
        with m.If(self.advance):
            m.d.sync += [
                added.eq(Mux(self.votes.ready, self.votes.payload, 0)),
                brought.eq(Mux(own, 0, self.counts_in.payload)),
                new_count.eq(total),
            ]
        return new_count

    def _find_threshold(
        self, m: Module, search: ThresholdSearch, word: Value, votes: Value
    ) -> None:
        """Search the counts of all candidates by bit, from the highest bit set in any of them."""
        p, step = self.parameters, self.steps.payload
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
            m.d.sync += seen.eq(Mux(self.items[2].first, 0, seen) | votes)
        m.d.comb += [
            last.eq(step.length - 1),
            search.wanted.eq(step.evictions),
            search.last_word.eq(last[ceil_log2(p.search_lanes) :]),
            search.highest.eq(Mux(seen.any(), below ^ (below >> 1), 1)),
            search.candidates.eq(inside),
            search.word.eq(word),
        ]
