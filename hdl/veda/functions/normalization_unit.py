"""The normalisation unit: probabilities from stored exponentials, one per cycle.

The normalisation of the paper's Figure 6: ``exp(x - m)`` divided by the sum of exponentials. The
sum is known before a head's first exponential is read from the buffer, so a multiplication by its
reciprocal replaces the division. Any rise of the maximum after an exponential was stored is a power
of two.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.prefix_sum import prefix_sum
from hdl.unit import Unit
from hdl.veda.functions.shared_operator import (
    EXTRA_BITS,
    LONGER_PRODUCT,
    SharedOperators,
    private_operators,
    shared_operators,
)
from hdl.veda.functions.softmax_parameters import (
    RECIPROCAL_EXPONENT,
    ElementSerialSoftmaxParameters,
)

OPERATORS = shared_operators(multiply=LONGER_PRODUCT)
"""Operators that a normalisation uses."""


class NormalizationUnit(Unit):
    """Convert a head's exponentials to probabilities.

    **Latency** ``1 + multiply_stages`` cycles. **Throughput** one exponential per cycle. The whole
    pipeline stalls together.

    **Numerics** as in `ElementSerialSoftmax`.

    Parameters
    ----------
    parameters : ElementSerialSoftmaxParameters
        Dimensions of the softmax.
    shared : bool
        Use operators outside the unit, which other functions share; adds `operators`.

    Members
    -------
    exponentials : In(stream)
        Exponentials, and the end of a head.
    reciprocals : In(stream)
        Each head's reciprocal and scale; transferred with its last exponential.
    probabilities : Out(stream)
        Probabilities, and the end of a head.
    operators : Out(OPERATORS)
        With `shared`: the operators. No exponential is accepted unless they are granted.
    """

    def __init__(self, *, parameters: ElementSerialSoftmaxParameters, shared: bool = False) -> None:
        self.parameters = parameters
        self.shared = shared
        item = data.StructLayout({"value": parameters.exponential_layout, "last": 1})
        super().__init__(
            {
                "exponentials": In(stream.Signature(item)),
                "reciprocals": In(stream.Signature(parameters.reciprocal_layout)),
                "probabilities": Out(stream.Signature(parameters.element_layout)),
            }
            | ({"operators": Out(OPERATORS)} if shared else {})
        )

    def elaborate(self, platform: object) -> Module:
        """Scale the exponentials, multiply by the reciprocal."""
        m = Module()
        p = self.parameters
        operators = self.operators if self.shared else self._private_operators(m)
        output = self.probabilities
        move, begins = Signal(), Signal()
        payload, reciprocal = self.exponentials.payload, self.reciprocals.payload
        m.d.comb += [
            move.eq(~output.valid | output.ready),
            begins.eq(self.exponentials.valid & self.reciprocals.valid & operators.grant),
            self.exponentials.ready.eq(self.reciprocals.valid & operators.grant & move),
            self.reciprocals.ready.eq(begins & payload.last & move),
        ]
        code = self._placed(m, begins & move)

        # The factors, registered: a number without its sign, and the reciprocal.
        magnitude = Signal(BINARY16.width - 1, reset_less=True)
        mantissa = Signal(len(reciprocal.mantissa), reset_less=True)
        undefined = Signal(reset_less=True)
        stages = 1 + p.multiply_stages
        # Control bits in parallel with the operators, one bit per stage.
        valid, last = Signal(stages), Signal(stages, reset_less=True)
        with m.If(move):
            m.d.sync += [
                magnitude.eq(code),
                mantissa.eq(reciprocal.mantissa),
                undefined.eq(reciprocal.undefined),
                valid.eq(Cat(begins, valid)),
                last.eq(Cat(payload.last, last)),
            ]
        m.d.comb += [
            operators.request.eq(self.exponentials.valid & self.reciprocals.valid),
            operators.busy.eq(valid.any()),
            operators.enable.eq(move),
            operators.multiply.valid.eq(valid[0]),
            Value.cast(operators.multiply.a).eq(magnitude),
            # The probabilities of a head without a softmax are multiplied by a NaN.
            operators.multiply.b.mantissa.eq(mantissa | undefined),
            operators.multiply.b.exponent.eq(RECIPROCAL_EXPONENT | undefined.replicate(5)),
            output.valid.eq(valid[-1]),
            output.payload.value.eq(operators.multiply.result),
            output.payload.last.eq(last[-1]),
        ]
        return m

    def _placed(self, m: Module, takes: Value) -> Value:
        """Return an exponential's code, scaled by its head's later rises and by its head's sum.

        The exponent code increases when the largest power of two did as the exponentials arrived.
        """
        payload = self.exponentials.payload
        exponential = payload.value
        shape = self.parameters.scale_shape
        first, before = Signal(init=1), Signal(shape, reset_less=True)
        here, placed = Signal(shape), Signal(shape)
        falls = ~exponential.rises
        # Add the distance, or subtract it: its complement, and a carry in at the extra lowest bit.
        distance = exponential.distance ^ falls.replicate(len(exponential.distance))
        signs = falls.replicate(len(here) - len(distance))
        total = prefix_sum(m, Cat(Const(1, 1), here), Cat(falls, distance, signs))
        m.d.comb += [
            here.eq(Mux(first, self.reciprocals.payload.scale, before)),
            placed.eq(total[1 : len(here) + 1]),
        ]
        with m.If(takes):
            m.d.sync += [first.eq(payload.last), before.eq(Mux(exponential.rises, placed, here))]
        # Below exponent code 2 a product with a reciprocal is less than half the smallest number.
        lives = ~placed[-1] & placed[1:-1].any()
        code = Cat(exponential.mantissa, placed[: BINARY16.exponent_bits])
        return code & lives.replicate(len(code))

    def _private_operators(self, m: Module) -> SharedOperators:
        """Return operators of the unit's own."""
        stages = self.parameters.multiply_stages
        multiply = FloatMultiply(extra_bits=EXTRA_BITS, stages=stages, enable=True)
        return private_operators(m, OPERATORS, multiply=multiply)
