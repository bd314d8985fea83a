"""FP16 division and reciprocal by an array of restoring rows: correctly rounded."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.divider import restoring_step
from hdl.arith.float_format import BINARY16
from hdl.arith.float_normalise import normalised
from hdl.arith.float_unpack import Operand, pack, unpack
from hdl.arith.operator import Operator, Pipeline
from hdl.parameters import require_choice

ROWS = BINARY16.significand_bits + 2
"""Digits of a quotient between 1/2 and 2: the significand, a rounding bit, one for the range."""

CUTS = ROWS + 3
"""Cut points: behind the normalisation, every row, the alignment and the rounding."""


class FloatDivide(Operator):
    """Quotient of two FP16 numbers.

    **Latency** `stages` cycles. **Throughput** one quotient a cycle. **Numerics** correctly
    rounded to nearest, ties to even; subnormals in and out; infinities and NaNs by IEEE 754, every
    NaN being the quiet NaN of sign 0.

    Parameters
    ----------
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code is the number it would be
        in a format without special values; a quotient beyond 65504, or by zero, is 65504 with the
        quotient's sign, and 0/0 is 0.
    stages : int
        Register ranks: the last one is the result, others stand behind the normalisation, each of
        the 13 rows and the alignment.
    enable : bool
        Whether the ranks move only while the input `enable` is 1.

    Members
    -------
    a, b : In(BINARY16.layout)
        Dividend and divisor.
    result : Out(BINARY16.layout)
        ``a / b``.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, saturate: bool = False, stages: int = 0, enable: bool = False) -> None:
        require_choice("saturate", saturate, (False, True))
        self.saturate = saturate
        fp16 = BINARY16.layout
        members = {"a": In(fp16), "b": In(fp16), "result": Out(fp16)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Divide the significands, subtract the exponents."""
        m = Module()
        a = unpack(m, BINARY16, self.a, saturate=self.saturate)
        b = unpack(m, BINARY16, self.b, saturate=self.saturate)
        # The smallest quotient, 2**-40, is 26 binades below the smallest normal number.
        quotient = _divide(m, self.pipeline(m, cuts=CUTS), a, b, saturate=self.saturate, deepest=26)
        m.d.comb += self.result.eq(quotient)
        return m


class FloatReciprocal(Operator):
    """Reciprocal of an FP16 number.

    **Latency** `stages` cycles. **Throughput** one result a cycle. **Numerics** correctly rounded,
    as `FloatDivide` with the dividend 1.

    Parameters
    ----------
    saturate : bool
        As `FloatDivide`: 1/0 is 65504 with the zero's sign.
    stages : int
        Register ranks, placed as in `FloatDivide`.
    enable : bool
        Whether the ranks move only while the input `enable` is 1.

    Members
    -------
    a : In(BINARY16.layout)
        The number.
    result : Out(BINARY16.layout)
        ``1 / a``.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, saturate: bool = False, stages: int = 0, enable: bool = False) -> None:
        require_choice("saturate", saturate, (False, True))
        self.saturate = saturate
        members = {"a": In(BINARY16.layout), "result": Out(BINARY16.layout)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Divide a constant; what of the array it needs, synthesis keeps."""
        m = Module()
        one = unpack(m, BINARY16, Const(BINARY16.one, 16), saturate=self.saturate)
        a = unpack(m, BINARY16, self.a, saturate=self.saturate)
        # The smallest reciprocal, just above 2**-17, is 3 binades below the smallest normal number.
        quotient = _divide(
            m, self.pipeline(m, cuts=CUTS), one, a, saturate=self.saturate, deepest=3
        )
        m.d.comb += self.result.eq(quotient)
        return m


def _divide(
    m: Module, pipeline: Pipeline, a: Operand, b: Operand, *, saturate: bool, deepest: int
) -> Value:
    """Return the code of ``a / b``, no more than `deepest` binades below the normal numbers."""
    dividend, above = normalised(a)
    divisor, below = normalised(b)
    sign = a.sign ^ b.sign
    nan = a.nan | b.nan | (a.zero & b.zero & ~Const(saturate, 1)) | (a.infinite & b.infinite)
    infinite = a.infinite | b.zero
    zero = a.zero | b.infinite
    exponent = above - below + BINARY16.bias
    control = (sign, nan, infinite, zero, exponent.as_signed())
    # The dividend is less than twice the divisor, as the first row needs it.
    remainder, divisor, digit, *control = pipeline.cut(dividend[1:], divisor, dividend[0], *control)
    digits: Value = Const(0, 0)
    for _ in range(ROWS):
        remainder, fits = restoring_step(remainder, digit, divisor)
        digit = Const(0, 1)
        remainder, divisor, digits, *control = pipeline.cut(
            remainder, divisor, Cat(fits, digits), *control
        )

    sign, nan, infinite, zero, exponent = control
    # A quotient below 1 begins one digit later.
    above_one = digits[-1]
    significand = Cat(remainder.any(), Mux(above_one, digits, digits << 1)[:ROWS])
    exponent = exponent.as_signed() - ~above_one
    subnormal = exponent < 1
    down = Mux(subnormal, 1 - exponent, 0)[: deepest.bit_length()]
    # Only the fact that a one was dropped matters below the rounding bit.
    wide = Cat(Const(0, deepest), significand) >> down
    sticky = wide[: deepest + 2].any()
    code = Mux(subnormal, 0, exponent)[:6]
    kept, sticky, sign, nan, infinite, zero, code = pipeline.cut(
        wide[deepest + 2 :], sticky, sign, nan, infinite, zero, code
    )

    some = ~zero
    huge = infinite & some
    quotient = pack(
        m,
        BINARY16,
        sign=sign,
        exponent=Cat(code & some.replicate(6), huge),
        mantissa=kept[1:11] & some.replicate(10),
        increment=kept[0] & (sticky | kept[1]) & some,
        infinite=huge,
        nan=nan,
        saturate=saturate,
    )
    (quotient,) = pipeline.cut(quotient)
    return quotient
