"""VEDA: decoder layers with a KV cache whose least important tokens are evicted by voting.

Sections IV and V and Figure 7 of the paper: the arrays, the special function unit, the voting
engine and the scheduler, and the streams to off-chip memory.
"""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.memory.replay_buffer import ReplayBuffer
from hdl.stream.connect import (
    buffered,
    connect_registered,
    connect_streams,
    fork_handshake,
    join_handshake,
)
from hdl.stream.fifo import Fifo
from hdl.unit import Unit
from hdl.veda.array.flexible_pe_array import FlexiblePeArray
from hdl.veda.control.linear_results import LinearResults
from hdl.veda.control.logit_rows import LogitRows
from hdl.veda.control.operand_feeder import OperandFeeder
from hdl.veda.control.residual_stream import ResidualStream
from hdl.veda.control.sequencer import Scheduler
from hdl.veda.control.weight_buffer import WeightBuffer
from hdl.veda.functions.special_function_unit import SpecialFunctionUnit
from hdl.veda.parameters import VedaParameters
from hdl.veda.voting.voting_engine import VotingEngine

VECTORS_IN_FLIGHT = 4
"""Vectors in flight in the norm: accepted, and not yet output."""


class Veda(Unit):
    """Execute decode steps and prompts by layers: norms, matrices, attention, votes, eviction.

    The hidden state passes through a layer serially, one element at a time. Each norm follows a
    matrix of inner products, except the first norm of states that enter from outside: the matrix's
    results are added to the state as they are computed, and the norm accumulates the squares of the
    new state. A matrix of outer products follows each norm, and uses the normalised elements one by
    one. Accordingly the attention's scores are inner products and its outputs are outer products,
    and no matrix, key or value is ever transposed.

    For each instruction the accelerator writes a token's keys and values into the token's slot and
    multiplies the queries of all heads by the keys of all cached tokens. The softmax proceeds in
    parallel. Then it accumulates the values weighted by the probabilities, while the voting engine
    counts the votes of all heads. The field `evictions` of the instruction is the number of
    victims: the tokens with the most votes; ties resolve to the lowest slot. After one victim, the
    layer's next token takes its slot; after several, the host must load the layer again. An
    instruction of attention alone takes keys, values and queries as inputs. An instruction of a
    whole layer computes them from the hidden state, and adds the results of the layer's other
    matrices to the hidden state.

    A prompt passes through a layer in blocks of tokens: each line of a matrix is fetched once for
    all tokens of a block and held in the weight buffer. Every token attends to itself and to
    earlier tokens only, so the work that a causal mask would discard is never done.

    **Latency** of an attention about ``2 * length * rounds + rounds * fold + groups * drain + 40``
    cycles; `length` is the number of cached tokens, `rounds` the number of heads per lane, and
    `groups` that of groups of `scored_heads` heads; `fold` and `drain` are properties of
    `FlexiblePeArrayParameters`, 6 and 18 cycles at the paper's dimensions. A layer adds all lines
    of its matrices, `fold` cycles for each row of results, and about 190 cycles for each of
    its two norms. **Throughput** one beat per cycle: a line of every memory channel, which together
    have one FP16 operand for each processing element. The end of a layer overlaps with the
    beginning of the next. Voting takes no cycles.

    **Numerics** as in `FlexiblePeArray`, `SpecialFunctionUnit`, `ResidualStream` and
    `VotingEngine`: all outputs of units are FP16, sums are FP29 (7 exponent bits, 21 fraction bits,
    in which every product of two FP16 numbers is exact). The softmax is to the base 2. The matrices
    must include the weights of the norms, and that of the queries ``log2(e) / sqrt(head_size)``. A
    bias is the first term of its sum: it is multiplied by 1 and added without a rounding of its
    own. ReLU is exact.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    threshold_coefficients : In(struct)
        Coefficients a and b of the voting threshold, as in `VoteThreshold`.
    instructions : In(stream)
        See `hdl.veda.instructions.instruction_layout`. A layer's first instruction of a text, and
        its first one after several victims, must have `load`.
    vectors : In(stream)
        For each instruction of attention alone: keys, then values, then queries, one head per lane
        in each beat. The first beat of all tokens of the block precedes the second beat of all of
        them, and so on. Lanes without a head are zero.
    states_in : In(stream)
        Hidden states for the first instruction of a whole layer, and for each that follows one
        whose `leave` is not `Leave.STAY`: one element per transfer, for as many tokens as the
        instruction has; `last` marks the last element of the last token.
    outputs : Out(stream)
        For each token of attention alone, `rounds` beats: one head's output per lane.
    states_out : Out(stream)
        For each instruction of a layer with `leave` equal to `Leave.OUT`: the hidden states after
        that layer; `last` marks each state's last element.
    predictions : Out(stream)
        With a vocabulary, for each token of an instruction with `leave` equal to `Leave.PREDICT`:
        the argmax of the logits, which is the next `token`, and its logit `sum` in `sum_format`,
        before it is rounded to FP16.
    reads : Out(stream)
        Bursts to fetch: for each channel the address of the first line; `beats` consecutive lines
        follow. Memory must apply earlier writes before it serves a burst.
    words : In(stream)
        The lines of the bursts, one for each channel.
    writes : Out(stream)
        Keys and values: an address, an enable and a line for each channel.
    counts_in, counts_out : In, Out(stream)
        The vote counts of a layer, as in `VotingEngine`: one step for each token of each
        instruction, in order, also for tokens that do not vote. There is no address: memory derives
        the layer from the order of the instructions.
    evictions : Out(stream)
        `layer` and `slot` of each victim, in the order of the instructions.
    flags : Out(struct)
        `nan`: a head had a NaN among its scores; `infinite`: a head had no finite maximum. Held
        until `clear_flags`.
    undefined : Out(1)
        A norm's input had a NaN or an infinity. Held until `clear_flags`.
    clear_flags : In(1)
        As in `ElementSerialSoftmax`.
    overflow : Out(1)
        A token arrived when all slots were in use, and was assigned the last one. Held until reset.
    errors : Out(struct)
        `block`, `position`, `trimmed`: as in `Scheduler`. `states`: `last` of `states_in` did not
        mark the last element of a block. Held until reset.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `VedaParameters`.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "threshold_coefficients": In(p.voting.threshold.coefficients_layout),
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
            | (
                {"predictions": Out(stream.Signature(p.prediction_layout))}
                if p.vocabulary_size
                else {}
            )
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the parts."""
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
            (self._shared_lines(m, feeder), feeder.words),
            (scheduler.steps, voting.steps),
            (voting.victims, scheduler.victims),
            (self.counts_in, voting.counts_in),
            (voting.counts_out, self.counts_out),
            (scheduler.blocks, residual.blocks),
            (self.states_in, residual.states_in),
            (residual.states_out, self.states_out),
            *self._paired_functions(feeder, results, functions),
            (results.outputs, self.outputs),
            # Registers: the feeder forks probabilities to the arrays and to the voting engine. The
            # ready of one of them must not decide in the same cycle whether the other moves.
            (buffered(m, "probabilities", functions.probabilities, depth=2), feeder.probabilities),
            (buffered(m, "votes", feeder.votes, depth=2), voting.probabilities),
        ):
            connect_streams(m, source, sink)
        # A register keeps the handshake of a beat out of that of the scores. It delays no score,
        # which arrives many cycles after its beat has entered the arrays.
        connect_registered(m, feeder.lengths, functions.lengths)
        for name, _field in p.instruction_errors_layout:
            m.d.comb += self.errors[name].eq(scheduler.errors[name])
        m.d.comb += [
            self.errors.states.eq(residual.misplaced),
            voting.coefficients.eq(self.threshold_coefficients),
            # A pass of inner products of a matrix ends when its last sum has been added to the
            # state, and not earlier.
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

    def _paired_functions(
        self, feeder: OperandFeeder, results: LinearResults, functions: SpecialFunctionUnit
    ) -> list[tuple[stream.Interface, stream.Interface]]:
        """Return the streams to and from the functions of pairs of elements."""
        p = self.parameters
        connected = []
        if p.rotary:
            connected += [
                (feeder.angles, results.angles),
                (results.pairs, functions.pairs),
                (functions.rotated, results.rotated),
            ]
        if p.gated:
            connected += [
                (results.operands, functions.operands),
                (functions.activated, results.activated),
            ]
        return connected

    def _shared_lines(self, m: Module, feeder: OperandFeeder) -> stream.Interface:
        """Return the memory's lines, through the weight buffer if a block's tokens share them."""
        if self.parameters.block == 1:
            return self.words
        m.submodules.weight_buffer = weight_buffer = WeightBuffer(parameters=self.parameters)
        connect_streams(m, self.words, weight_buffer.source)
        m.d.comb += [weight_buffer.hold.eq(feeder.hold), weight_buffer.replay.eq(feeder.replay)]
        return weight_buffer.sink

    def _hold_queries(self, m: Module, source: stream.Interface, feeder: OperandFeeder) -> None:
        """Hold all queries of a block until their passes; each array has its own memory."""
        p, sink = self.parameters, feeder.queries
        # Queries arrive head by head and are read token by token, once each. Each has an assigned
        # place in the buffer (`placed`), and the first read waits for the last write (`follows`).
        waiting = []
        for copy in range(p.copies):
            queries = ReplayBuffer(
                shape=p.array.vector_layout, depth=p.query_entries, placed=True, follows=False
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

    def _hold_slices(self, m: Module, source: stream.Interface, feeder: OperandFeeder) -> None:
        """Hold the vectors for matrices of inner products; all outputs of a matrix replay them."""
        # `LinearResults` writes half a vector at a time.
        p = self.parameters
        m.submodules.slices = slices = ReplayBuffer(
            shape=p.array.vector_layout, depth=p.slice_entries, parts=2, placed=True
        )
        connect_streams(m, source, slices.source)
        connect_streams(m, slices.sink, feeder.slices)
        m.d.comb += slices.release.eq(feeder.release_slices)

    def _normalise(
        self,
        m: Module,
        elements: stream.Interface,
        functions: SpecialFunctionUnit,
        feeder: OperandFeeder,
    ) -> None:
        """Connect the norm, and hold its results, which all rows of a matrix replay."""
        m.submodules.states = states = ReplayBuffer(
            shape=BINARY16.layout, depth=self.parameters.state_elements
        )
        connect_streams(m, states.sink, feeder.elements)
        # The norm processes vectors, not blocks. For each vector in the norm this FIFO holds
        # whether it is the last one of its block.
        depth = min(VECTORS_IN_FLIGHT, self.parameters.block)
        m.submodules.finals = finals = Fifo(shape=1, depth=depth)
        # The last element of a vector enters the norm and the FIFO in the same cycle.
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
        """Connect the argmax over the logits."""
        m.submodules.logit_rows = logit_rows = LogitRows(parameters=self.parameters)
        connect_streams(m, results.logits, logit_rows.rows)
        connect_streams(m, logit_rows.predictions, self.predictions)
        m.d.comb += [
            # All arrays operate in lock-step: the first one's `row_ends` is that of all.
            logit_rows.row_ends.eq(arrays[0].row_ends),
            Value.cast(logit_rows.row_sums).eq(Cat(Value.cast(a.row_sums) for a in arrays)),
        ]

    def _place_arrays(
        self,
        m: Module,
        feeder: OperandFeeder,
        functions: SpecialFunctionUnit,
        residual: ResidualStream,
        results: LinearResults,
    ) -> None:
        """Connect the arrays' inputs, and route their results to the consumers."""
        p = self.parameters
        unrounded = p.vocabulary_size > 0
        arrays = [FlexiblePeArray(parameters=p.array, unrounded=unrounded) for _ in range(p.copies)]
        if unrounded:
            self._predict(m, arrays, results)
        scores, sums, rows = functions.scores, residual.sums, results.rows
        # In lock-step: all arrays accept the same beat, and their results are transferred together.
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
        # The arrays process scores or sums, never both: the feeder's current pass decides which.
        ready = (feeder.summing & sums.ready) | (~feeder.summing & scores.ready)
        dots = join_handshake(m, [array.dot_products for array in arrays], ready)
        m.d.comb += [
            scores.valid.eq(dots & ~feeder.summing),
            sums.valid.eq(dots & feeder.summing),
            rows.valid.eq(join_handshake(m, [array.results for array in arrays], rows.ready)),
            rows.payload.kind.eq(feeder.row_kind),
            rows.payload.last_token.eq(feeder.row_last_token),
        ]
