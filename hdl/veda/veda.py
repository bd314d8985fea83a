"""VEDA: decoder layers over a cache that votes its least important tokens out.

Sections 4 and 5 and Figure 7 of the paper: the arrays, the special functions, the voting engine and
the scheduler between them, and the streams to the memory outside.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.stream.connect import buffered, connect_streams, fork_handshake, join_handshake
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.array.flexible_pe_array import FlexiblePeArray
from hdl.veda.control.linear_results import LinearResults
from hdl.veda.control.operand_feeder import OperandFeeder
from hdl.veda.control.residual_stream import ResidualStream
from hdl.veda.control.scheduler import Scheduler
from hdl.veda.control.serial_argmax import SerialArgmax
from hdl.veda.control.weight_buffer import WeightBuffer
from hdl.veda.functions.special_function_unit import SpecialFunctionUnit
from hdl.veda.parameters import VedaParameters
from hdl.veda.voting.voting_engine import VotingEngine

VECTORS_UNDER_WAY = 4
"""Vectors that the norm has begun to take and not yet given."""


class Veda(Unit):
    """Decode steps of whole layers: norms, matrices, attention, votes, eviction.

    The hidden state goes through a layer an element at a time. Before each norm stands a matrix of
    inner products, whose results come one by one: they are added to the state, and their squares
    summed, as they come. Behind each norm stands a matrix of outer products, which takes the
    normalised elements one by one. So the attention's scores are inner products and its outputs are
    outer ones, and no matrix, key or value is ever transposed.

    For each instruction the accelerator writes a token's keys and values into the token's slot,
    multiplies the queries of all heads by the keys of all cached tokens, takes the softmax while
    that goes on, and sums the values weighted by it, while the voting engine counts the votes. An
    instruction of attention alone is given keys, values and queries; one of a layer makes them of
    the hidden state, and adds to it what its other matrices make of the heads' outputs.

    A prompt goes through a layer in blocks of tokens: each line of a matrix is fetched once for all
    of a block's tokens, and waits for them in the weight buffer. Every token attends to those
    before it and itself, so that the causal mask's half of the work is never done.

    **Latency** of an attention about ``2 * length * rounds + rounds * (fold + 1) + groups * drain +
    60`` cycles, `length` being the cached tokens, `rounds` the heads a lane; of a layer that, all
    lines of its matrices, ``fold + 1`` for each row of results, and about 190 for each of its two
    norms. **Throughput** one beat of every memory channel a cycle; the layers' ends overlap. Voting
    costs no cycle.

    **Numerics** those of `FlexiblePeArray`, `SpecialFunctionUnit`, `ResidualStream` and
    `VotingEngine`: whatever leaves a unit is FP16, sums are FP29. The weights of the norms and ``1
    / sqrt(head_size)`` belong into the matrices.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    weights : In(struct)
        Those of the votes' thresholds, as in `VoteThreshold`.
    instructions : In(stream)
        As in `Scheduler`. A layer's first instruction must `load` its length.
    vectors : In(stream)
        For each instruction of attention alone: the token's keys, its values, its queries, a head a
        lane in each beat, each beat for all tokens of a block; lanes behind the last head are zero.
    states_in : In(stream)
        Hidden states for the first instruction of a layer, and for each that follows one with
        `leave`, an element at a time, as many as the instruction has tokens; `last` with the last
        element of all.
    outputs : Out(stream)
        For each token of attention alone `rounds` beats: a head's output a lane.
    states_out : Out(stream)
        For each instruction of a layer with `leave` the hidden states behind it; `last` with each
        one's last element.
    predictions : Out(stream)
        With a vocabulary: for each token of an instruction that predicts, the `token` that follows
        it, and its unrounded `sum`.
    reads : Out(stream)
        Bursts to fetch: for each channel the address of the first line; `beats` lines follow, one
        behind the other. A burst must see the writes taken before it.
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
    undefined : Out(1)
        A hidden state had no norm, until `clear_flags`.
    clear_flags : In(1)
        As in `ElementSerialSoftmax`.
    overflow : Out(1)
        A token came when all slots were taken, and took the last one. Until reset.
    errors : Out(struct)
        `block`, `position`, `trimmed`: as in `Scheduler`. `states`: the `last` of `states_in` did
        not come with the last element of a block. Until reset.

    Raises
    ------
    ValueError
        By `VedaParameters`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "weights": In(p.voting.threshold.weights_layout),
                "instructions": In(stream.Signature(p.instruction_layout)),
                "vectors": In(stream.Signature(p.beat_layout)),
                "states_in": In(stream.Signature(p.state_layout)),
                "outputs": Out(stream.Signature(p.beat_layout)),
                "states_out": Out(stream.Signature(p.state_layout)),
                "reads": Out(stream.Signature(p.read_layout)),
                "words": In(stream.Signature(p.beat_layout)),
                "writes": Out(stream.Signature(p.write_layout)),
                "counts_in": In(stream.Signature(p.voting.count_bits)),
                "counts_out": Out(stream.Signature(p.voting.count_bits)),
                "evictions": Out(stream.Signature(p.eviction_layout)),
                "flags": Out(p.softmax.flags_layout),
                "undefined": Out(1),
                "clear_flags": In(1),
                "overflow": Out(1),
                "errors": Out(p.errors_layout),
            }
            | ({"predictions": Out(stream.Signature(p.prediction_layout))} if p.vocabulary else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect."""
        m = Module()
        p = self.parameters
        m.submodules.scheduler = scheduler = Scheduler(parameters=p)
        m.submodules.feeder = feeder = OperandFeeder(parameters=p)
        m.submodules.functions = functions = SpecialFunctionUnit(parameters=p.functions)
        m.submodules.voting = voting = VotingEngine(parameters=p.voting)
        m.submodules.results = results = LinearResults(parameters=p)
        m.submodules.residual = residual = ResidualStream(parameters=p)
        for source, sink in (
            (self.instructions, scheduler.instructions),
            (self.vectors, scheduler.vectors),
            (results.projections, scheduler.projections),
            (scheduler.writes, self.writes),
            (scheduler.reads, self.reads),
            (scheduler.evictions, self.evictions),
            (scheduler.passes, feeder.passes),
            (self._words(m, feeder), feeder.words),
            (feeder.lengths, functions.lengths),
            (scheduler.steps, voting.layers),
            (voting.victims, scheduler.victims),
            (self.counts_in, voting.counts_in),
            (voting.counts_out, self.counts_out),
            (scheduler.blocks, residual.blocks),
            (self.states_in, residual.states_in),
            (residual.states_out, self.states_out),
            (feeder.angles, results.angles),
            (results.pairs, functions.pairs),
            (functions.rotated, results.rotated),
            (results.operands, functions.operands),
            (functions.activated, results.activated),
            (results.outputs, self.outputs),
            # Whether one of them waits must not decide in the same cycle whether the others move.
            (buffered(m, "probabilities", functions.probabilities, depth=2), feeder.probabilities),
            (buffered(m, "votes", feeder.votes, depth=2), voting.probabilities),
        ):
            connect_streams(m, source, sink)
        for name, _field in p.instruction_errors_layout:
            m.d.comb += self.errors[name].eq(scheduler.errors[name])
        m.d.comb += [
            self.errors.states.eq(residual.misplaced),
            voting.weights.eq(self.weights),
            # A matrix of sums is done when its last sum is in the state, and only then.
            feeder.finished.eq(residual.finished),
            residual.leave.eq(feeder.leave),
            residual.predict.eq(feeder.predict),
            functions.clear_flags.eq(self.clear_flags),
            self.flags.eq(functions.flags),
            self.undefined.eq(functions.undefined),
            self.overflow.eq(scheduler.overflow),
        ]
        self._hold_queries(m, scheduler.queries, feeder)
        self._hold_slices(m, results.slices, feeder)
        self._normalise(m, residual.elements, functions, feeder)
        self._place_arrays(m, feeder, functions, residual, results)
        return m

    def _words(self, m: Module, feeder: OperandFeeder) -> Any:
        """Return memory's lines, behind the weight buffer if a block's tokens share them."""
        if self.parameters.block == 1:
            return self.words
        m.submodules.weights = weights = WeightBuffer(parameters=self.parameters)
        connect_streams(m, self.words, weights.source)
        m.d.comb += [weights.hold.eq(feeder.hold), weights.replay.eq(feeder.replay)]
        return weights.sink

    def _hold_queries(self, m: Module, source: Any, feeder: OperandFeeder) -> None:
        """Hold all queries of a block until their passes, those of an array in its own memory."""
        p, sink = self.parameters, feeder.queries
        # They come head by head and are read token by token, each once: so they are placed, and
        # nothing is read before the last is there.
        waiting = []
        for copy in range(p.copies):
            queries = ReplayBuffer(
                shape=p.array.vector_layout, depth=p.queries, placed=True, follows=False
            )
            m.submodules[f"queries_{copy}"] = queries
            item = queries.source.payload
            m.d.comb += [
                item.item.eq(source.payload.item[copy]),
                item.place.eq(source.payload.place),
                item.last.eq(source.payload.last),
                queries.release.eq(feeder.release_queries),
                sink.payload[copy].eq(queries.sink.payload),
            ]
            waiting.append(queries)
        m.d.comb += [
            source.ready.eq(fork_handshake(m, source.valid, [one.source for one in waiting])),
            sink.valid.eq(join_handshake(m, [one.sink for one in waiting], sink.ready)),
        ]

    def _hold_slices(self, m: Module, source: Any, feeder: OperandFeeder) -> None:
        """Hold the vectors that a matrix of inner products meets; all its outputs replay them."""
        p = self.parameters
        m.submodules.slices = slices = ReplayBuffer(
            shape=p.array.vector_layout, depth=p.slices, parts=2, placed=True
        )
        connect_streams(m, source, slices.source)
        connect_streams(m, slices.sink, feeder.slices)
        m.d.comb += slices.release.eq(feeder.release_slices)

    def _normalise(
        self, m: Module, elements: Any, functions: SpecialFunctionUnit, feeder: OperandFeeder
    ) -> None:
        """Give the norm its vectors, and hold the results, which all of a matrix's rows replay."""
        m.submodules.states = states = ReplayBuffer(
            shape=BINARY16.layout, depth=self.parameters.state_elements
        )
        connect_streams(m, states.sink, feeder.elements)
        # The norm knows vectors, not blocks: whether a vector is its block's last waits here.
        depth = min(VECTORS_UNDER_WAY, self.parameters.block)
        m.submodules.finals = finals = Fifo(shape=1, depth=depth)
        # A last element enters both or neither.
        source, sink, normalised = functions.elements, functions.normalised, states.source
        room = finals.source.ready | ~elements.payload.last
        m.d.comb += [
            states.release.eq(feeder.release_elements),
            source.valid.eq(elements.valid & room),
            source.payload.value.eq(elements.payload.value),
            source.payload.last.eq(elements.payload.last),
            elements.ready.eq(source.ready & room),
            finals.source.valid.eq(elements.valid & source.ready & elements.payload.last),
            finals.source.payload.eq(elements.payload.final),
            normalised.valid.eq(sink.valid),
            normalised.payload.item.eq(sink.payload.value),
            normalised.payload.last.eq(sink.payload.last & finals.sink.payload),
            sink.ready.eq(normalised.ready),
            finals.sink.ready.eq(sink.valid & sink.ready & sink.payload.last),
        ]

    def _predict(self, m: Module, arrays: list[FlexiblePeArray], results: LinearResults) -> None:
        """Look for the largest of the vocabulary's sums."""
        m.submodules.argmax = argmax = SerialArgmax(parameters=self.parameters)
        connect_streams(m, results.logits, argmax.rows)
        connect_streams(m, argmax.predictions, self.predictions)
        m.d.comb += [
            # In lock-step, as all that the arrays do.
            argmax.row_ends.eq(arrays[0].row_ends),
            Value.cast(argmax.row_sums).eq(Cat(Value.cast(a.row_sums) for a in arrays)),
        ]

    def _place_arrays(
        self,
        m: Module,
        feeder: OperandFeeder,
        functions: SpecialFunctionUnit,
        residual: ResidualStream,
        results: LinearResults,
    ) -> None:
        """Feed the arrays, and lead what they make to where it is used."""
        p = self.parameters
        unrounded = p.vocabulary > 0
        arrays = [FlexiblePeArray(parameters=p.array, unrounded=unrounded) for _ in range(p.copies)]
        if unrounded:
            self._predict(m, arrays, results)
        scores, sums, rows = functions.scores, residual.sums, results.rows
        # In lock-step: the arrays are given the same beat, and their results are taken together.
        for copy, array in enumerate(arrays):
            m.submodules[f"array_{copy}"] = array
            connect_streams(m, feeder.operands[copy], array.operands)
            connect_streams(m, feeder.vectors[copy], array.vector)
            m.d.comb += [
                rows.payload.values[copy].eq(array.results.payload),
                sums.payload[copy].eq(array.dot_products.payload[0]),
            ]
            for lane in range(p.array_lanes):
                score = scores.payload[copy * p.array_lanes + lane]
                m.d.comb += score.eq(array.dot_products.payload[lane])
        # The arrays hold scores or sums, never both: what the feeder works on says which they are.
        ready = (feeder.summing & sums.ready) | (~feeder.summing & scores.ready)
        dots = join_handshake(m, [array.dot_products for array in arrays], ready)
        m.d.comb += [
            scores.valid.eq(dots & ~feeder.summing),
            sums.valid.eq(dots & feeder.summing),
            rows.valid.eq(join_handshake(m, [array.results for array in arrays], rows.ready)),
            rows.payload.kind.eq(feeder.row_kind),
            rows.payload.last_token.eq(feeder.row_last_token),
        ]
