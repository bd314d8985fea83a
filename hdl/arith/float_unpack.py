"""What a floating-point operator reads from its operands and how it packs its result."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike

from hdl.arith.float_format import FloatFormat, Specials
from hdl.arith.prefix_sum import incremented
from hdl.parameters import require


def require_ieee(name: str, number_format: FloatFormat) -> None:
    """Raise a worded error unless a format is signed and has IEEE's special values.

    Raises
    ------
    ValueError
        If it is not, or its exponent is so narrow that one operation spans it.
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
    """The parts of one operand.

    Members
    -------
    sign : Value
        1 if negative.
    exponent : Value
        Exponent code; 1 for zero and the subnormals, whose last bit weighs the same.
    significand : Value
        Mantissa with the leading bit, which is 0 for zero and the subnormals.
    zero, infinite, nan : Value
        What kind of number it is. The last two are constant 0 where an operator saturates.
    normal : bool
        It is known to be a normal number, or a NaN.
    """

    sign: Value
    exponent: Value
    significand: Value
    zero: Value
    infinite: Value
    nan: Value
    normal: bool = False


def unpack(m: Module, number_format: FloatFormat, code: ValueLike, *, saturate: bool) -> Operand:
    """Return the parts of a code; with `saturate` every code is a number."""
    code = Value.cast(code)
    mantissa = code[: number_format.mantissa_bits]
    exponent = code[number_format.mantissa_bits : -1]
    normal = Signal()
    fraction = Signal()
    m.d.comb += [normal.eq(exponent.any()), fraction.eq(mantissa.any())]
    # With `saturate` the largest exponent code is a number's like any other.
    special = Const(0) if saturate else exponent.all()
    return Operand(
        sign=code[-1],
        # A subnormal has the exponent of code 1, without the leading one.
        exponent=Cat(exponent[0] | ~normal, exponent[1:]),
        significand=Cat(mantissa, normal),
        zero=~normal & ~fraction,
        infinite=special & ~fraction,
        nan=special & fraction,
    )


def unpack_normal(number_format: FloatFormat, code: ValueLike, *, saturate: bool) -> Operand:
    """Return the parts of a code that is always a normal number's, or a NaN's."""
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


def pack(
    m: Module,
    number_format: FloatFormat,
    *,
    sign: Value,
    exponent: Value,
    mantissa: Value,
    increment: Value,
    infinite: Value,
    nan: Value,
    saturate: bool,
) -> Value:
    """Round a result and return its code.

    Parameters
    ----------
    m : Module
        Where the logic goes.
    number_format : FloatFormat
        The result's format.
    sign, mantissa : Value
        As in the code, the mantissa not yet rounded.
    exponent : Value
        Exponent code, in one bit more than the format's at least.
    increment : Value
        Whether to round up; a carry out of the mantissa goes into the exponent by itself.
    infinite, nan : Value
        The result is an infinity of this sign, or the quiet NaN, whatever the rest says.
    saturate : bool
        A result beyond the largest finite number gives that number and not infinity.
    """
    width = number_format.exponent_bits
    # A mantissa that rounds over carries into the exponent, which is then right by itself.
    magnitude = incremented(m, Cat(mantissa, exponent), increment)
    rounded = magnitude[len(mantissa) :]
    # The same as asking the rounded exponent, without waiting for the carry.
    over = (
        exponent[:width].all()
        | exponent[width:].any()
        | (exponent[1:width].all() & mantissa.all() & increment)
    )
    if saturate:
        largest = Const(number_format.max_finite, number_format.width - 1)
        return Cat(Mux(over, largest, magnitude[: len(largest)]), sign)
    # Infinity and NaN share the largest exponent; only the NaN has a mantissa, and no sign.
    quiet = Const(1 << (len(mantissa) - 1), len(mantissa))
    special = Signal()
    m.d.comb += special.eq(over | infinite | nan)
    return Cat(
        (magnitude[: len(mantissa)] & ~special.replicate(len(mantissa)))
        | (quiet & nan.replicate(len(mantissa))),
        rounded[:width] | special.replicate(width),
        sign & ~nan,
    )
