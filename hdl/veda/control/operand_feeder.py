"""VEDA's operand feeder: memory's beats meet what they are multiplied by, and enter the arrays."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.stream.connect import fork_handshake
from hdl.unit import Unit
from hdl.veda.array.array_parameters import ArrayMode
from hdl.veda.control.linear_counter import LinearCounter
from hdl.veda.parameters import VedaParameters
from hdl.veda.veda_kinds import Operation, PassKind, RowKind


class OperandFeeder(Unit):
    """Give each beat of a burst to all arrays, with what it is multiplied by.

    A pass of scores takes a query with its first beat. A pass of outputs takes a probability with
    each beat; the voting engine gets the same probability at the same time. The matrices of a layer
    take an element of the state with each beat, or a slice of a vector with the first beat for it.

    All tokens of a block meet the lines of a matrix's segment before the next segment's come.

    A matrix of inner products is done when its last sum is added to the state: so the arrays never
    have scores and such sums in them at once.

    **Latency** 0 cycles. **Throughput** one beat a cycle, also from pass to pass.

    Parameters
    ----------
    parameters : VedaParameters
        Dimensions.

    Members
    -------
    passes : In(stream)
        What each burst is.
    words : In(stream)
        The bursts.
    keep, again : Out(1)
        What becomes of their lines, as in `WeightBuffer`.
    queries : In(stream)
        One query a lane for each pass of scores.
    release_queries : Out(1)
        The block needs no other.
    probabilities : In(stream)
        One probability a lane for each beat of a pass of outputs.
    elements : In(stream)
        The normalised state, again and again.
    release_elements : Out(1)
        It is needed no more.
    slices : In(stream)
        The vector of a matrix of inner products, again and again, an array's width at a time.
    release_slices : Out(1)
        It is needed no more.
    finished : In(1)
        The matrix's last sum is added.
    operands : Out(stream).array(copies)
        To each array.
    vectors : Out(stream).array(copies)
        The queries, or the slice, to each array.
    angles : Out(stream)
        The angles of a block's positions.
    lengths : Out(stream)
        The number of scores of a pass, when it begins.
    votes : Out(stream)
        The probabilities of passes that vote.
    summing : Out(1)
        Dot products are sums for the state, which leaves with them if `leave`; else scores.
    leave : Out(1)
        As above.
    row_kind : Out(RowKind)
        What the arrays' rows are.
    row_last_token : Out
        The last token of the block that they belong to.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        array = p.array
        super().__init__(
            {
                "passes": In(stream.Signature(p.pass_layout)),
                "words": In(stream.Signature(p.beat_layout)),
                "keep": Out(1),
                "again": Out(1),
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
                "row_kind": Out(RowKind),
                "row_last_token": Out(p.token_shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count the beats of a pass; let one through when all that it needs is there."""
        m = Module()
        p = self.parameters
        header = self.passes.payload
        m.submodules.counter = counter = LinearCounter(parameters=p)
        index = Signal(p.burst_shape)
        begins, ends, spent, moves = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            begins.eq(index == 0),
            ends.eq((index + 1 == header.beats) & ~self.keep),
            spent.eq(index == header.beats),
        ]
        with m.If(self.passes.valid & self.passes.ready):
            m.d.sync += index.eq(0)
        with m.Elif(moves & ~self.keep):
            m.d.sync += index.eq(index + 1)

        # What a beat is, and what it needs beside its weights.
        scores, outputs, angles = (
            header.kind == kind for kind in (PassKind.SCORES, PassKind.OUTPUTS, PassKind.ANGLES)
        )
        rows = (header.kind == PassKind.QUERY_KEY_VALUE) | (header.kind == PassKind.GATE_UP)
        sums = (header.kind == PassKind.OUTPUT_PROJECTION) | (header.kind == PassKind.DOWN)
        inner, load, first, last, needs = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            inner.eq(scores | sums),
            load.eq(Mux(sums, counter.load, scores & begins)),
            first.eq(Mux(rows | sums, counter.first, scores | begins)),
            last.eq(Mux(rows | sums, counter.last, scores | ends)),
            counter.inner.eq(sums),
            counter.feed_forward.eq(header.kind == PassKind.DOWN),
            counter.last_token.eq(header.last_token),
            counter.moves.eq(moves & (rows | sums)),
            self.keep.eq(counter.keep & (rows | sums)),
            self.again.eq(counter.again & (rows | sums)),
        ]
        with m.If(load):
            m.d.comb += needs.eq(Mux(sums, self.slices.valid, self.queries.valid))
        with m.Elif(outputs):
            m.d.comb += needs.eq(self.probabilities.valid)
        with m.Else():
            m.d.comb += needs.eq(self.elements.valid | inner | angles)

        first_head = Value.cast(self.words.payload)[: p.angle_layout.size]
        opens, votes = scores & begins, outputs & header.vote
        offered = self.passes.valid & self.words.valid & needs & ~spent
        elsewhere = (self.lengths.ready | ~opens) & (self.votes.ready | ~votes)
        operates = offered & ~angles & elsewhere
        ready = fork_handshake(m, operates, list(self.operands))
        m.d.comb += [
            moves.eq(Mux(angles, offered & self.angles.ready, operates & ready)),
            self.passes.ready.eq(Mux(sums, self.finished, moves & ends)),
            self.words.ready.eq(moves),
            self.queries.ready.eq(moves & opens),
            self.release_queries.eq(header.final),
            self.probabilities.ready.eq(moves & outputs),
            self.elements.ready.eq(moves & rows),
            self.release_elements.eq(ends),
            self.slices.ready.eq(moves & sums & load),
            self.release_slices.eq(counter.release),
            self.angles.valid.eq(offered & angles),
            Value.cast(self.angles.payload["item"]).eq(first_head),
            self.angles.payload.last.eq(ends),
            self.lengths.valid.eq(offered & opens & ready),
            self.lengths.payload.eq(header.beats),
            self.votes.valid.eq(offered & votes & ready),
            self.votes.payload.eq(self.probabilities.payload),
            self.summing.eq(self.passes.valid & sums),
            self.leave.eq(header.leave & (header.kind == PassKind.DOWN)),
        ]
        # A row ends only when the row before is taken: one register suffices.
        with m.If(moves & ~inner & ~angles & last):
            m.d.sync += [
                self.row_kind.eq(self._row_kind(m, header)),
                self.row_last_token.eq(header.last_token),
            ]
        for copy in range(p.copies):
            operand, vector = self.operands[copy].payload, self.vectors[copy]
            m.d.comb += [
                operand.mode.eq(Mux(inner, ArrayMode.INNER, ArrayMode.OUTER)),
                operand.split.eq(scores & int(p.split)),
                operand.load_vector.eq(load),
                operand.first.eq(first),
                operand.last.eq(last),
                operand.weights.eq(self.words.payload[copy]),
                vector.payload.eq(Mux(sums, self.slices.payload, self.queries.payload[copy])),
                vector.valid.eq(
                    self.passes.valid
                    & load
                    & ~spent
                    & Mux(sums, self.slices.valid, self.queries.valid)
                ),
            ]
            for plane in range(p.array.planes):
                lane = p.lane(0, copy * p.array.planes + plane)
                probability = self.probabilities.payload["values"][lane]
                m.d.comb += operand.scalars[plane].eq(
                    Mux(rows, self.elements.payload.as_value(), probability.as_value())
                )
        return m

    def _row_kind(self, m: Module, header: Any) -> Any:
        """Return what becomes of the rows of a pass."""
        kind = Signal(RowKind)
        with m.Switch(header.kind):
            with m.Case(PassKind.QUERY_KEY_VALUE):
                m.d.comb += kind.eq(RowKind.PROJECTED)
            with m.Case(PassKind.GATE_UP):
                m.d.comb += kind.eq(RowKind.GATED)
            with m.Default():
                with m.If(header.operation == Operation.LAYER):
                    m.d.comb += kind.eq(RowKind.ATTENDED)
        return kind
