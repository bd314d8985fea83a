"""VEDA's operand feeder: combines memory beats with their operands and feeds them to the arrays."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.stream.connect import fork_handshake
from hdl.unit import Unit
from hdl.veda.array.array_parameters import ArrayMode
from hdl.veda.control.linear_counter import LinearCounter
from hdl.veda.instructions import Leave, Operation, PassKind, RowKind
from hdl.veda.parameters import VedaParameters


@dataclass(frozen=True, kw_only=True)
class _Beat:
    """Classification of the beat at the head of the burst.

    Parameters
    ----------
    scores, outputs, angles : Value
        The pass computes scores or attention outputs, or loads rotary angles.
    rows, sums : Value
        The beat belongs to a matrix whose results are rows, or sums that are added to the state.
    inner : Value
        It is part of an inner product; otherwise of an outer one, or it carries angles.
    begins, ends, spent : Value
        It is the pass's first or last beat; or all beats of the pass have been used.
    load, first, last : Value
        As in `FlexiblePeArray`.
    """

    scores: Value
    outputs: Value
    angles: Value
    rows: Value
    sums: Value
    inner: Value
    begins: Value
    ends: Value
    spent: Value
    load: Value
    first: Value
    last: Value


class OperandFeeder(Unit):
    """Send each beat of a burst to all arrays, together with its second operand.

    A pass of scores takes a query with its first beat. A pass of outputs takes a probability with
    each beat, which is also sent to the voting engine in the same cycle. A pass of a layer's matrix
    takes an element of the state with each beat (outer products), or a slice of a vector with the
    first beat that needs it (inner products).

    All tokens of a block use the lines of a segment before those of the next segment arrive.

    A matrix of inner products is complete when its last sum has been added to the state. The arrays
    therefore never process scores and such sums at the same time.

    **Latency** 0 cycles. **Throughput** one beat per cycle, also from pass to pass.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions of the accelerator.

    Members
    -------
    passes : In(stream)
        The computation for each burst.
    words : In(stream)
        The lines of the bursts.
    hold, replay : Out(1)
        Treatment of the line in the weight buffer, as in `WeightBuffer`.
    queries : In(stream)
        One query per lane for each pass of scores.
    release_queries : Out(1)
        The block needs no further query.
    probabilities : In(stream)
        One probability per lane for each beat of a pass of outputs.
    elements : In(stream)
        The normalised state, replayed until `release_elements`.
    release_elements : Out(1)
        The state's elements are not needed after this one.
    slices : In(stream)
        The vector of a matrix of inner products, in slices of the array's width, replayed until
        `release_slices`.
    release_slices : Out(1)
        The vector's slices are not needed after this one.
    finished : In(1)
        The matrix's last sum has been added to the state.
    operands : Out(stream).array(copies)
        Beats for each array.
    vectors : Out(stream).array(copies)
        For each array: a query, or a slice of the vector.
    angles : Out(stream)
        Rotary angles of a block's positions.
    lengths : Out(stream)
        Number of scores of a pass; transferred with its first beat.
    votes : Out(stream)
        Probabilities of the passes that vote.
    summing : Out(1)
        Dot products are sums for the state; otherwise scores.
    leave, predict : Out(1)
        Valid with `summing`: the state is output after these sums, or is moved to the final norm
        and the LM head.
    row_kind : Out(RowKind)
        Kind of the arrays' rows of results.
    row_last_token : Out
        Last token of the block that the rows belong to.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        array = p.array
        super().__init__(
            {
                "passes": In(stream.Signature(p.pass_layout)),
                "words": In(stream.Signature(p.beat_layout)),
                "hold": Out(1),
                "replay": Out(1),
                "queries": In(stream.Signature(p.beat_layout)),
                "release_queries": Out(1),
                "probabilities": In(stream.Signature(p.scalar_layout)),
                "elements": In(stream.Signature(BINARY16.layout)),
                "release_elements": Out(1),
                "slices": In(stream.Signature(array.vector_layout)),
                "release_slices": Out(1),
                "finished": In(1),
                "operands": Out(stream.Signature(array.operand_layout)).array(p.copies),
                "vectors": Out(stream.Signature(array.vector_layout)).array(p.copies),
                "angles": Out(stream.Signature(p.angles_layout)),
                "lengths": Out(stream.Signature(p.length_shape)),
                "votes": Out(stream.Signature(p.scalar_layout)),
                "summing": Out(1),
                "leave": Out(1),
                "predict": Out(1),
                "row_kind": Out(RowKind),
                "row_last_token": Out(p.token_shape),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count the beats of a pass; transfer a beat when all its operands are valid."""
        m = Module()
        header, moves = self.passes.payload, Signal()
        beat = self._classify(m, header, moves)
        needs = Signal()
        with m.If(beat.load):
            m.d.comb += needs.eq(Mux(beat.sums, self.slices.valid, self.queries.valid))
        with m.Elif(beat.outputs):
            m.d.comb += needs.eq(self.probabilities.valid)
        with m.Else():
            m.d.comb += needs.eq(self.elements.valid | beat.inner | beat.angles)
        # A pass of inner products remains at the head of the stream after its last beat, until its
        # last sum has been added.
        offered = self.passes.valid & self.words.valid & needs & ~beat.spent
        self._move(m, beat, header, offered, moves)
        self._form_operands(m, beat)
        # A row ends only after the previous row has been transferred: one register is sufficient.
        with m.If(moves & ~beat.inner & ~beat.angles & beat.last):
            m.d.sync += [
                self.row_kind.eq(self._row_kind(m, header)),
                self.row_last_token.eq(header.last_token),
            ]
        return m

    def _classify(self, m: Module, header: Any, moves: Value) -> _Beat:
        """Count the beats of a pass; return the classification of the next beat."""
        p = self.parameters
        m.submodules.counter = counter = LinearCounter(parameters=p)
        index = Signal(p.burst_shape)
        # An attention pass ends with its last beat. `spent` marks a pass whose sums are in flight.
        begins, ends, spent = Signal(), Signal(), Signal()
        m.d.comb += [
            begins.eq(index == 0),
            ends.eq((index + 1 == header.beats) & ~self.hold),
            spent.eq(index == header.beats),
        ]
        # A line is counted when the last token of the block has used it.
        with m.If(self.passes.valid & self.passes.ready):
            m.d.sync += index.eq(0)
        with m.Elif(moves & ~self.hold):
            m.d.sync += index.eq(index + 1)

        scores, outputs, angles = (
            header.kind == kind for kind in (PassKind.SCORES, PassKind.OUTPUTS, PassKind.ANGLES)
        )
        made_of_rows = [PassKind.QUERY_KEY_VALUE, PassKind.GATE_UP]
        if p.vocabulary_size:
            made_of_rows.append(PassKind.VOCABULARY)
        rows = Cat(header.kind == kind for kind in made_of_rows).any()
        sums = (header.kind == PassKind.OUTPUT_PROJECTION) | (header.kind == PassKind.DOWN)
        inner, load, first, last = Signal(), Signal(), Signal(), Signal()
        # In attention a score takes one beat, and an output ends with its pass; within a matrix the
        # counter decides.
        m.d.comb += [
            inner.eq(scores | sums),
            load.eq(Mux(sums, counter.load, scores & begins)),
            first.eq(Mux(rows | sums, counter.first, scores | begins)),
            last.eq(Mux(rows | sums, counter.last, scores | ends)),
            counter.inner.eq(sums),
            counter.feed_forward.eq(header.kind == PassKind.DOWN),
            counter.last_token.eq(header.last_token),
            counter.moves.eq(moves & (rows | sums)),
            self.hold.eq(counter.hold & (rows | sums)),
            self.replay.eq(counter.replay & (rows | sums)),
            self.release_queries.eq(header.final),
            self.release_elements.eq(ends),
            self.release_slices.eq(counter.release),
            self.summing.eq(self.passes.valid & sums),
            self.leave.eq((header.leave == Leave.OUT.value) & (header.kind == PassKind.DOWN)),
            self.predict.eq((header.leave == Leave.PREDICT.value) & (header.kind == PassKind.DOWN)),
        ]
        return _Beat(
            scores=scores,
            outputs=outputs,
            angles=angles,
            rows=rows,
            sums=sums,
            inner=inner,
            begins=begins,
            ends=ends,
            spent=spent,
            load=load,
            first=first,
            last=last,
        )

    def _move(self, m: Module, beat: _Beat, header: Any, offered: Value, moves: Signal) -> None:
        """Transfer a beat and its operands together, when all consumers are ready."""
        p = self.parameters
        first_head = Value.cast(self.words.payload)[: p.angle_layout.size]
        opens, votes = beat.scores & beat.begins, beat.outputs & header.vote
        elsewhere = (self.lengths.ready | ~opens) & (self.votes.ready | ~votes)
        operates = offered & ~beat.angles & elsewhere
        ready = fork_handshake(m, operates, list(self.operands))
        m.d.comb += [
            moves.eq(Mux(beat.angles, offered & self.angles.ready, operates & ready)),
            # A pass of sums ends outside the arrays, when its last sum is added to the state.
            self.passes.ready.eq(Mux(beat.sums, self.finished, moves & beat.ends)),
            self.words.ready.eq(moves),
            self.queries.ready.eq(moves & opens),
            self.probabilities.ready.eq(moves & beat.outputs),
            self.elements.ready.eq(moves & beat.rows),
            self.slices.ready.eq(moves & beat.sums & beat.load),
            self.angles.valid.eq(offered & beat.angles),
            Value.cast(self.angles.payload.item).eq(first_head),
            self.angles.payload.last.eq(beat.ends),
            self.lengths.valid.eq(offered & opens & ready),
            self.lengths.payload.eq(header.beats),
            self.votes.valid.eq(offered & votes & ready),
            self.votes.payload.eq(self.probabilities.payload),
        ]

    def _form_operands(self, m: Module, beat: _Beat) -> None:
        """Combine a beat's weights with its second operand, for each array."""
        p = self.parameters
        for copy in range(p.copies):
            operand, vector = self.operands[copy].payload, self.vectors[copy]
            m.d.comb += [
                operand.mode.eq(Mux(beat.inner, ArrayMode.INNER, ArrayMode.OUTER)),
                operand.split.eq(beat.scores & int(p.split)),
                operand.load_vector.eq(beat.load),
                operand.first.eq(beat.first),
                operand.last.eq(beat.last),
                operand.weights.eq(self.words.payload[copy]),
                vector.payload.eq(Mux(beat.sums, self.slices.payload, self.queries.payload[copy])),
                # Valid independently of the weights: the array accepts both in the same cycle.
                vector.valid.eq(
                    self.passes.valid
                    & beat.load
                    & ~beat.spent
                    & Mux(beat.sums, self.slices.valid, self.queries.valid)
                ),
            ]
            # Every plane multiplies by one element of the state, or by its own head's probability.
            for plane in range(p.array.planes):
                lane = p.lane(0, copy * p.array.planes + plane)
                probability = self.probabilities.payload.values[lane]
                m.d.comb += operand.scalars[plane].eq(
                    Mux(beat.rows, self.elements.payload.as_value(), probability.as_value())
                )

    def _row_kind(self, m: Module, header: Any) -> Any:
        """Return the kind of the rows of a pass."""
        # For a pass of values, the operation decides whether the outputs are output or kept.
        kind = Signal(RowKind)
        with m.Switch(header.kind):
            with m.Case(PassKind.QUERY_KEY_VALUE):
                m.d.comb += kind.eq(RowKind.PROJECTED)
            with m.Case(PassKind.GATE_UP):
                m.d.comb += kind.eq(RowKind.GATED)
            if self.parameters.vocabulary_size:
                with m.Case(PassKind.VOCABULARY):
                    m.d.comb += kind.eq(RowKind.LOGITS)
            with m.Default():
                with m.If(header.operation == Operation.LAYER):
                    m.d.comb += kind.eq(RowKind.ATTENDED)
        return kind
