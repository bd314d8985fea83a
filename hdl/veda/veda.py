"""VEDA: attention over a cache that votes its least important tokens out.

Sections 4 and 5 and Figure 7 of the paper: the arrays, the special functions, the voting engine and
the scheduler between them, and the streams to the memory outside.
"""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.flexible_pe_array import FlexiblePeArray
from hdl.veda.lane_softmax import LaneSoftmax
from hdl.veda.operand_feeder import OperandFeeder
from hdl.veda.scheduler import Scheduler
from hdl.veda.stream_links import connect_streams, join_handshake
from hdl.veda.veda_parameters import VedaParameters
from hdl.veda.voting_engine import VotingEngine


class Veda(Unit):
    """Decode attention of whole layers: scores, softmax, outputs, votes, eviction.

    For each instruction the accelerator writes a token's keys and values into the token's slot,
    multiplies the queries of all heads by the keys of all cached tokens (inner products), takes the
    softmax while that goes on, and sums the values weighted by it (outer products), while the
    voting engine counts the votes. Keys and values stand in memory alike, a token a row: none is
    ever transposed.

    **Latency** of a layer about ``2 * length * rounds + rounds * (fold + 1) + groups * drain + 60``
    cycles, `length` being the cached tokens, `rounds` the heads a lane. **Throughput** one beat of
    every memory channel a cycle; the layers' ends overlap. Voting costs no cycle.

    **Numerics** those of `FlexiblePeArray`, `ElementSerialSoftmax` and `VotingEngine`: scores,
    probabilities and outputs are FP16, sums FP32. Queries come scaled by ``1 / sqrt(head_size)``.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    instructions : In(stream)
        As in `Scheduler`. A layer's first instruction must `load` its length.
    vectors : In(stream)
        For each instruction: the token's keys, its values, its queries, a head a lane in each beat;
        lanes behind the last head are zero.
    outputs : Out(stream)
        For each instruction `rounds` beats: a head's output a lane.
    reads : Out(stream)
        Bursts to fetch: for each channel the address of the first token's line; `beats` tokens
        follow, each `lines` behind the one before. A burst must see the writes taken before it.
    words : In(stream)
        What the bursts fetch: a line of each channel.
    writes : Out(stream)
        Keys and values: an address, an enable and a line for each channel.
    counts_in, counts_out : In, Out(stream)
        The votes of a layer, as in `VotingEngine`.
    evictions : Out(stream)
        `layer` and `slot` of each victim.
    flags : Out(struct)
        `nan`, `infinite`: a head had no softmax, until `clear_flags`.
    clear_flags : In(1)
        As in `ElementSerialSoftmax`.
    overflow : Out(1)
        A token came when all slots were taken, and took the last one. Until reset.

    Raises
    ------
    ValueError
        By `VedaParameters`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "instructions": In(stream.Signature(p.instruction_layout)),
                "vectors": In(stream.Signature(p.beat_layout)),
                "outputs": Out(stream.Signature(p.beat_layout)),
                "reads": Out(stream.Signature(p.read_layout)),
                "words": In(stream.Signature(p.beat_layout)),
                "writes": Out(stream.Signature(p.write_layout)),
                "counts_in": In(stream.Signature(p.voting.count_bits)),
                "counts_out": Out(stream.Signature(p.voting.count_bits)),
                "evictions": Out(stream.Signature(p.eviction_layout)),
                "flags": Out(p.softmax.flags_layout),
                "clear_flags": In(1),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect."""
        m = Module()
        p = self.parameters
        m.submodules.scheduler = scheduler = Scheduler(parameters=p)
        m.submodules.feeder = feeder = OperandFeeder(parameters=p)
        m.submodules.softmax = softmax = LaneSoftmax(parameters=p)
        m.submodules.voting = voting = VotingEngine(parameters=p.voting)
        arrays = [FlexiblePeArray(parameters=p.array) for _ in range(p.copies)]
        for source, sink in (
            (self.instructions, scheduler.instructions),
            (self.vectors, scheduler.vectors),
            (scheduler.writes, self.writes),
            (scheduler.reads, self.reads),
            (scheduler.evictions, self.evictions),
            (scheduler.passes, feeder.passes),
            (scheduler.queries, feeder.queries),
            (self.words, feeder.words),
            (feeder.lengths, softmax.lengths),
            (softmax.probabilities, feeder.probabilities),
            (feeder.votes, voting.probabilities),
            (scheduler.steps, voting.layers),
            (voting.victims, scheduler.victims),
            (self.counts_in, voting.counts_in),
            (voting.counts_out, self.counts_out),
        ):
            connect_streams(m, source, sink)
        for copy, array in enumerate(arrays):
            m.submodules[f"array_{copy}"] = array
            connect_streams(m, feeder.operands[copy], array.operands)
            connect_streams(m, feeder.vectors[copy], array.vector)
            m.d.comb += self.outputs.payload[copy].eq(array.results.payload)
            for lane in range(p.array_lanes):
                score = softmax.scores.payload[copy * p.array_lanes + lane]
                m.d.comb += score.eq(array.dot_products.payload[lane])
        scored = [array.dot_products for array in arrays]
        finished = [array.results for array in arrays]
        m.d.comb += [
            softmax.scores.valid.eq(join_handshake(m, scored, softmax.scores.ready)),
            self.outputs.valid.eq(join_handshake(m, finished, self.outputs.ready)),
            softmax.clear_flags.eq(self.clear_flags),
            self.flags.eq(softmax.flags),
            self.overflow.eq(scheduler.overflow),
        ]
        return m
