"""VEDA's voting engine: counts which cached tokens the heads find unimportant, and names a victim.

Section III, Figure 3, and Section V, Figure 7, of the paper. A head's probabilities wait in a FIFO
until its threshold is known; then its votes are counted while the next head arrives.
"""

from typing import Any

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
    """Add up the votes of a layer's heads, a token a step, and find whom to evict.

    A step takes the layer's counts from `counts_in` while the first heads' votes are added, and
    sends them to `counts_out` while the last heads' votes are: nothing is loaded or stored apart.
    The count of the slot that the token has taken is ignored: it begins at zero. So a step
    also begins a text: every slot is new once.

    The paper's rules in terms of steps. *Reserved stage*: `vote` = 0, and no probabilities come.
    *Prefill*: `evictions` = 0. *End of prefill*: `evictions` = as many as are too many; the victims
    come in the order of their slots, and beside them only the counts that are left are sent.
    *Generation*: `evictions` = 1; all counts are sent, and the next token takes the victim's slot.
    The engine compares counts that have this step's votes.

    **Latency** of a victim `threshold.latency + length + 3` cycles from the last probability of
    the layer; several ones leave in a pass of `length` cycles behind a search, as in `VoteCounter`.
    **Throughput** one probability a lane and cycle,
    from head to head and from layer to layer; nobody waits as long as a head has at least
    `threshold.interval` elements and a quarter of what the head before it has, and the counts keep
    pace. A step without probabilities takes
    `length` cycles.

    **Numerics** votes as in `VoteThreshold`: a probability strictly below the threshold, or the
    smallest one alone where the threshold is negative. Counts are unsigned and saturate. Among
    equal counts the lowest slot is the victim.

    Parameters
    ----------
    parameters : VotingEngineParameters
        Dimensions.

    Members
    -------
    weights : In(struct)
        As in `VoteThreshold`: calibrated for each model.
    layers : In(stream)
        A step: `length` slots are cached, 1 to capacity, the token's own included; `vote`: the
        probabilities of all heads come, `length` beats for each `lanes` heads; `new_slot`: the slot
        of the token; `evictions`: victims to find. Taken with the step's last element.
    probabilities : In(stream)
        For each slot from 0 on the `values` of all lanes, with `last` in the heads' last beat.
        Lanes behind the last head do not vote. May come before the step.
    counts_in : In(stream)
        The layer's counts in the order of slots, `length` for each step.
    counts_out : Out(stream)
        The new counts: `length` of them, or `length - evictions` if `evictions` is above 1.
    victims : Out(stream)
        `slot`, its count `votes`, and `found`: 0 if there was no slot left to evict.

    Raises
    ------
    ValueError
        By `VotingEngineParameters`.
    """

    def __init__(self, *, parameters: VotingEngineParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "weights": In(p.threshold.weights_layout),
                "layers": In(stream.Signature(p.layer_layout)),
                "probabilities": In(stream.Signature(p.beat_layout)),
                "counts_in": In(stream.Signature(unsigned(p.count_bits))),
                "counts_out": Out(stream.Signature(unsigned(p.count_bits))),
                "victims": Out(stream.Signature(p.victim_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compare on one side, count the votes on the other."""
        m = Module()
        m.submodules.comparator = comparator = VoteComparator(parameters=self.parameters)
        m.submodules.counter = counter = VoteCounter(parameters=self.parameters)
        # So that whether a count is taken does not decide, through the thresholds of all lanes,
        # whether probabilities are.
        votes = buffered(m, "votes_buffer", comparator.votes, depth=2)
        m.d.comb += comparator.weights.eq(self.weights)
        for source, sink in (
            (self.probabilities, comparator.probabilities),
            (votes, counter.votes),
            (self.layers, counter.layers),
            (self.counts_in, counter.counts_in),
            (counter.counts_out, self.counts_out),
            (counter.victims, self.victims),
        ):
            connect_streams(m, source, sink)
        return m
