"""The sum of two floating-point terms in four steps, shared by adder and multiply-adders.

`rounded_sum` takes all steps but the comparison, with registers between them.

1. `compare` and `align`: the term with the smaller exponent is shifted right; what falls off is one
   sticky bit.
2. `add`: the terms are added or subtracted, and a negative difference is complemented.
3. `normalise`: the sum is shifted left until its leading one is on top or its exponent is 1.
4. One rounding.

A difference ``x - y`` is formed as ``x + ~y``, which is one too small. If it is negative, its
complement is the magnitude. If it is positive and nothing fell off, the missing one is carried
along: ones instead of zeros move in from the right, and the rounding adds the one behind them. If
something fell off, the exact difference lies between the two and the sticky bit says so. So no
carry waits for the sticky bit, and there is one adder before and one incrementer after the shift.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed

from hdl.arith.float_cut import Special, cut
from hdl.arith.float_format import FloatFormat
from hdl.arith.float_shift import shift_left, shift_right
from hdl.arith.float_unpack import pack
from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Pipeline
from hdl.arith.prefix_sum import prefix_sum


@dataclass(frozen=True)
class Term:
    """What orders a number ``(-1)**sign * significand * 2**exponent``.

    Members
    -------
    sign, exponent : Value
        Of the number; the exponent carries the result format's bias and may be signed.
    zero : Value, optional
        The number is 0 whatever its exponent; only needed where the exponent may be large then.
    """

    sign: Value
    exponent: Value
    zero: ValueLike = 0


@dataclass(frozen=True)
class Significands:
    """Both terms' significands, each with one bit before the point."""

    first: Value
    second: Value


@dataclass(frozen=True)
class Compared:
    """The order of two terms' exponents.

    Members
    -------
    sign, exponent : Value
        Of the term with the larger exponent.
    subtract : Value
        The signs differ.
    ahead : Value
        The first term has the larger exponent.
    amount : Value
        Places by which the other term moves right, less one if `ahead`.
    """

    sign: Value
    subtract: Value
    exponent: Value
    ahead: Value
    amount: Value


@dataclass(frozen=True)
class Aligned:
    """Two terms of one exponent: the larger, the smaller, and whether the latter lost ones."""

    sign: Value
    subtract: Value
    exponent: Value
    larger: Value
    smaller: Value
    sticky: Value


@dataclass(frozen=True)
class Sum:
    """A magnitude with two bits before the point; `missing` if it is one too small."""

    sign: Value
    exponent: Value
    magnitude: Value
    sticky: Value
    missing: Value


@dataclass(frozen=True)
class Normalised:
    """An exponent code, a significand, and what the rounding needs to know."""

    sign: Value
    exponent: Value
    mantissa: Value
    increment: Value


def compare(
    m: Module, first: Term, second: Term, *, exponent_bits: int, distance_bits: int
) -> Compared:
    """Return which term has the larger exponent, and by how much.

    Parameters
    ----------
    m : Module
        Where the logic goes.
    first, second : Term
        The terms.
    exponent_bits : int
        Bits that hold the larger exponent plus one.
    distance_bits : int
        Bits that hold the first exponent minus the second minus one, a signed number.
    """
    distance = Signal(signed(distance_bits))
    ahead = Signal()
    exponent = Signal(exponent_bits)
    m.d.comb += [
        # One less than the distance: its sign alone says whether the first is really ahead.
        distance.eq(first.exponent - second.exponent - 1),
        ahead.eq(~distance[-1] & ~Value.cast(first.zero)),
        exponent.eq(Mux(ahead, first.exponent, second.exponent)),
    ]
    return Compared(
        sign=Mux(ahead, first.sign, second.sign),
        subtract=first.sign ^ second.sign,
        exponent=exponent,
        ahead=ahead,
        # The complement of a negative number is one less than its magnitude: here just right.
        amount=distance[:-1] ^ distance[-1].replicate(distance_bits - 1),
    )


def align(m: Module, order: Compared, terms: Significands, *, fraction: int) -> Aligned:
    """Return both terms' significands at the larger exponent, `fraction` bits behind the point."""
    one = _fixed(terms.first, fraction + 1)
    two = _fixed(terms.second, fraction + 1)
    # Where the first is ahead, the second moves by the one place that the amount lacks.
    near, larger = Signal(fraction + 1), Signal(fraction + 1)
    m.d.comb += [
        near.eq(Mux(order.ahead, two >> 1, one)),
        larger.eq(Mux(order.ahead, one, two)),
    ]
    smaller, sticky = shift_right(m, near, order.amount, fraction + 1)
    return Aligned(
        sign=order.sign,
        subtract=order.subtract,
        exponent=order.exponent,
        larger=larger,
        smaller=smaller,
        sticky=sticky,
    )


def add(m: Module, terms: Aligned) -> Sum:
    """Return the magnitude of the sum."""
    width = len(terms.larger)
    # a - b as a + ~b: one too small, unless a lower one was lost, which is just that much.
    # Without a carry the result is negative, and its complement is the magnitude.
    total = prefix_sum(m, terms.larger, terms.smaller ^ terms.subtract.replicate(width))
    negative = Signal()
    magnitude = Signal(width + 1)
    m.d.comb += [
        negative.eq(terms.subtract & ~total[-1]),
        magnitude.eq(Cat(total[:-1] ^ negative.replicate(width), total[-1] & ~terms.subtract)),
    ]
    # An exact cancellation is +0, whatever the signs were.
    nothing = total[:-1].all() & negative & ~terms.sticky
    return Sum(
        sign=(terms.sign ^ negative) & ~nothing,
        exponent=terms.exponent,
        magnitude=magnitude,
        sticky=terms.sticky,
        missing=terms.subtract & total[-1] & ~terms.sticky,
    )


def normalise(m: Module, number_format: FloatFormat, total: Sum) -> Normalised:
    """Return exponent code, mantissa and the decision to round up."""
    width = len(total.magnitude)
    # The exponent belongs to the second bit from the top. A one at the place where it would become
    # 1 ends the count there: that is where the subnormals begin.
    floor = Cat(total.exponent == width - 1 - index for index in range(width))
    counted = Signal(width)
    count = Signal(range(width + 1))
    m.d.comb += [
        counted.eq(total.magnitude | floor),
        count.eq(leading_zeros(counted)),
    ]
    # One bit more than the significand: the guard, by which it is rounded.
    kept = number_format.significand_bits + 1
    shifted, ones, some = shift_left(m, total.magnitude, count, total.missing, kept)
    exponent = Signal(len(total.exponent))
    m.d.comb += exponent.eq(total.exponent + 1 - count)
    guard, last, top = shifted[0], shifted[1], shifted[-1]
    # The missing one is rippled only where it decides: all ones below the bits that are kept.
    behind = total.missing & ones
    return Normalised(
        sign=total.sign,
        exponent=exponent & top.replicate(len(exponent)),
        mantissa=shifted[1:-1],
        increment=(guard & (total.missing | total.sticky | some | last)) | (behind & last),
    )


def rounded_sum(
    m: Module,
    pipeline: Pipeline,
    number_format: FloatFormat,
    order: Compared,
    terms: Significands,
    special: Special,
    *,
    leading: int,
    before_sum: bool,
    before_rounding: bool,
    saturate: bool,
) -> Value:
    """Return the code of the sum, cut behind the addition, at the end, and where asked for.

    Parameters
    ----------
    m, pipeline
        Where the logic and the registers go.
    number_format : FloatFormat
        Of the result.
    order, terms, special
        The terms and what their exponents and kinds say.
    leading : int
        Zeros above the leading one that a first term with the larger exponent may have. The sum has
        as many bits more behind the point, where it may cancel down to.
    before_sum, before_rounding : bool
        Whether there is a cut between alignment and addition, or normalisation and rounding.
    saturate : bool
        A result beyond the largest finite number gives that number.
    """
    aligned = align(m, order, terms, fraction=number_format.mantissa_bits + leading + 2)
    if before_sum:
        aligned, special = cut(pipeline, aligned, special)
    total, special = cut(pipeline, add(m, aligned), special)
    result = normalise(m, number_format, total)
    if before_rounding:
        result, special = cut(pipeline, result, special)
    code = pack(
        m,
        number_format,
        sign=Mux(special.infinite, special.infinite_sign, result.sign),
        exponent=result.exponent,
        mantissa=result.mantissa,
        increment=result.increment,
        infinite=special.infinite,
        nan=special.nan,
        saturate=saturate,
    )
    return pipeline.cut(code)[0]


def _fixed(significand: Value, width: int) -> Value:
    """Return a significand with zeros below it."""
    return Cat(Const(0, width - len(significand)), significand)
