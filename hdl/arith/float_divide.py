"""FP16 division and reciprocal by arrays of restoring rows, correctly rounded."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.divider import restoring_step
from hdl.arith.float_format import BINARY16
from hdl.arith.float_normalise import normalised
from hdl.arith.float_unpack import Inexact, Operand, pack, unpack, unpack_normal
from hdl.arith.operator import Operator, Pipeline
from hdl.parameters import require_choice, require_range
from hdl.unit import Unit

ROWS = BINARY16.significand_bits + 2
"""Digits of a quotient between 1/2 and 2: the significand, a rounding bit, one range bit."""

CUTS = ROWS + 3
"""Number of cuts: after the normalisation, each row, the alignment and the rounding."""


DEEPEST_QUOTIENT = 26
"""Binades from the smallest normal number down to the smallest quotient, 2**-40."""


class FloatDivide(Operator):
    """Quotient of two FP16 numbers.

    **Latency** `stages` cycles. **Throughput** one quotient per cycle. **Numerics** correctly
    rounded to nearest, ties to even; subnormals in and out; infinities and NaNs by IEEE 754, every
    NaN result is the quiet NaN with sign 0.

    Parameters
    ----------
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code has its value in a format
        without special values; a quotient beyond 65504, or by zero, becomes 65504 with the
        quotient's sign, and 0/0 is 0.
    divisor_from_one : bool
        Divisors are finite and at least 1, or NaNs; this saves their normalisation.
    stages : int
        Pipeline stages: the last one registers the result, the others follow the normalisation,
        each of the 13 rows and the alignment.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

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

    def __init__(
        self,
        *,
        saturate: bool = False,
        divisor_from_one: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_choice("saturate", saturate, (False, True))
        require_choice("divisor_from_one", divisor_from_one, (False, True))
        self.saturate, self.divisor_from_one = saturate, divisor_from_one
        fp16 = BINARY16.layout
        members = {"a": In(fp16), "b": In(fp16), "result": Out(fp16)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Divide the significands, subtract the exponents."""
        m = Module()
        a = unpack(m, BINARY16, self.a, saturate=self.saturate)
        b = _divisor(m, self.b, saturate=self.saturate, normal=self.divisor_from_one)
        quotient = _divide(
            m,
            self.pipeline(m, cuts=CUTS),
            a,
            b,
            saturate=self.saturate,
            deepest=DEEPEST_QUOTIENT,
        )
        m.d.comb += self.result.eq(quotient)
        return m


class FloatReciprocal(Operator):
    """Reciprocal of an FP16 number.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** correctly
    rounded, equal to `FloatDivide` with dividend 1.

    Parameters
    ----------
    saturate : bool
        As `FloatDivide`: 1/0 is 65504 with the zero's sign.
    stages : int
        Pipeline stages, distributed as in `FloatDivide`.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

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
        """Divide the constant 1; synthesis removes the unused part of the array."""
        m = Module()
        one = unpack(m, BINARY16, Const(BINARY16.one, 16), saturate=self.saturate)
        a = unpack(m, BINARY16, self.a, saturate=self.saturate)
        # The smallest reciprocal, just above 2**-17, is 3 binades below the smallest normal number.
        quotient = _divide(
            m, self.pipeline(m, cuts=CUTS), one, a, saturate=self.saturate, deepest=3
        )
        m.d.comb += self.result.eq(quotient)
        return m


class SerialFloatDivide(Unit):
    """Quotient of two FP16 numbers, several digits per cycle, for a pipeline that can stall.

    The unit forms two stages of the caller's pipeline. A division starts whenever the pipeline
    advances. It must finish before the next advance unless its result is unused.

    **Latency** two advances. **Throughput** one quotient per ``ceil(13 / digits) + 1`` cycles.
    **Numerics** as `FloatDivide`.

    Parameters
    ----------
    digits : int
        Quotient digits per cycle, 1 to 13.
    divisor_from_one : bool
        As `FloatDivide`.

    Members
    -------
    a, b : In(BINARY16.layout)
        Dividend and divisor.
    enable : In(1)
        Advance the pipeline: load the registers and start a division.
    busy : Out(1)
        1 while the division of the last advance is in progress.
    result : Out(BINARY16.layout)
        Quotient of the operands of the advance before the last.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, digits: int, divisor_from_one: bool = False) -> None:
        require_range("digits", digits, 1, ROWS)
        require_choice("divisor_from_one", divisor_from_one, (False, True))
        self.digits, self.divisor_from_one = digits, divisor_from_one
        fp16 = BINARY16.layout
        members = {"a": In(fp16), "b": In(fp16), "enable": In(1)}
        super().__init__(members | {"busy": Out(1), "result": Out(fp16)})

    @staticmethod
    def cycles(digits: int) -> int:
        """Return the minimum distance of two divisions in cycles."""
        return -(-ROWS // digits) + 1

    def elaborate(self, platform: object) -> Module:
        """Prepare, compute several rows per cycle, round."""
        m = Module()
        a = unpack(m, BINARY16, self.a, saturate=False)
        b = _divisor(m, self.b, saturate=False, normal=self.divisor_from_one)
        pipeline = Pipeline(m, stages=2, cuts=2, enable=self.enable)
        steps = self.cycles(self.digits) - 1
        left = Signal(range(steps + 1))
        dividend, divisor, first, *control = _prepared(a, b, saturate=False)
        remainder = Signal(len(divisor), reset_less=True)
        digit = Signal(reset_less=True)
        quotient = Signal(steps * self.digits, reset_less=True)
        m.d.comb += self.busy.eq(left.any())
        divisor, *control = pipeline.cut(divisor, *control)

        rest: Value = remainder
        brought, digits = digit, []
        for row in range(self.digits):
            step, fits = restoring_step(rest, brought, divisor)
            rest, brought = Signal(len(divisor), name=f"remainder_{row}"), Const(0, 1)
            m.d.comb += rest.eq(step)
            digits.insert(0, fits)
        with m.If(self.enable):
            m.d.sync += [remainder.eq(dividend), digit.eq(first), left.eq(steps)]
        with m.Elif(left.any()):
            m.d.sync += [
                remainder.eq(rest),
                digit.eq(0),
                quotient.eq(Cat(*digits, quotient)),
                left.eq(left - 1),
            ]

        # A finite quotient has no more digits than a significand, so any digits beyond the result
        # imply a nonzero remainder.
        kept = quotient[len(quotient) - ROWS :]
        aligned = _aligned(kept, remainder.any(), Outcome(*control), deepest=DEEPEST_QUOTIENT)
        (result,) = pipeline.cut(_packed(m, aligned, saturate=False))
        m.d.comb += self.result.eq(result)
        return m


class Outcome(NamedTuple):
    """Properties of a quotient that its digits do not contain.

    Members
    -------
    sign : Value
        Sign of the quotient.
    nan, infinite, zero : Value
        Class of the quotient.
    exponent : Value
        Signed exponent code of a quotient of at least 1.
    """

    sign: Value
    nan: Value
    infinite: Value
    zero: Value
    exponent: Value


class Aligned(NamedTuple):
    """A quotient before rounding.

    Members
    -------
    kept, sticky : Value
        Significand with a rounding bit, and whether any digit below it is 1.
    sign, nan, infinite, zero : Value
        As in `Outcome`.
    code : Value
        Exponent code, 0 for a subnormal quotient.
    """

    kept: Value
    sticky: Value
    sign: Value
    nan: Value
    infinite: Value
    zero: Value
    code: Value


def _divisor(m: Module, code: data.View, *, saturate: bool, normal: bool) -> Operand:
    """Return the fields of a divisor, with or without support for subnormals."""
    if normal:
        return unpack_normal(BINARY16, code, saturate=saturate)
    return unpack(m, BINARY16, code, saturate=saturate)


def _divide(
    m: Module, pipeline: Pipeline, a: Operand, b: Operand, *, saturate: bool, deepest: int
) -> Value:
    """Return the code of ``a / b``, which is at most `deepest` binades below the normal numbers."""
    remainder, divisor, digit, *control = pipeline.cut(*_prepared(a, b, saturate=saturate))
    digits: Value = Const(0, 0)
    for _ in range(ROWS):
        remainder, fits = restoring_step(remainder, digit, divisor)
        digit = Const(0, 1)
        remainder, divisor, digits, *control = pipeline.cut(
            remainder, divisor, Cat(fits, digits), *control
        )
    aligned = _aligned(digits, remainder.any(), Outcome(*control), deepest=deepest)
    aligned = Aligned(*pipeline.cut(*aligned))
    (quotient,) = pipeline.cut(_packed(m, aligned, saturate=saturate))
    return quotient


def _prepared(a: Operand, b: Operand, *, saturate: bool) -> tuple[Value, ...]:
    """Return remainder, divisor and digit of the first row, and the control values of the rows."""
    dividend, above = normalised(a)
    divisor, below = normalised(b)
    sign = a.sign ^ b.sign
    nan = a.nan | b.nan | (a.zero & b.zero & ~Const(saturate, 1)) | (a.infinite & b.infinite)
    infinite = a.infinite | b.zero
    # A zero has no digits. With a divisor of at least 1 its exponent is subnormal, so no flag is
    # needed.
    zero = Const(0, 1) if b.normal else a.zero | b.infinite
    exponent = above - below + BINARY16.bias
    # The first row requires a dividend of less than twice the divisor.
    return dividend[1:], divisor, dividend[0], sign, nan, infinite, zero, exponent.as_signed()


def _aligned(digits: Value, dropped: Value, outcome: Outcome, *, deepest: int) -> Aligned:
    """Return the aligned digits of a quotient and its exponent code."""
    # A quotient less than 1 starts one digit later.
    above_one = digits[-1]
    significand = Cat(dropped, Mux(above_one, digits, digits << 1)[:ROWS])
    exponent = outcome.exponent.as_signed() - ~above_one
    subnormal = exponent < 1
    down = Mux(subnormal, 1 - exponent, 0)[: deepest.bit_length()]
    # Below the rounding bit, only whether any one was dropped matters.
    wide = Cat(Const(0, deepest), significand) >> down
    sticky = wide[: deepest + 2].any()
    code = Mux(subnormal, 0, exponent)[:6]
    sign, nan, infinite, zero, _exponent = outcome
    return Aligned(wide[deepest + 2 :], sticky, sign, nan, infinite, zero, code)


def _packed(m: Module, quotient: Aligned, *, saturate: bool) -> Value:
    """Return the code of a rounded quotient."""
    kept, some = quotient.kept, ~quotient.zero
    huge = quotient.infinite & some
    return pack(
        m,
        BINARY16,
        Inexact(
            sign=quotient.sign,
            exponent=Cat(quotient.code & some.replicate(6), huge),
            mantissa=kept[1:11] & some.replicate(10),
            increment=kept[0] & (quotient.sticky | kept[1]) & some,
            infinite=huge,
            nan=quotient.nan,
        ),
        saturate=saturate,
    )
