"""The votes of a layer added up, and the slot with the most of them."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.saturating_add import saturate
from hdl.memory.memory import Memory
from hdl.unit import Unit
from hdl.veda.voting.voting_parameters import VotingEngineParameters

SHORT = 4
"""Slots below which a pass would read counts that the pass before has not written yet."""


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """What a pass over the slots is for, and which round of heads it counts.

    Parameters
    ----------
    counting, searching, spilling : Value
        It adds votes, finds a further victim, or sends the counts that are left.
    first_round, last_round : Value
        The heads whose votes are counted are a layer's first or last.
    """

    counting: Value
    searching: Value
    spilling: Value
    first_round: Value
    last_round: Value


class VoteCounter(Unit):
    """Go over a layer's slots, once for each round of heads: add, compare, send.

    Victims need no mark: they come in the order of falling counts and, among equal counts, of
    rising slots, so that the last victim alone says of every slot whether it has been one.

    **Latency** a count leaves 2 cycles after its votes came, a victim 3 cycles after the last of
    them. **Throughput** one slot a cycle, from pass to pass and from step to step; a pass over
    fewer than 4 slots, a further victim and the counts behind it wait for the pass before.

    **Numerics** unsigned counts, saturated.

    Parameters
    ----------
    parameters : VotingEngineParameters
        Dimensions.

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
        # The slot that is read, added up, compared, and whether they move; here, where a proof can
        # name them.
        self.advance = Signal()
        self.items = [Signal(item, name=f"item_{stage}", reset_less=True) for stage in range(3)]
        self.valid = [Signal(name=f"valid_{stage}") for stage in range(3)]
        self.total = Signal(p.count_bits, reset_less=True)
        self.best = Signal(p.victim_layout, reset_less=True)

    def elaborate(self, platform: Any) -> Module:
        """Walk over the slots; read, add and write, compare."""
        m = Module()
        p = self.parameters
        m.submodules.counts = counts = Memory(depth=p.capacity, width=p.count_bits)
        # Three stages: read a slot's count, add to it, compare and write it. They move together.
        advance = self.advance
        self._walk(m, advance)
        item, adding, compared = self.items
        with m.If(advance):
            for stage in (1, 2):
                m.d.sync += [
                    self.items[stage].eq(self.items[stage - 1]),
                    self.valid[stage].eq(self.valid[stage - 1]),
                ]

        # In a layer's first round the counts come from outside, from then on from the memory. The
        # token's own slot starts at zero, whatever the evicted token before it had.
        brought = Signal(p.count_bits, reset_less=True)
        added = Signal(p.votes_shape, reset_less=True)
        step = self.layers.payload
        with m.If(advance):
            m.d.sync += [
                added.eq(Mux(self.votes.ready, self.votes.payload, 0)),
                brought.eq(Mux(item.slot == step.new_slot, 0, self.counts_in.payload)),
            ]
        count = Mux(adding.fresh, brought, counts.read_data)
        total, _saturated = saturate(count + added, Shape(p.count_bits))
        m.d.comb += [
            counts.read_enable.eq(advance),
            counts.read_address.eq(item.slot),
            counts.write_enable.eq(self.valid[2] & advance),
            counts.write_address.eq(compared.slot),
            counts.write_data.eq(self.total),
        ]
        with m.If(advance):
            m.d.sync += self.total.eq(total)
        self._search(m, advance)
        return m

    def _walk(self, m: Module, advance: Signal) -> None:
        """Decide which slot is read, and what for."""
        p = self.parameters
        step, item = self.layers.payload, self.items[0]
        slot, ends = Signal(p.slot_bits), Signal()
        now = self._sequence(m, ends)
        counts_last = now.counting & now.last_round
        settled = ~(self.valid[1] | self.valid[2])
        begins = slot == 0
        m.d.comb += [
            item.slot.eq(slot),
            item.first.eq(begins),
            item.last.eq(slot + 1 == step.length),
            item.fresh.eq(now.counting & now.first_round),
            item.searches.eq((counts_last & step.evictions.any()) | now.searching),
            # Several victims first: which counts are left is known behind the last of them.
            item.sends.eq((counts_last & ~(step.evictions > 1)) | now.spilling),
            item.selects.eq(~now.counting),
        ]
        # A further search has to know the victim before it begins.
        free = ~begins | settled | (now.counting & (step.length >= SHORT))
        read = self.layers.valid & free & advance
        takes_votes, takes_count = step.vote & now.counting, item.fresh
        m.d.comb += [
            self.valid[0].eq(
                read & (self.votes.valid | ~takes_votes) & (self.counts_in.valid | ~takes_count)
            ),
            # A join of those that the slot needs: each is taken only when the other is there.
            self.votes.ready.eq(read & takes_votes & (self.counts_in.valid | ~takes_count)),
            self.counts_in.ready.eq(read & takes_count & (self.votes.valid | ~takes_votes)),
        ]
        with m.If(self.valid[0]):
            m.d.sync += slot.eq(Mux(item.last, 0, slot + 1))
        m.d.comb += [
            ends.eq(self.valid[0] & item.last),
            self.layers.ready.eq(ends & item.sends),
        ]

    def _sequence(self, m: Module, ends: Value) -> _Pass:
        """Follow the passes of a step; `ends` is a pass's last slot."""
        p, step = self.parameters, self.layers.payload
        head_round = Signal(range(p.rounds))
        # Victims that are still to be found behind this pass.
        left = Signal(p.threshold.length_bits)
        counting, searching, spilling, last_round = Signal(), Signal(), Signal(), Signal()
        m.d.comb += last_round.eq((head_round == p.rounds - 1) | ~step.vote)
        with m.FSM():
            # Add a round's votes, or none; the last such pass also finds the first victim.
            with m.State("COUNT"):
                m.d.comb += counting.eq(1)
                with m.If(ends):
                    m.d.sync += [
                        head_round.eq(Mux(last_round, 0, head_round + 1)),
                        left.eq(step.evictions - 1),
                    ]
                    with m.If(last_round & (step.evictions > 1)):
                        m.next = "SEARCH"
            # Find one more victim in each pass.
            with m.State("SEARCH"):
                m.d.comb += searching.eq(1)
                with m.If(ends):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 1):
                        m.next = "SPILL"
            # Send the counts that are left.
            with m.State("SPILL"):
                m.d.comb += spilling.eq(1)
                with m.If(ends):
                    m.next = "COUNT"
        return _Pass(
            counting=counting,
            searching=searching,
            spilling=spilling,
            first_round=head_round == 0,
            last_round=last_round,
        )

    def _search(self, m: Module, advance: Signal) -> None:
        """Compare the new counts, send them, name the victim."""
        p = self.parameters
        item, valid = self.items[2], self.valid[2]
        victim, best = self.victims, self.best
        # The last victim stays in the output register, where the next search compares with it.
        last_victim = victim.payload
        eligible = Signal()
        m.d.comb += eligible.eq(item.slot >= p.reserved if p.protect_sink else 1)
        later = (self.total == last_victim.votes) & (item.slot > last_victim.slot)
        remains = last_victim.found & ((self.total < last_victim.votes) | later)
        candidate = eligible & (remains | ~item.selects)

        after = Signal(p.victim_layout)
        # The best so far belongs to this pass: at its first slot there is none.
        none = item.first | ~best.found
        m.d.comb += [after.eq(best), after.found.eq(~none)]
        # Strictly more: among equals the lowest slot stays.
        with m.If(candidate & (none | (self.total > best.votes))):
            m.d.comb += [
                after.slot.eq(item.slot),
                after.votes.eq(self.total),
                after.found.eq(1),
            ]
        names, sends, blocked = valid & item.searches & item.last, Signal(), Signal()
        # What was a victim is not sent: the reader packs the counts that are left.
        keeps = ~item.selects | ~eligible | remains
        m.d.comb += [
            # The last count leaves together with the victim: a victim not yet taken stops the walk.
            blocked.eq(names & victim.valid),
            sends.eq(valid & item.sends & keeps),
            self.counts_out.valid.eq(sends & ~blocked),
            self.counts_out.payload.eq(self.total),
            advance.eq(~blocked & (~sends | self.counts_out.ready)),
        ]
        with m.If(valid & advance):
            m.d.sync += best.eq(after)
        with m.If(names & advance):
            m.d.sync += [victim.payload.eq(after), victim.valid.eq(1)]
        with m.Elif(victim.ready):
            m.d.sync += victim.valid.eq(0)
