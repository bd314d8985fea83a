"""The normalisation unit: probabilities from raw scores, one a cycle.

The normalisation of the paper's Figure 6: ``exp(x - m)`` over the sum of exponentials. The sum is
known before a head's first score leaves the buffer, so its reciprocal takes the divider's place.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_exp import Domain, FloatExp
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.unit import Unit
from hdl.veda.functions.shared_operator import (
    BINARY,
    EXTRA_BITS,
    LONGER_PRODUCT,
    UNARY,
    private_operators,
    shared_operators,
)
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters

OPERATORS = shared_operators(add=BINARY, exp=UNARY, multiply=LONGER_PRODUCT)
"""The operators of a normalisation."""


class NormalizationUnit(Unit):
    """Turn a head's scores into probabilities.

    **Latency** ``stages + multiply_stages`` cycles. **Throughput** one score a cycle. Everything
    waits together.

    **Numerics** as in `ElementSerialSoftmax`.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions.
    shared : bool
        Whether the operators stand outside, where other functions use them too.

    Members
    -------
    scores : In(stream)
        Raw scores, once more, and the end of a head.
    maxima : In(stream)
        Each head's maximum; taken with the head's last score.
    reciprocals : In(stream)
        Each head's reciprocal; taken when the head's last score reaches the multiplication.
    probabilities : Out(stream)
        Probabilities and the end of a head.
    operators : Out(OPERATORS)
        The operators; only with `shared`. No score is taken unless they are granted.
    """

    def __init__(self, *, parameters: ElementSerialSoftmaxParameters, shared: bool = False) -> None:
        self.parameters = parameters
        self.shared = shared
        super().__init__(
            {
                "scores": In(stream.Signature(parameters.element_layout)),
                "maxima": In(stream.Signature(parameters.maximum_layout)),
                "reciprocals": In(stream.Signature(parameters.reciprocal_layout)),
                "probabilities": Out(stream.Signature(parameters.element_layout)),
            }
            | ({"operators": Out(OPERATORS)} if shared else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Subtract, take the exponential, multiply."""
        m = Module()
        p = self.parameters
        operators = self.operators if self.shared else self._private_operators(m)
        output = self.probabilities
        move, begins = Signal(), Signal()
        score, maximum = self.scores.payload, self.maxima.payload
        m.d.comb += [
            begins.eq(self.scores.valid & self.maxima.valid & operators.grant),
            self.scores.ready.eq(self.maxima.valid & operators.grant & move),
            self.maxima.ready.eq(begins & score.last & move),
        ]

        # x - m is x + (-m); the register before the adder cuts the path from the score buffer.
        minuend = Signal(BINARY16.layout, reset_less=True)
        subtrahend = Signal(BINARY16.layout, reset_less=True)
        stages = p.stages + p.multiply_stages
        # What accompanies a score beside the operators, a bit a stage.
        valid, last = Signal(stages), Signal(stages, reset_less=True)
        undefined = Signal(p.stages, reset_less=True)
        # The last stage may be emptied while the others wait for a reciprocal.
        with m.If(output.ready):
            m.d.sync += valid[-1].eq(0)
        with m.If(move):
            m.d.sync += [
                minuend.eq(score.value),
                subtrahend.eq(maximum.value),
                valid.eq(Cat(begins, valid)),
                last.eq(Cat(score.last, last)),
                undefined.eq(Cat(maximum.undefined, undefined)),
            ]

        # The sum comes after the maximum: the first scores of a head may be here before it.
        reciprocal = self.reciprocals.payload
        due = valid[p.stages - 1]
        missing = due & ~self.reciprocals.valid
        nan = undefined[-1]
        m.d.comb += [
            move.eq((~output.valid | output.ready) & ~missing),
            self.reciprocals.ready.eq(due & last[p.stages - 1] & move),
            operators.request.eq(self.scores.valid & self.maxima.valid),
            operators.busy.eq(valid.any()),
            operators.enable.eq(move),
            operators.add.a.eq(minuend),
            operators.add.b.eq(subtrahend),
            operators.add.b.sign.eq(~subtrahend.sign),
            # Without a register of its own: the operators' stages follow each other.
            operators.exp.a.eq(operators.add.result),
            operators.multiply.a.eq(operators.exp.result),
            # A head without a softmax is multiplied by a NaN.
            operators.multiply.b.mantissa.eq(reciprocal.mantissa | nan),
            operators.multiply.b.exponent.eq(reciprocal.exponent | nan.replicate(5)),
            output.valid.eq(valid[-1]),
            output.payload.value.eq(operators.multiply.result),
            output.payload.last.eq(last[-1]),
        ]
        return m

    def _private_operators(self, m: Module) -> Any:
        """Return operators of the unit itself."""
        p = self.parameters
        return private_operators(
            m,
            OPERATORS,
            add=FloatAdd(stages=p.subtract_stages, enable=True),
            exp=FloatExp(domain=Domain.NONPOSITIVE, stages=p.exp_stages, enable=True),
            multiply=FloatMultiply(extra_bits=EXTRA_BITS, stages=p.multiply_stages, enable=True),
        )
