"""Prove that counts never wrap and that the victim is the first of the largest counts.

The harness follows one slot that the solver chooses: its count from `counts_in` through all rounds
of votes, and the condition on the victim. As the slot is any slot, the victim is the argmax of the
updated counts. Votes, counts, stalls and headers are free in every cycle; the search covers whole
steps of a tiny engine from reset.
"""

from amaranth.hdl import Elaboratable, Module, Mux, Signal

from hdl.veda.voting.threshold_parameters import VoteThresholdParameters
from hdl.veda.voting.vote_counter import VoteCounter
from hdl.veda.voting.voting_parameters import VotingEngineParameters
from testbenches.formal import AnyConst, AnySeq, Assert, Assume, MemoryRegisters, prove


class ArgmaxHarness(Elaboratable):
    """The counter, a model of one slot, and the assertions of every cycle."""

    def __init__(self, p: VotingEngineParameters) -> None:
        self.p = p

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self.p
        largest = (1 << p.count_bits) - 1
        m.submodules.counter = counter = VoteCounter(parameters=p)
        header = counter.steps.payload
        m.d.comb += [
            # One header for the whole run: the state after a step is the input of the same step.
            header.as_value().eq(AnyConst(p.step_layout.size)),
            counter.steps.valid.eq(1),
            counter.votes.valid.eq(AnySeq(1)),
            counter.votes.payload.eq(AnySeq(len(counter.votes.payload))),
            counter.counts_in.valid.eq(AnySeq(1)),
            counter.counts_in.payload.eq(AnySeq(p.count_bits)),
            counter.counts_out.ready.eq(AnySeq(1)),
            counter.victims.ready.eq(AnySeq(1)),
            Assume((header.length >= 1) & (header.length <= p.slots)),
            Assume(header.new_slot < header.length),
            Assume(counter.votes.payload <= p.lanes),
            Assume(header.evictions == 1),
        ]
        slot = Signal(p.slot_bits)
        m.d.comb += [slot.eq(AnyConst(p.slot_bits)), Assume(slot < header.length)]

        # The slot that is read, and the expected count of the chosen slot.
        head_round, place = Signal(range(p.rounds)), Signal(p.slot_bits)
        expected, updated = Signal(p.count_bits), Signal(p.count_bits + p.lanes.bit_length())
        reads = counter.valid[0]
        ends = reads & (place + 1 == header.length)
        last_round = (head_round == p.rounds - 1) | ~header.vote
        start = Mux(
            head_round == 0, Mux(slot == header.new_slot, 0, counter.counts_in.payload), expected
        )
        m.d.comb += updated.eq(start + Mux(header.vote, counter.votes.payload, 0))
        with m.If(reads):
            m.d.sync += place.eq(Mux(ends, 0, place + 1))
            with m.If(place == slot):
                m.d.sync += expected.eq(Mux(updated > largest, largest, updated))
        with m.If(ends):
            m.d.sync += head_round.eq(Mux(last_round, 0, head_round + 1))

        added = Signal.like(expected)
        with m.If(counter.advance):
            m.d.sync += added.eq(expected)

        # Expected outputs: the slot's count at its position, then a victim that is no worse.
        final, known = Signal(p.count_bits), Signal()
        comes = Signal(p.slot_bits)
        leaves = counter.counts_out.valid & counter.counts_out.ready
        due = leaves & (comes == slot)
        with m.If(leaves):
            m.d.sync += comes.eq(Mux(comes + 1 == header.length, 0, comes + 1))
        with m.If(due):
            m.d.sync += [final.eq(counter.counts_out.payload), known.eq(1)]
            m.d.comb += Assert(counter.counts_out.payload == added)
        victim = counter.victims.payload
        fresh, judged = Signal(), Signal(p.count_bits)
        closes = leaves & (comes + 1 == header.length)
        m.d.sync += fresh.eq(closes)
        with m.If(closes):
            m.d.sync += judged.eq(Mux(due, counter.counts_out.payload, final))
        no_worse = (victim.votes > judged) | ((victim.votes == judged) & (victim.slot <= slot))
        # A victim is held until it is accepted, and a later one waits for it.
        waits, offered = Signal(), Signal.like(victim)
        victims = counter.victims
        with m.If(fresh & ~waits):
            m.d.comb += [
                Assert(victims.valid & victim.found & no_worse),
                Assert((victim.slot != slot) | (victim.votes == judged)),
                Assert(victim.slot < header.length),
            ]
        m.d.sync += [waits.eq(victims.valid & ~victims.ready), offered.eq(victim)]
        with m.If(waits):
            m.d.comb += Assert(victims.valid & (victim.as_value() == offered.as_value()))
        return m


def test_victim_is_the_argmax_of_counts() -> None:
    p = VotingEngineParameters(
        threshold=VoteThresholdParameters(slots=4), heads=1, count_bits=2, reserved=0
    )
    platform = MemoryRegisters()
    prove(ArgmaxHarness(p), inputs=[], depth=9, induction=False, platform=platform)
