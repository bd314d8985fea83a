"""Operand decoding and result encoding of the floating-point operators."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike

from hdl.arith.float_format import FloatFormat, Specials
from hdl.arith.prefix_sum import incremented
from hdl.parameters import require


def require_ieee(name: str, number_format: FloatFormat) -> None:
    """Raise an error unless a format is signed and has IEEE 754's special values.

    Raises
    ------
    ValueError
        If it is not, or it has fewer than 2 mantissa bits.
    """
    require(
        isinstance(number_format, FloatFormat)
        and number_format.signed
        and number_format.specials is Specials.IEEE
        and number_format.bias == number_format.exponent_mask >> 1
        and number_format.mantissa_bits >= 2,
        f"{name} must be a signed IEEE format with 2 or more mantissa bits",
        number_format,
    )


@dataclass(frozen=True)
class Operand:
    """The fields and the class of one operand.

    Members
    -------
    sign : Value
        1 if negative.
    exponent : Value
        Exponent code; 1 for zero and subnormals, whose last place has the same weight.
    significand : Value
        Mantissa with the hidden bit, which is 0 for zero and subnormals.
    zero, infinite, nan : Value
        Class of the number. The last two are constant 0 where an operator saturates.
    normal : bool
        The operand is known to be a normal number or a NaN.
    """

    sign: Value
    exponent: Value
    significand: Value
    zero: Value
    infinite: Value
    nan: Value
    normal: bool = False


def unpack(
    m: Module,
    number_format: FloatFormat,
    code: ValueLike,
    *,
    saturate: bool,
    subnormals: bool = True,
) -> Operand:
    """Decode a code; with `saturate` every code is a number.

    Without `subnormals`, no code is a subnormal, and a zero has the exponent 0.
    """
    code = Value.cast(code)
    mantissa = code[: number_format.mantissa_bits]
    exponent = code[number_format.mantissa_bits : -1]
    normal = Signal()
    fraction = Signal()
    m.d.comb += [normal.eq(exponent.any()), fraction.eq(mantissa.any())]
    # With `saturate` the largest exponent code encodes numbers like any other.
    special = Const(0) if saturate else exponent.all()
    return Operand(
        sign=code[-1],
        # A subnormal has the exponent of code 1 and a hidden bit of 0.
        exponent=Cat(exponent[0] | ~normal, exponent[1:]) if subnormals else exponent,
        significand=Cat(mantissa, normal),
        zero=~normal & ~fraction,
        infinite=special & ~fraction,
        nan=special & fraction,
    )


def unpack_normal(number_format: FloatFormat, code: ValueLike, *, saturate: bool) -> Operand:
    """Decode a code that always encodes a normal number or a NaN."""
    code = Value.cast(code)
    mantissa = code[: number_format.mantissa_bits]
    exponent = code[number_format.mantissa_bits : -1]
    return Operand(
        sign=code[-1],
        exponent=exponent,
        significand=Cat(mantissa, Const(1, 1)),
        zero=Const(0, 1),
        infinite=Const(0, 1),
        nan=Const(0) if saturate else exponent.all(),
        normal=True,
    )


@dataclass(frozen=True)
class Inexact:
    """A result before it is rounded.

    Members
    -------
    sign, mantissa : Value
        Sign and unrounded mantissa.
    exponent : Value
        Exponent code with at least one bit more than the format's.
    increment : Value
        Round up; a carry out of the mantissa increments the exponent.
    infinite, nan : Value
        The result is an infinity of this sign, or the quiet NaN, whatever the other members.
    """

    sign: Value
    exponent: Value
    mantissa: Value
    increment: Value
    infinite: Value
    nan: Value


def pack(m: Module, number_format: FloatFormat, result: Inexact, *, saturate: bool) -> Value:
    """Round a result and return its code.

    Parameters
    ----------
    m : Module
        Module that receives the logic.
    number_format : FloatFormat
        Format of the result.
    result : Inexact
        The result before rounding.
    saturate : bool
        A result beyond the largest finite number becomes that number instead of infinity.
    """
    sign, exponent, mantissa = result.sign, result.exponent, result.mantissa
    increment, infinite, nan = result.increment, result.infinite, result.nan
    width = number_format.exponent_bits
    # A carry out of the mantissa increments the exponent, which is then correct.
    magnitude = incremented(m, Cat(mantissa, exponent), increment)
    rounded = magnitude[len(mantissa) :]
    # Equivalent to a test of the rounded exponent, but independent of the carry.
    over = (
        exponent[:width].all()
        | exponent[width:].any()
        | (exponent[1:width].all() & mantissa.all() & increment)
    )
    if saturate:
        largest = Const(number_format.max_finite, number_format.width - 1)
        return Cat(Mux(over, largest, magnitude[: len(largest)]), sign)
    # Infinity and NaN share the largest exponent; the NaN has a nonzero mantissa and sign 0.
    quiet = Const(1 << (len(mantissa) - 1), len(mantissa))
    special = Signal()
    m.d.comb += special.eq(over | infinite | nan)
    return Cat(
        (magnitude[: len(mantissa)] & ~special.replicate(len(mantissa)))
        | (quiet & nan.replicate(len(mantissa))),
        rounded[:width] | special.replicate(width),
        sign & ~nan,
    )
