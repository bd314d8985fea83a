"""The voting comparator of Figure 7: a FIFO delays probabilities until their threshold is known."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.adder_tree import tree_sum
from hdl.memory.memory_fifo import MemoryFifo
from hdl.stream.connect import buffered, every, fork_handshake
from hdl.unit import Unit
from hdl.veda.voting.threshold_parameters import PROBABILITY_BITS
from hdl.veda.voting.vote_threshold import VoteThreshold
from hdl.veda.voting.voting_parameters import VotingEngineParameters


class VoteComparator(Unit):
    """Convert the probabilities of all heads to votes against each slot.

    **Latency** `threshold.latency + 1` cycles from a head's last probability to its first vote.
    **Throughput** one probability per lane and cycle, from head to head; the FIFO holds a whole
    head and the elements that arrive before its threshold is known.

    **Numerics** one vote for each lane whose probability is strictly below its threshold. If the
    threshold is negative, the only vote is against the head's lowest probability; ties resolve to
    the lowest slot. Without `threshold.fallback` there is no vote in this case.

    Parameters
    ----------
    parameters : VotingEngineParameters
        Dimensions of the voting engine.

    Members
    -------
    coefficients, probabilities
        As in `VotingEngine`.
    votes : Out(stream)
        Number of lanes that vote against slot 0, 1, ... for each round of heads.
    """

    def __init__(self, *, parameters: VotingEngineParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "coefficients": In(p.threshold.coefficients_layout),
                "probabilities": In(stream.Signature(p.beat_layout)),
                "votes": Out(stream.Signature(p.votes_shape)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fork each element to the FIFO and the threshold units; join them for the comparison."""
        m = Module()
        p = self.parameters
        # A threshold is known only after its head's last element: the FIFO holds a whole head.
        m.submodules.waiting = waiting = MemoryFifo(shape=p.waiting_layout, depth=p.fifo_depth)
        thresholds = [VoteThreshold(parameters=p.threshold) for _ in range(p.lanes)]
        beat = self.probabilities.payload
        sinks = [waiting.source, *(threshold.probabilities for threshold in thresholds)]
        m.d.comb += [
            self.probabilities.ready.eq(fork_handshake(m, self.probabilities.valid, sinks)),
            waiting.source.payload.last.eq(beat.last),
        ]
        outcomes = []
        for lane, threshold in enumerate(thresholds):
            m.submodules[f"threshold_{lane}"] = threshold
            m.d.comb += [
                threshold.coefficients.eq(self.coefficients),
                threshold.probabilities.payload.value.eq(beat.values[lane]),
                threshold.probabilities.payload.last.eq(beat.last),
                waiting.source.payload.values[lane].eq(
                    Value.cast(beat.values[lane])[:PROBABILITY_BITS]
                ),
            ]
            # The buffer holds a head's outcome while the head's elements are compared; meanwhile
            # the threshold unit's own register holds the next head's outcome.
            outcomes.append(buffered(m, f"outcome_{lane}", threshold.outcomes, depth=1))
        self._compare(m, waiting.sink, outcomes)
        return m

    def _compare(
        self, m: Module, element: stream.Interface, outcomes: Sequence[stream.Interface]
    ) -> None:
        """Compare each element of a head with its lane's threshold, and register the votes."""
        p = self.parameters
        moves, ends = Signal(), Signal()
        head_round = Signal(range(p.rounds))
        last_round = head_round == p.rounds - 1
        m.d.comb += [
            # The heads of all lanes have equal lengths, but their thresholds may arrive in
            # different cycles.
            moves.eq(
                element.valid
                & every([outcome.valid for outcome in outcomes])
                & (~self.votes.valid | self.votes.ready)
            ),
            ends.eq(moves & element.payload.last),
            element.ready.eq(moves),
        ]
        with m.If(ends):
            m.d.sync += head_round.eq(Mux(last_round, 0, head_round + 1))
        slot = Signal(p.slot_bits)
        with m.If(moves):
            m.d.sync += slot.eq(Mux(ends, 0, slot + 1))
        votes = []
        for lane, outcome in enumerate(outcomes):
            vote = Signal(name=f"vote_{lane}")
            # Codes of non-negative numbers compare like the numbers: no floating-point comparator
            # is needed.
            against = element.payload.values[lane] < outcome.payload.threshold
            if p.threshold.fallback:
                only = slot == outcome.payload.lowest
                against = Mux(outcome.payload.fallback, only, against)
            m.d.comb += outcome.ready.eq(ends)
            # The last round may have fewer heads than lanes.
            m.d.comb += vote.eq(
                against & ~last_round if p.lanes * (p.rounds - 1) + lane >= p.heads else against
            )
            votes.append(vote)
        with m.If(moves):
            m.d.sync += self.votes.payload.eq(tree_sum(votes))
        with m.If(~self.votes.valid | self.votes.ready):
            m.d.sync += self.votes.valid.eq(moves)
