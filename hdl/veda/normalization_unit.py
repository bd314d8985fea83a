"""The normalisation unit: probabilities from raw scores, one a cycle.

The normalisation of the paper's Figure 6: ``exp(x - m)`` over the sum of exponentials. The sum is
known before a head's first score leaves the buffer, so its reciprocal takes the divider's place.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_add import FloatAdd
from hdl.arith.float_exp import Domain, FloatExp
from hdl.arith.float_format import BINARY16
from hdl.arith.float_normalise import QUIET_NAN
from hdl.arith.float_shift import shift_right
from hdl.arith.operator import Pipeline
from hdl.arith.unsigned_multiply import product
from hdl.unit import Unit
from hdl.veda.softmax_parameters import RECIPROCAL_FRACTION, ElementSerialSoftmaxParameters

DROPPED = RECIPROCAL_FRACTION - 1
"""Bits of a product below the last bit of a normal result, at least."""


class NormalizationUnit(Unit):
    """Turn a head's scores into probabilities.

    **Latency** ``ranks + 3`` cycles. **Throughput** one score a cycle. Everything waits together.

    **Numerics** as in `ElementSerialSoftmax`.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions.

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
    """

    def __init__(self, *, parameters: ElementSerialSoftmaxParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "scores": In(stream.Signature(parameters.element_layout)),
                "maxima": In(stream.Signature(parameters.maximum_layout)),
                "reciprocals": In(stream.Signature(parameters.reciprocal_layout)),
                "probabilities": Out(stream.Signature(parameters.element_layout)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Subtract, take the exponential, multiply, shift, round."""
        m = Module()
        p = self.parameters
        output = self.probabilities
        move = Signal()
        score, maximum = self.scores.payload, self.maxima.payload
        m.d.comb += [
            self.scores.ready.eq(self.maxima.valid & move),
            self.maxima.ready.eq(self.scores.valid & score.last & move),
        ]

        m.submodules.subtract = subtract = FloatAdd(stages=p.subtract_stages, enable=True)
        m.submodules.exp = exp = FloatExp(
            domain=Domain.NONPOSITIVE, stages=p.exp_stages, enable=True
        )
        minuend = Signal(BINARY16.layout, reset_less=True)
        subtrahend = Signal(BINARY16.layout, reset_less=True)
        with m.If(move):
            m.d.sync += [minuend.eq(score.value), subtrahend.eq(maximum.value)]
        m.d.comb += [
            subtract.enable.eq(move),
            subtract.a.eq(minuend),
            subtract.b.eq(subtrahend),
            subtract.b.sign.eq(~subtrahend.sign),
            exp.enable.eq(move),
            exp.a.eq(subtract.result),
        ]
        valid: Value = self.scores.valid & self.maxima.valid
        control = Cat(score.last, maximum.undefined)
        for rank in range(p.ranks):
            valid, control = _delay(m, rank, move, valid, control)
        last = control[0]

        # The sum comes after the maximum: the first scores of a head may be here before it.
        reciprocal = self.reciprocals.payload
        missing = valid & ~self.reciprocals.valid
        m.d.comb += [
            move.eq((~output.valid | output.ready) & ~missing),
            self.reciprocals.ready.eq(valid & last & move),
        ]
        pipeline = Pipeline(m, stages=3, cuts=3, enable=move)
        exponential = exp.result
        normal = exponential.exponent.any()
        significand = Cat(exponential.mantissa, normal)
        exponent = Cat(exponential.exponent[0] | ~normal, exponential.exponent[1:])
        # Of a normal result the exponent code is this and one or two more.
        above = Signal(signed(7))
        m.d.comb += above.eq(exponent - reciprocal.exponent - 2)
        (integer, above) = pipeline.cut(product(m, significand, reciprocal.mantissa), above)

        top = integer[DROPPED + 11]
        subnormal = above[-1]
        down = Mux(subnormal, -above, top)[:5]
        placed, sticky = shift_right(m, integer[: DROPPED + 12], down, DROPPED + 12)
        code = Mux(subnormal, 0, above[:5] + top)[:5]
        kept = placed[DROPPED:]
        up = placed[DROPPED - 1] & (kept[0] | placed[: DROPPED - 1].any() | sticky)
        kept, code, up = pipeline.cut(kept, code, up)

        for rank in range(2):
            valid, control = _delay(m, p.ranks + rank, move, valid, control)
        # The leading one of a normal result adds one to its exponent code.
        magnitude = (kept + Cat(Const(0, 10), code) + up)[:15]
        undefined = control[1]
        (value,) = pipeline.cut(Mux(undefined, Const(QUIET_NAN, 16), magnitude))
        # The last rank may be emptied while the others wait for a reciprocal.
        with m.If(output.ready):
            m.d.sync += output.valid.eq(0)
        with m.If(move):
            m.d.sync += output.valid.eq(valid)
        _, control = _delay(m, p.ranks + 2, move, valid, control)
        m.d.comb += [
            Value.cast(output.payload.value).eq(value),
            output.payload.last.eq(control[0]),
        ]
        return m


def _delay(
    m: Module, rank: int, move: Value, valid: Value, control: Value
) -> tuple[Signal, Signal]:
    """Register what goes beside the operators."""
    later = Signal(name=f"valid_{rank}")
    there = Signal(len(control), name=f"control_{rank}", reset_less=True)
    with m.If(move):
        m.d.sync += [later.eq(valid), there.eq(control)]
    return later, there
