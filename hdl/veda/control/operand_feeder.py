"""VEDA's operand feeder: combines memory beats with their operands and feeds them to the arrays."""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.stream.connect import connect_streams, fork_handshake
from hdl.unit import Unit
from hdl.veda.array.array_parameters import ArrayMode
from hdl.veda.control.beat_counter import BeatCounter
from hdl.veda.control.ones_ahead import OnesAhead
from hdl.veda.instructions import Leave, Operation, PassKind, RowKind
from hdl.veda.parameters import VedaParameters


@dataclass(frozen=True, kw_only=True)
class _Vectors:
    """Second operands of matrices, with those of the biases.

    Parameters
    ----------
    elements : stream.Interface
        The normalised state, element by element.
    slices : stream.Interface
        The vector of a matrix of inner products, in slices of the array's width.
    """

    elements: stream.Interface
    slices: stream.Interface


class OperandFeeder(Unit):
    """Send each beat of a burst to all arrays, together with its second operand.

    A pass of scores takes a query with its first beat. A pass of outputs takes a probability with
    each beat, which is also sent to the voting engine in the same cycle. A pass of a layer's matrix
    takes an element of the state with each beat (outer products), or a slice of a vector with the
    first beat that needs it (inner products).

    All tokens of a block use the lines of a segment before those of the next segment arrive.

    The biases of a matrix are the weights of one more element of the state, or of the first element
    of one more slice, which is 1.

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
        With rotary embedding: the angles of a block's positions.
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
                "passes": In(stream.Signature(p.decoded_pass_layout)),
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
                **({"angles": Out(stream.Signature(p.angles_layout))} if p.rotary else {}),
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
        """Transfer a beat when its second operand is valid and all consumers are ready."""
        m = Module()
        header, moves = self.passes.payload, Signal()
        by = header.by
        m.submodules.counter = beat = BeatCounter(parameters=self.parameters)
        m.d.comb += [
            beat.header.eq(header),
            beat.moves.eq(moves),
            beat.completes.eq(self.passes.valid & self.passes.ready),
            self.hold.eq(beat.hold),
            self.replay.eq(beat.replay),
            self.release_queries.eq(header.final),
            self.release_elements.eq(beat.ends),
            self.release_slices.eq(beat.release),
            self.summing.eq(self.passes.valid & by.slice),
            self.leave.eq((header.leave == Leave.OUT.value) & (header.kind == PassKind.DOWN)),
            self.predict.eq((header.leave == Leave.PREDICT.value) & (header.kind == PassKind.DOWN)),
        ]
        vectors = self._vectors(m)
        self._transfer(m, by, beat, moves, vectors)
        self._form_operands(m, by, beat, vectors)
        # A row ends only after the previous row has been transferred: one register is sufficient.
        with m.If(moves & (by.probability | by.element) & beat.last):
            m.d.sync += self.row_last_token.eq(header.last_token)
            with m.Switch(header.kind):
                with m.Case(PassKind.QUERY_KEY_VALUE):
                    m.d.sync += self.row_kind.eq(RowKind.PROJECTED)
                with m.Case(PassKind.GATE_UP):
                    m.d.sync += self.row_kind.eq(RowKind.GATED)
                with m.Case(PassKind.VOCABULARY):
                    m.d.sync += self.row_kind.eq(RowKind.LOGITS)
                with m.Default():
                    # The heads' outputs are output, or the next matrix multiplies them.
                    layer = header.operation == Operation.LAYER
                    m.d.sync += self.row_kind.eq(Mux(layer, RowKind.ATTENDED, RowKind.OUTPUT))
        return m

    def _vectors(self, m: Module) -> _Vectors:
        """Return the operands of the matrices: with biases, a one is ahead of each vector."""
        p = self.parameters
        if not p.biases:
            return _Vectors(elements=self.elements, slices=self.slices)
        m.submodules.elements_ahead = elements = OnesAhead(
            shape=BINARY16.layout, code=BINARY16.one, longest=p.hidden_size
        )
        longest = max(p.attended_slices, p.activated_slices)
        m.submodules.slices_ahead = slices = OnesAhead(
            shape=p.array.vector_layout, code=BINARY16.one, longest=longest
        )
        connect_streams(m, self.elements, elements.source)
        connect_streams(m, self.slices, slices.source)
        down = self.passes.payload.kind == PassKind.DOWN
        m.d.comb += [
            elements.length.eq(p.hidden_size),
            slices.length.eq(Mux(down, p.activated_slices, p.attended_slices)),
        ]
        return _Vectors(elements=elements.sink, slices=slices.sink)

    def _transfer(
        self, m: Module, by: data.View, beat: BeatCounter, moves: Signal, vectors: _Vectors
    ) -> None:
        """Transfer a beat and its operands together, when all consumers are ready."""
        header = self.passes.payload
        known = Signal()
        with m.If(beat.load):
            m.d.comb += known.eq(self._vector_valid(by, vectors))
        with m.Elif(by.probability):
            m.d.comb += known.eq(self.probabilities.valid)
        with m.Elif(by.element):
            m.d.comb += known.eq(vectors.elements.valid)
        with m.Else():
            m.d.comb += known.eq(1)
        # A pass of sums remains at the head of the stream after its last beat, until its last sum
        # has been added to the state, outside the arrays.
        offered = self.passes.valid & self.words.valid & known & ~beat.spent
        opens, votes = by.query & beat.begins, by.probability & header.vote
        elsewhere = (self.lengths.ready | ~opens) & (self.votes.ready | ~votes)
        operates = offered & ~by.none & elsewhere
        ready = fork_handshake(m, operates, list(self.operands))
        m.d.comb += moves.eq(operates & ready)
        if self.parameters.rotary:
            angles = Value.cast(self.words.payload)[: self.parameters.angle_layout.size]
            m.d.comb += [
                moves.eq(Mux(by.none, offered & self.angles.ready, operates & ready)),
                self.angles.valid.eq(offered & by.none),
                Value.cast(self.angles.payload.item).eq(angles),
                self.angles.payload.last.eq(beat.ends),
            ]
        m.d.comb += [
            self.passes.ready.eq(Mux(by.slice, self.finished, moves & beat.ends)),
            self.words.ready.eq(moves),
            self.queries.ready.eq(moves & opens),
            self.probabilities.ready.eq(moves & by.probability),
            vectors.elements.ready.eq(moves & by.element),
            vectors.slices.ready.eq(moves & by.slice & beat.load),
            self.lengths.valid.eq(offered & opens & ready),
            self.lengths.payload.eq(header.beats),
            self.votes.valid.eq(offered & votes & ready),
            self.votes.payload.eq(self.probabilities.payload),
        ]

    def _vector_valid(self, by: data.View, vectors: _Vectors) -> Value:
        """Return whether the vector that an inner product loads is valid."""
        return Mux(by.slice, vectors.slices.valid, self.queries.valid)

    def _form_operands(
        self, m: Module, by: data.View, beat: BeatCounter, vectors: _Vectors
    ) -> None:
        """Combine a beat's weights with its second operand, for each array."""
        p = self.parameters
        for copy in range(p.copies):
            operand, vector = self.operands[copy].payload, self.vectors[copy]
            m.d.comb += [
                operand.mode.eq(Mux(by.inner, ArrayMode.INNER, ArrayMode.OUTER)),
                operand.split.eq(by.query & int(p.split)),
                operand.load_vector.eq(beat.load),
                operand.first.eq(beat.first),
                operand.last.eq(beat.last),
                operand.weights.eq(self.words.payload[copy]),
                vector.payload.eq(
                    Mux(by.slice, vectors.slices.payload, self.queries.payload[copy])
                ),
                # Valid independently of the weights: the array accepts both in the same cycle.
                vector.valid.eq(
                    self.passes.valid & beat.load & ~beat.spent & self._vector_valid(by, vectors)
                ),
            ]
            # Every plane multiplies by one element of the state, or by its own head's probability.
            for plane in range(p.array.planes):
                lane = p.lane(0, copy * p.array.planes + plane)
                probability = self.probabilities.payload.values[lane]
                m.d.comb += operand.scalars[plane].eq(
                    Mux(by.element, vectors.elements.payload.as_value(), probability.as_value())
                )
