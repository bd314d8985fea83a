"""VEDA's element-serial softmax: scores in, probabilities out, one a cycle each (Section V)."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.arith.float_format import BINARY16
from hdl.memory.memory_fifo import MemoryFifo
from hdl.memory.vector_fifo import VectorFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit
from hdl.veda.functions.normalization_unit import OPERATORS, NormalizationUnit
from hdl.veda.functions.reduction_unit import ReductionUnit
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters


class ElementSerialSoftmax(Unit):
    """Softmax of heads of FP16 scores that come one a cycle.

    The scores go to the reduction unit and to the score buffer. When a head is complete and its sum
    known, its raw scores are read again and normalised, while the next heads are reduced.

    **Latency** from a head's last score to its first probability ``tile + binades + stages +
    multiply_stages + 22`` cycles at most, with ``binades = ceil(log2(capacity))``, `stages` as in
    the parameters; up to 25 more if the last tile raises the maximum. **Throughput** one score and
    one probability a cycle, also from head to head. A head of fewer than ``binades + 15`` scores
    takes as many cycles as that, and a last tile of fewer than 26 scores that raises the maximum
    takes 26.

    **Numerics** m is the running maximum, which takes effect at the end of each tile;
    ``d' = d * exp(m - m') + sum(exp(x - m'))`` and ``s' = exp(x - m) * (1 / d)``. A difference is
    rounded to FP16, its exponential is `FloatExp`'s, in FP16; the sum has 24 fraction bits, so that
    the exponentials add exactly; its reciprocal has 14 fraction bits, rounded to odd; s' is rounded
    to nearest, ties to even, subnormals included. To the exact softmax q of scores that lie D below
    the maximum, ``abs(s' - q) <= q * (2**-8 + 2**-11 * D) + 2**-24``. Equal scores give exactly
    the FP16 number nearest to 1/n.

    **Special values** a score of -inf has the probability 0. A head with a NaN, with +inf, or with
    nothing but -inf has no softmax: all its probabilities are the quiet NaN, and a flag is set.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions.
    shared : bool
        Whether the operators of the normalisation stand outside.

    Members
    -------
    scores : In(stream)
        `value` in FP16, `last` with a head's last score. A head has at most `capacity` scores. A
        head's last score waits while `heads` complete heads are not yet normalised.
    probabilities : Out(stream)
        `value` in FP16, in the order of the scores; `last`.
    flags : Out(struct)
        `nan`: a head had a NaN. `infinite`: a head had no finite maximum. They stay.
    clear_flags : In(1)
        Both flags fall, unless a head raises them in the same cycle.
    operators : Out(OPERATORS)
        The operators of the normalisation; only with `shared`.

    Raises
    ------
    ValueError
        By `ElementSerialSoftmaxParameters`.
    """

    def __init__(self, *, parameters: ElementSerialSoftmaxParameters, shared: bool = False) -> None:
        self.parameters = parameters
        self.shared = shared
        super().__init__(
            {
                "scores": In(stream.Signature(parameters.element_layout)),
                "probabilities": Out(stream.Signature(parameters.element_layout)),
                "flags": Out(parameters.flags_layout),
                "clear_flags": In(1),
            }
            | ({"operators": Out(OPERATORS)} if shared else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the two halves through the score buffer."""
        m = Module()
        p = self.parameters
        m.submodules.reduction = reduction = ReductionUnit(parameters=p)
        m.submodules.normalization = normalization = NormalizationUnit(
            parameters=p, shared=self.shared
        )
        if self.shared:
            connect(m, normalization.operators, flipped(self.operators))
        # Raw scores wait: the maximum to subtract is not known before the head's last one.
        m.submodules.buffer = buffer = VectorFifo(
            shape=BINARY16.layout, longest=p.capacity, vectors=p.heads
        )
        # A memory has at least two words.
        heads = max(p.heads, 2)
        m.submodules.maxima = maxima = MemoryFifo(shape=p.maximum_layout, depth=heads)
        m.submodules.reciprocals = reciprocals = MemoryFifo(shape=p.reciprocal_layout, depth=heads)

        # Complete heads whose reciprocal is not yet used; the two FIFOs have room for as many, so
        # that the strobes of the reduction need no ready.
        complete = Signal(range(p.heads + 1))
        score = self.scores.payload
        room = ~score.last | (complete != p.heads)
        ready = reduction.scores.ready & buffer.source.ready & room
        ends = self.scores.valid & ready & score.last
        used = reciprocals.sink.valid & reciprocals.sink.ready
        m.d.sync += complete.eq(complete + ends - used)
        m.d.comb += [
            self.scores.ready.eq(ready),
            # A fork: each side takes a score only when the other can, too.
            reduction.scores.payload.eq(score),
            reduction.scores.valid.eq(self.scores.valid & buffer.source.ready & room),
            buffer.source.payload.eq(score),
            buffer.source.valid.eq(self.scores.valid & reduction.scores.ready & room),
            maxima.source.valid.eq(reduction.maximum_strobe),
            maxima.source.payload.eq(reduction.maximum),
            reciprocals.source.valid.eq(reduction.reciprocal_strobe),
            reciprocals.source.payload.eq(reduction.reciprocal),
            self.flags.eq(reduction.flags),
            reduction.clear_flags.eq(self.clear_flags),
        ]
        for source, sink in (
            (buffer.sink, normalization.scores),
            (maxima.sink, normalization.maxima),
            (reciprocals.sink, normalization.reciprocals),
            (normalization.probabilities, self.probabilities),
        ):
            connect_streams(m, source, sink)
        return m
