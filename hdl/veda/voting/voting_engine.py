"""VEDA's voting engine: counts the heads' votes against cached tokens, and selects the victim.

Section III, Figure 3, and Section V, Figure 7, of the paper. A FIFO holds a head's probabilities
until its threshold is known; its votes are counted while the next head arrives.
"""

from amaranth.hdl import Module, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.stream.connect import buffered, connect_streams
from hdl.unit import Unit
from hdl.veda.voting.vote_comparator import VoteComparator
from hdl.veda.voting.vote_counter import VoteCounter
from hdl.veda.voting.voting_parameters import VotingEngineParameters

__all__ = ["VotingEngine", "VotingEngineParameters"]


class VotingEngine(Unit):
    """Accumulate the votes of a layer's heads, one token per step, and select the token to evict.

    A step reads the layer's counts from `counts_in` while the first heads' votes are added, and
    outputs them to `counts_out` while the last heads' votes are added: no separate load or store is
    needed. The old count of the slot that the token has taken is ignored: it starts at zero. A new
    text therefore needs no initialisation, since every slot is new once.

    The paper's rules in terms of steps. *Reserved stage*: `vote` = 0, and no probabilities arrive.
    *Prefill*: `evictions` = 0. *End of prefill*: `evictions` is the number of tokens over the
    limit; the victims are output in the order of their slots, and only the remaining counts are
    output. *Generation*: `evictions` = 1; all counts are output, and the next token takes the
    victim's slot. The engine compares counts that include this step's votes.

    **Latency** `threshold.latency + length + 3` cycles from the last probability of the layer to
    the victim; several victims are output in a pass of `length` cycles after a search, as in
    `VoteCounter`. **Throughput** one probability per lane and cycle, from head to head and from
    layer to layer. Each head must have at least `threshold.interval` elements and a quarter of the
    previous head's elements, and the streams of counts must not stall. A step without probabilities
    takes `length` cycles.

    **Numerics** votes as in `VoteComparator`: against each probability strictly below the
    threshold, or only against the smallest one if the threshold is negative (the fallback). With
    `threshold.fallback` = false a head with a negative threshold casts no vote. Counts are unsigned
    and saturate. Ties resolve to the lowest slot.

    Parameters
    ----------
    parameters : VotingEngineParameters
        Dimensions of the voting engine.

    Members
    -------
    coefficients : In(struct)
        Coefficients a and b, as in `VoteThreshold`: calibrated for each model.
    steps : In(stream)
        A step. `length`: number of cached tokens, 1 to `slots`, this token included. `vote`: the
        probabilities of all heads arrive, `length` beats for each `lanes` heads. `new_slot`: the
        token's slot. `evictions`: number of victims to find. Transferred with the step's last
        element.
    probabilities : In(stream)
        For each slot from 0 on, the `values` of all lanes; `last` in the heads' last beat. Lanes
        without a head do not vote. May arrive before the step.
    counts_in : In(stream)
        The layer's counts in the order of slots, `length` for each step.
    counts_out : Out(stream)
        The new counts: `length` of them, or `length - evictions` if `evictions` is above 1.
    victims : Out(stream)
        `slot`, its count `votes`, and `found`: 0 if no slot was left to evict.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `VotingEngineParameters`.
    """

    def __init__(self, *, parameters: VotingEngineParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "coefficients": In(p.threshold.coefficients_layout),
                "steps": In(stream.Signature(p.step_layout)),
                "probabilities": In(stream.Signature(p.beat_layout)),
                "counts_in": In(stream.Signature(unsigned(p.count_bits))),
                "counts_out": Out(stream.Signature(unsigned(p.count_bits))),
                "victims": Out(stream.Signature(p.victim_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the comparator to the counter."""
        m = Module()
        m.submodules.comparator = comparator = VoteComparator(parameters=self.parameters)
        m.submodules.counter = counter = VoteCounter(parameters=self.parameters)
        # Cuts the path from the ready of the counts, through the thresholds of all lanes, to the
        # ready of the probabilities.
        votes = buffered(m, "votes_buffer", comparator.votes, depth=2)
        m.d.comb += comparator.coefficients.eq(self.coefficients)
        for source, sink in (
            (self.probabilities, comparator.probabilities),
            (votes, counter.votes),
            (self.steps, counter.steps),
            (self.counts_in, counter.counts_in),
            (counter.counts_out, self.counts_out),
            (counter.victims, self.victims),
        ):
            connect_streams(m, source, sink)
        return m
