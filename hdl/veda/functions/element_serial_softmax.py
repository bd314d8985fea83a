"""VEDA's element-serial softmax: one score in and one probability out per cycle (Section V)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.memory.memory_fifo import MemoryFifo
from hdl.memory.vector_fifo import VectorFifo
from hdl.stream.connect import connect_streams
from hdl.unit import Unit
from hdl.veda.functions.normalization_unit import OPERATORS, NormalizationUnit
from hdl.veda.functions.reduction_unit import ReductionUnit
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters


class ElementSerialSoftmax(Unit):
    """Softmax to the base 2 of heads of FP16 scores, one per cycle.

    If the scores include the factor ``log2(e)``, it is the softmax to the base e. Each score's
    exponential is computed once, added to its head's sum, and stored. When a head is complete and
    its sum is known, the exponentials are read and normalised, while the next heads are reduced.

    **Latency** ``exp_stages + binades + multiply_stages + 22`` cycles from a head's last score to
    its first probability, with ``binades = ceil(log2(scores))``. **Throughput** one score and one
    probability per cycle, with `heads` of at least 2 also from head to head; a head with fewer than
    ``binades + 16`` scores takes ``binades + 16`` cycles. With one head, the buffer is full until
    the head's first exponential is read, and the next head waits as long.

    **Numerics** ``2**x = 2**w * (1 + f)`` as in `FloatExp2`; m is the largest w so far, and ``d' =
    d * 2**(m - m') + 2**x / 2**m'``. A stored exponential has ten mantissa bits and its distance
    from m. A sum has 24 fraction bits and is truncated below them. Its reciprocal has 14 fraction
    bits, rounded to odd; s' is rounded to nearest, ties to even, subnormals included. Relative to
    the exact softmax q of the same scores, ``abs(s' - q) <= q * 2**-8 + 2**-24`` for scores of any
    magnitude.

    **Special values** a score of -inf has the probability 0. A head with a NaN, with +inf, or with
    only -inf has no softmax: all its probabilities are the quiet NaN, and a flag is set.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions of the softmax.
    shared : bool
        Use operators outside the unit for the normalisation; adds `operators`.

    Members
    -------
    scores : In(stream)
        `value` in FP16, `last` with a head's last score. A head has at most `scores` scores. A
        head's last score waits while `heads` complete heads are not yet normalised.
    probabilities : Out(stream)
        `value` in FP16, in the order of the scores; `last`.
    flags : Out(struct)
        `nan`: a head had a NaN. `infinite`: a head had no finite maximum. Held until `clear_flags`.
    clear_flags : In(1)
        Clears both flags, unless a head sets them in the same cycle.
    operators : Out(OPERATORS)
        With `shared`: the operators of the normalisation.

    Raises
    ------
    ValueError
        If `parameters` are illegal, see `ElementSerialSoftmaxParameters`.
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

    def elaborate(self, platform: object) -> Module:
        """Connect reduction and normalisation through the buffer of exponentials."""
        m = Module()
        p = self.parameters
        m.submodules.reduction = reduction = ReductionUnit(parameters=p)
        m.submodules.normalization = normalization = NormalizationUnit(
            parameters=p, shared=self.shared
        )
        if self.shared:
            connect(m, normalization.operators, flipped(self.operators))
        # Exponentials are buffered: their sum is not known before the head's last one.
        m.submodules.buffer = buffer = VectorFifo(
            shape=p.exponential_layout, longest=p.scores, vectors=p.heads
        )
        # A memory has at least two words.
        m.submodules.reciprocals = reciprocals = MemoryFifo(
            shape=p.reciprocal_layout, depth=max(p.heads, 2)
        )

        # Room is counted where scores enter, both for exponentials and for complete heads, so the
        # reduction never stalls and its strobes need no ready.
        depth = p.scores * p.heads
        held, complete = Signal(range(depth + 1)), Signal(range(p.heads + 1))
        score = self.scores.payload
        room = (held != depth) & (~score.last | (complete != p.heads))
        enters, leaves, used = Signal(), Signal(), Signal()
        m.d.comb += [
            self.scores.ready.eq(reduction.scores.ready & room),
            enters.eq(self.scores.valid & self.scores.ready),
            leaves.eq(buffer.sink.valid & buffer.sink.ready),
            used.eq(reciprocals.sink.valid & reciprocals.sink.ready),
        ]
        m.d.sync += [
            held.eq(held + enters - leaves),
            complete.eq(complete + (enters & score.last) - used),
        ]
        m.d.comb += [
            reduction.scores.payload.eq(score),
            reduction.scores.valid.eq(self.scores.valid & room),
            buffer.source.valid.eq(reduction.exponential_strobe),
            buffer.source.payload.value.eq(reduction.exponential),
            buffer.source.payload.last.eq(reduction.exponential_last),
            reciprocals.source.valid.eq(reduction.reciprocal_strobe),
            reciprocals.source.payload.eq(reduction.reciprocal),
            self.flags.eq(reduction.flags),
            reduction.clear_flags.eq(self.clear_flags),
        ]
        for source, sink in (
            (buffer.sink, normalization.exponentials),
            (reciprocals.sink, normalization.reciprocals),
            (normalization.probabilities, self.probabilities),
        ):
            connect_streams(m, source, sink)
        return m
