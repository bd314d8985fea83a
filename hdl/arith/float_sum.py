"""Sum of two floating-point terms in four steps, shared by adder and multiply-adders.

`rounded_sum` performs steps 2 to 4 and the alignment, with registers between the steps.

1. `compare` and `align`: shift the term with the smaller exponent right; merge the bits shifted out
   into one sticky bit.
2. `add`: add or subtract the terms; complement a negative difference.
3. `normalise`: shift the sum left until its leading one is at the top or its exponent code is 1.
4. `pack`: round once.

A difference ``x - y`` is computed as ``x + ~y``, which is one too small. If it is negative, its
complement is the magnitude. If it is positive and the sticky bit is 0, the missing one is deferred:
the normalising shift inserts ones instead of zeros, and the rounding adds one below them. If the
sticky bit is 1, the exact difference lies between the two values, which the sticky bit records. So
no carry depends on the sticky bit, and the unit needs one adder before the shift and one
incrementer after it.
"""

from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed

from hdl.arith.float_cut import Special, cut
from hdl.arith.float_format import FloatFormat
from hdl.arith.float_shift import shift_left, shift_right
from hdl.arith.float_unpack import Inexact, pack
from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Pipeline
from hdl.arith.prefix_sum import prefix_sum


@dataclass(frozen=True)
class Term:
    """Sign and exponent of a number ``(-1)**sign * significand * 2**exponent``.

    Members
    -------
    sign, exponent : Value
        Sign and exponent code; the code has the result format's bias and may be signed.
    zero : Value, optional
        The number is 0 whatever its exponent; needed only where that exponent may be large.
    """

    sign: Value
    exponent: Value
    zero: ValueLike = 0


@dataclass(frozen=True)
class Significands:
    """Significands of both terms, each with one bit above the binary point."""

    first: Value
    second: Value


@dataclass(frozen=True)
class Compared:
    """The order of two terms' exponents.

    Members
    -------
    sign, exponent : Value
        Sign and exponent code of the term with the larger exponent.
    subtract : Value
        The signs differ.
    ahead : Value
        The first term has the larger exponent.
    amount : Value
        Right-shift distance of the other term, minus one if `ahead`.
    """

    sign: Value
    subtract: Value
    exponent: Value
    ahead: Value
    amount: Value


@dataclass(frozen=True)
class Aligned:
    """Two terms with one exponent; `sticky` if the smaller one lost nonzero bits."""

    sign: Value
    subtract: Value
    exponent: Value
    larger: Value
    smaller: Value
    sticky: Value


@dataclass(frozen=True)
class Sum:
    """A magnitude with two bits above the binary point; `missing` if it is one too small."""

    sign: Value
    exponent: Value
    magnitude: Value
    sticky: Value
    missing: Value


@dataclass(frozen=True)
class Normalised:
    """Exponent code and mantissa, and the decision to round up."""

    sign: Value
    exponent: Value
    mantissa: Value
    increment: Value


def compare(
    m: Module, first: Term, second: Term, *, exponent_bits: int, distance_bits: int
) -> Compared:
    """Determine the term with the larger exponent and the difference of the exponents.

    Parameters
    ----------
    m : Module
        Module that receives the logic.
    first, second : Term
        The terms.
    exponent_bits : int
        Number of bits that hold the larger exponent plus one.
    distance_bits : int
        Number of bits that hold the signed value of first exponent minus second minus one.
    """
    distance = Signal(signed(distance_bits))
    ahead = Signal()
    exponent = Signal(exponent_bits)
    m.d.comb += [
        # One less than the difference: its sign alone decides whether the first exponent is larger.
        distance.eq(first.exponent - second.exponent - 1),
        ahead.eq(~distance[-1] & ~Value.cast(first.zero)),
        exponent.eq(Mux(ahead, first.exponent, second.exponent)),
    ]
    return Compared(
        sign=Mux(ahead, first.sign, second.sign),
        subtract=first.sign ^ second.sign,
        exponent=exponent,
        ahead=ahead,
        # The complement of a negative number is its magnitude minus one, which is the distance
        # needed.
        amount=distance[:-1] ^ distance[-1].replicate(distance_bits - 1),
    )


def align(m: Module, order: Compared, terms: Significands, *, fraction: int) -> Aligned:
    """Return both significands at the larger exponent, with `fraction` bits below the point."""
    one = _fixed(terms.first, fraction + 1)
    two = _fixed(terms.second, fraction + 1)
    # If the first term is ahead, shift the second by the one bit that the amount lacks.
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


def add(m: Module, terms: Aligned) -> tuple[Sum, Value]:
    """Return the sum, and whether it is an exact cancellation, whose sign must become 0."""
    width = len(terms.larger)
    # a - b is computed as a + ~b, which is one too small unless bits of b were shifted out. Without
    # a carry the result is negative, and its complement is the magnitude.
    total = prefix_sum(m, terms.larger, terms.smaller ^ terms.subtract.replicate(width))
    negative = Signal()
    magnitude = Signal(width + 1)
    m.d.comb += [
        negative.eq(terms.subtract & ~total[-1]),
        magnitude.eq(Cat(total[:-1] ^ negative.replicate(width), total[-1] & ~terms.subtract)),
    ]
    nothing = total[:-1].all() & negative & ~terms.sticky
    computed = Sum(
        sign=terms.sign ^ negative,
        exponent=terms.exponent,
        magnitude=magnitude,
        sticky=terms.sticky,
        missing=terms.subtract & total[-1] & ~terms.sticky,
    )
    return computed, nothing


def normalise(m: Module, number_format: FloatFormat, total: Sum) -> Normalised:
    """Compute exponent code, mantissa and the decision to round up."""
    width = len(total.magnitude)
    # The exponent belongs to the second bit from the top. A one at the bit where it would become 1
    # stops the count there: below are the subnormals.
    floor = Cat(total.exponent == width - 1 - index for index in range(width))
    counted = Signal(width)
    count = Signal(range(width + 1))
    m.d.comb += [
        counted.eq(total.magnitude | floor),
        count.eq(leading_zeros(counted)),
    ]
    # One bit more than the significand: the guard bit for rounding.
    kept = number_format.significand_bits + 1
    shifted, ones, some = shift_left(m, total.magnitude, count, total.missing, kept)
    exponent = Signal(len(total.exponent))
    m.d.comb += exponent.eq(total.exponent + 1 - count)
    guard, last, top = shifted[0], shifted[1], shifted[-1]
    # The missing one propagates only if all bits below the kept ones are ones.
    carried = total.missing & ones
    return Normalised(
        sign=total.sign,
        exponent=exponent & top.replicate(len(exponent)),
        mantissa=shifted[1:-1],
        increment=(guard & (total.missing | total.sticky | some | last)) | (carried & last),
    )


@dataclass(frozen=True)
class SumForm:
    """The form of the end of an addition.

    Parameters
    ----------
    number_format : FloatFormat
        Format of the result.
    before_sum, before_rounding : bool
        Insert a cut between alignment and addition, or normalisation and rounding.
    saturate : bool
        A result beyond the largest finite number becomes that number.
    leading : int
        Zeros above the leading one that a first term with the larger exponent may have. The sum has
        as many more fraction bits, which a cancellation can shift up.
    """

    number_format: FloatFormat
    before_sum: bool
    before_rounding: bool
    saturate: bool
    leading: int = 0


def rounded_sum(
    m: Module,
    pipeline: Pipeline,
    order: Compared,
    terms: Significands,
    special: Special,
    form: SumForm,
) -> Value:
    """Return the code of the sum, with cuts after the addition, at the end, and as requested.

    Parameters
    ----------
    m, pipeline
        Module and pipeline that receive the logic and the registers.
    order, terms, special
        Comparison result, significands and special results of the terms.
    form : SumForm
        Format of the result, and the cuts.
    """
    number_format = form.number_format
    fraction = number_format.mantissa_bits + form.leading + 2
    aligned = align(m, order, terms, fraction=fraction)
    if form.before_sum:
        aligned, special = cut(pipeline, aligned, special)
    raw, nothing = add(m, aligned)
    # An exact cancellation gives +0, whatever the signs.
    total, special = cut(pipeline, replace(raw, sign=raw.sign & ~nothing), special)
    result = normalise(m, number_format, total)
    if form.before_rounding:
        result, special = cut(pipeline, result, special)
    code = pack(
        m,
        number_format,
        Inexact(
            sign=Mux(special.infinite, special.infinite_sign, result.sign),
            exponent=result.exponent,
            mantissa=result.mantissa,
            increment=result.increment,
            infinite=special.infinite,
            nan=special.nan,
        ),
        saturate=form.saturate,
    )
    return pipeline.cut(code)[0]


def _fixed(significand: Value, width: int) -> Value:
    """Return a significand with zeros appended below."""
    return Cat(Const(0, width - len(significand)), significand)
