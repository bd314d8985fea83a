"""Who votes against whom: probabilities wait for their head's threshold, then meet it."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.adder_tree import tree_sum
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import connect_streams, every, fork_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.voting.vote_threshold import PROBABILITY_BITS, VoteThreshold
from hdl.veda.voting.voting_parameters import VotingEngineParameters


class VoteCaster(Unit):
    """Turn the probabilities of all heads into votes against each slot.

    **Latency** of a head's first vote `threshold.latency + 1` cycles from the head's last
    probability. **Throughput** one probability a lane and cycle, from head to head; the FIFO holds
    a whole head and what arrives before its threshold is known.

    **Numerics** a vote for each lane whose probability is strictly below its threshold or, where
    that is negative, whose probability is the first smallest of its head.

    Parameters
    ----------
    parameters : VotingEngineParameters
        Dimensions.

    Members
    -------
    probabilities : In(stream)
        As in `VotingEngine`.
    votes : Out(stream)
        Lanes that vote against slot 0, 1, ... of each round of heads.
    """

    def __init__(self, *, parameters: VotingEngineParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "probabilities": In(stream.Signature(p.beat_layout)),
                "votes": Out(stream.Signature(p.votes_shape)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Give each element to the FIFO and to the thresholds; join them again."""
        m = Module()
        p = self.parameters
        kept = data.StructLayout(
            {"values": data.ArrayLayout(unsigned(PROBABILITY_BITS), p.lanes), "last": 1}
        )
        m.submodules.waiting = waiting = MemoryFifo(shape=kept, depth=p.fifo_depth)
        thresholds = [VoteThreshold(parameters=p.threshold) for _ in range(p.lanes)]
        beat = self.probabilities.payload
        sinks = [waiting.source, *(threshold.probabilities for threshold in thresholds)]
        m.d.comb += [
            self.probabilities.ready.eq(fork_handshake(m, self.probabilities.valid, sinks)),
            waiting.source.payload.last.eq(beat.last),
        ]
        for lane, threshold in enumerate(thresholds):
            m.submodules[f"threshold_{lane}"] = threshold
            m.d.comb += [
                threshold.probabilities.payload.value.eq(beat.values[lane]),
                threshold.probabilities.payload.last.eq(beat.last),
                waiting.source.payload.values[lane].eq(
                    Value.cast(beat.values[lane])[:PROBABILITY_BITS]
                ),
            ]

        element = waiting.sink
        outcomes = []
        for lane, threshold in enumerate(thresholds):
            # The threshold's own register holds the next head's outcome.
            kept_outcome = Fifo(shape=p.threshold.outcome_layout, depth=1)
            m.submodules[f"outcome_{lane}"] = kept_outcome
            connect_streams(m, threshold.outcomes, kept_outcome.source)
            outcomes.append(kept_outcome.sink)
        moves, ends = Signal(), Signal()
        slot, turn = Signal(p.slot_bits), Signal(range(p.rounds))
        last_turn = turn == p.rounds - 1
        m.d.comb += [
            moves.eq(
                element.valid
                & every([outcome.valid for outcome in outcomes])
                & (~self.votes.valid | self.votes.ready)
            ),
            ends.eq(moves & element.payload.last),
            element.ready.eq(moves),
        ]
        ballots = []
        for lane, outcome in enumerate(outcomes):
            ballot = Signal(name=f"ballot_{lane}")
            below = element.payload.values[lane] < outcome.payload.threshold
            against = Mux(outcome.payload.fallback, slot == outcome.payload.lowest, below)
            m.d.comb += outcome.ready.eq(ends)
            # The last round may have fewer heads than lanes.
            m.d.comb += ballot.eq(
                against & ~last_turn if p.lanes * (p.rounds - 1) + lane >= p.heads else against
            )
            ballots.append(ballot)
        with m.If(moves):
            m.d.sync += [
                self.votes.payload.eq(tree_sum(ballots)),
                slot.eq(Mux(ends, 0, slot + 1)),
            ]
        with m.If(ends):
            m.d.sync += turn.eq(Mux(last_turn, 0, turn + 1))
        with m.If(~self.votes.valid | self.votes.ready):
            m.d.sync += self.votes.valid.eq(moves)
        return m
