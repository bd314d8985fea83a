"""The votes of a layer added up, and the slot with the most of them."""

from typing import Any

from amaranth.hdl import Module, Mux, Shape, Signal, unsigned
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.saturating_add import saturate
from hdl.memory.memory import Memory
from hdl.unit import Unit
from hdl.veda.voting.voting_parameters import VotingEngineParameters

SHORT = 4
"""Slots below which a pass would read counts that the pass before has not written yet."""


class Phase(enum.Enum, shape=2):
    """What a pass over the slots is for."""

    COUNT = 0
    """Add a round's votes, or none; the last such pass also finds the first victim."""

    SEARCH = 1
    """Find one more victim."""

    SPILL = 2
    """Send the counts that are left."""


class VoteCounter(Unit):
    """Go over a layer's slots, once for each round of heads: add, compare, send.

    Victims need no mark: they come in the order of falling counts and, among equal counts, of
    rising slots, so that the last victim tells of every slot whether it has been one.

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
        self.items = [Signal(item, name=f"item_{rank}", reset_less=True) for rank in range(3)]
        self.valid = [Signal(name=f"valid_{rank}") for rank in range(3)]
        self.total = Signal(p.count_bits, reset_less=True)
        self.best = Signal(p.victim_layout, reset_less=True)

    def elaborate(self, platform: Any) -> Module:
        """Walk over the slots; read, add and write, compare."""
        m = Module()
        p = self.parameters
        m.submodules.counts = counts = Memory(depth=p.capacity, width=p.count_bits)
        advance = self.advance
        self._walk(m, advance)
        item, adding, compared = self.items
        with m.If(advance):
            for rank in (1, 2):
                m.d.sync += [
                    self.items[rank].eq(self.items[rank - 1]),
                    self.valid[rank].eq(self.valid[rank - 1]),
                ]

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
        phase, slot = Signal(Phase), Signal(p.slot_bits)
        turn = Signal(range(p.rounds))
        left = Signal(p.threshold.length_bits)

        counting, first_turn, last_turn = phase == Phase.COUNT, turn == 0, Signal()
        several = step.evictions > 1
        settled = ~(self.valid[1] | self.valid[2])
        begins = slot == 0
        m.d.comb += [
            last_turn.eq((turn == p.rounds - 1) | ~step.vote),
            item.slot.eq(slot),
            item.first.eq(begins),
            item.last.eq(slot + 1 == step.length),
            item.fresh.eq(counting & first_turn),
            item.searches.eq(
                (counting & last_turn & step.evictions.any()) | (phase == Phase.SEARCH)
            ),
            item.sends.eq((counting & last_turn & ~several) | (phase == Phase.SPILL)),
            item.selects.eq(~counting),
        ]
        # A further search has to know the victim before it begins.
        free = ~begins | settled | (counting & (step.length >= SHORT))
        goes = self.layers.valid & free & advance
        takes_votes, takes_count = step.vote & counting, item.fresh
        m.d.comb += [
            self.valid[0].eq(
                goes & (self.votes.valid | ~takes_votes) & (self.counts_in.valid | ~takes_count)
            ),
            self.votes.ready.eq(goes & takes_votes & (self.counts_in.valid | ~takes_count)),
            self.counts_in.ready.eq(goes & takes_count & (self.votes.valid | ~takes_votes)),
        ]
        ends = self.valid[0] & item.last
        with m.If(self.valid[0]):
            m.d.sync += slot.eq(Mux(item.last, 0, slot + 1))
        with m.If(ends):
            with m.Switch(phase):
                with m.Case(Phase.COUNT):
                    m.d.sync += [turn.eq(Mux(last_turn, 0, turn + 1)), left.eq(step.evictions - 1)]
                    with m.If(last_turn & several):
                        m.d.sync += phase.eq(Phase.SEARCH)
                with m.Case(Phase.SEARCH):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 1):
                        m.d.sync += phase.eq(Phase.SPILL)
                with m.Default():
                    m.d.sync += phase.eq(Phase.COUNT)
        m.d.comb += self.layers.ready.eq(ends & item.sends)

    def _search(self, m: Module, advance: Signal) -> None:
        """Compare the new counts, send them, name the victim."""
        p = self.parameters
        item, valid = self.items[2], self.valid[2]
        victim, best = self.victims, self.best
        last_victim = victim.payload
        eligible = Signal()
        m.d.comb += eligible.eq(item.slot >= p.reserved if p.protect_sink else 1)
        later = (self.total == last_victim.votes) & (item.slot > last_victim.slot)
        remains = last_victim.found & ((self.total < last_victim.votes) | later)
        candidate = eligible & (remains | ~item.selects)

        after = Signal(p.victim_layout)
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
        keeps = ~item.selects | ~eligible | remains
        m.d.comb += [
            # The last count goes together with the victim.
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
