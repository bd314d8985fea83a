"""VEDA's operand feeder: memory's beats meet queries or probabilities, and enter the arrays."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.unit import Unit
from hdl.veda.array_parameters import ArrayMode
from hdl.veda.stream_links import fork_handshake
from hdl.veda.veda_parameters import VedaParameters


class OperandFeeder(Unit):
    """Give each beat of a burst to all arrays, with what it is multiplied by.

    A pass of scores takes a query with its first beat. A pass of outputs takes a probability with
    each beat; the voting engine gets the same probability at the same time.

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
    queries : In(stream)
        One query a lane for each pass of scores.
    probabilities : In(stream)
        One probability a lane for each beat of a pass of outputs.
    operands : Out(stream).array(copies)
        To each array.
    vectors : Out(stream).array(copies)
        The queries, to each array.
    lengths : Out(stream)
        The number of scores of a pass, when it begins.
    votes : Out(stream)
        The probabilities of passes that vote.
    """

    def __init__(self, *, parameters: VedaParameters) -> None:
        self.parameters = p = parameters
        array = p.array
        super().__init__(
            {
                "passes": In(stream.Signature(p.pass_layout)),
                "words": In(stream.Signature(p.beat_layout)),
                "queries": In(stream.Signature(p.beat_layout)),
                "probabilities": In(stream.Signature(p.scalar_layout)),
                "operands": Out(stream.Signature(array.operand_layout)).array(p.copies),
                "vectors": Out(stream.Signature(array.vector_layout)).array(p.copies),
                "lengths": Out(stream.Signature(p.length_shape)),
                "votes": Out(stream.Signature(p.scalar_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count the beats of a pass; let one through when all that it needs is there."""
        m = Module()
        p = self.parameters
        header = self.passes.payload
        index = Signal(p.length_shape)
        inner, begins, ends, moves = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            inner.eq(header.mode == ArrayMode.INNER),
            begins.eq(index == 0),
            ends.eq(index + 1 == header.beats),
        ]
        with m.If(moves):
            m.d.sync += index.eq(Mux(ends, 0, index + 1))

        opens = inner & begins
        votes = ~inner & header.vote
        offered = (
            self.passes.valid
            & self.words.valid
            & Mux(inner, ~begins | self.queries.valid, self.probabilities.valid)
        )
        elsewhere = (self.lengths.ready | ~opens) & (self.votes.ready | ~votes)
        ready = fork_handshake(m, offered & elsewhere, list(self.operands))
        m.d.comb += [
            moves.eq(offered & elsewhere & ready),
            self.passes.ready.eq(moves & ends),
            self.words.ready.eq(moves),
            self.queries.ready.eq(moves & opens),
            self.probabilities.ready.eq(moves & ~inner),
            self.lengths.valid.eq(offered & opens & ready),
            self.lengths.payload.eq(header.beats),
            self.votes.valid.eq(offered & votes & ready),
            self.votes.payload.eq(self.probabilities.payload),
        ]
        for copy in range(p.copies):
            operand, vector = self.operands[copy].payload, self.vectors[copy]
            m.d.comb += [
                operand.mode.eq(header.mode),
                operand.split.eq(int(p.split)),
                operand.load_vector.eq(opens),
                operand.first.eq(inner | begins),
                operand.last.eq(inner | ends),
                operand.weights.eq(self.words.payload[copy]),
                vector.payload.eq(self.queries.payload[copy]),
                vector.valid.eq(self.passes.valid & opens & self.queries.valid),
            ]
            for plane in range(p.array.planes):
                lane = p.lane(0, copy * p.array.planes + plane)
                scalar = self.probabilities.payload["values"][lane]
                m.d.comb += operand.scalars[plane].eq(scalar)
        return m
