"""FP16 exponential: constant multiplication, table of 64 linear segments, two shifts."""

from enum import Enum

import mpmath
from amaranth.hdl import Array, Cat, Const, Module, Mux, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.arith.float_normalise import INFINITY, QUIET_NAN
from hdl.arith.operator import Operator
from hdl.parameters import require_choice

FRACTION_BITS = 12
"""Bits of ``|x| * log2(e)`` below the binary point."""

SEGMENTS = 64
"""Segments on [0, 1): the fraction's upper bits select a segment, the lower bits interpolate."""

VALUE_BITS = 13
"""Fraction bits of a segment's value."""

SLOPE_BITS = 4
"""Fraction bits of a segment's slope."""


class Domain(Enum):
    """Which arguments an exponential accepts.

    Members
    -------
    ALL : str
        Every FP16 number.
    NONPOSITIVE : str
        Zero and negative numbers, as in a softmax after subtraction of the maximum. The unit
        ignores the sign: the result is ``exp(-|x|)``.
    """

    ALL = "all"
    NONPOSITIVE = "nonpositive"


def line_table() -> tuple[tuple[int, int], ...]:
    """Return ``(value, slope)`` of each segment of ``2**f``, in units of the last place.

    A segment has the slope of the curve at its centre. Its height at the centre is halfway between
    the curve and the mean of the curve's end points, which halves the largest error. The value
    belongs to the middle of the segment's first step, because truncating the argument loses half a
    step on average.
    """
    step = mpmath.mpf(2) ** -FRACTION_BITS
    table = []
    with mpmath.workprec(100):
        for segment in range(SEGMENTS):
            left, centre, right = (
                mpmath.mpf(2) ** (mpmath.mpf(2 * segment + half) / (2 * SEGMENTS))
                for half in range(3)
            )
            slope = int(mpmath.nint(mpmath.ln(2) * centre * 2**SLOPE_BITS))
            height = (centre + (left + right) / 2) / 2
            to_first_step = (mpmath.mpf(1) / SEGMENTS - step) / 2
            value = height - slope * to_first_step / 2**SLOPE_BITS
            table.append((int(mpmath.nint(value * 2**VALUE_BITS)), slope))
    return tuple(table)


class FloatExp(Operator):
    """``exp(x)`` of an FP16 number.

    ``exp(x) = 2**i * 2**f`` with ``i + f = x * log2(e)``. The unit multiplies the magnitude of x by
    log2(e) and aligns the product. For a negative x it takes the complement, so that f increases
    with x for both signs. One of 64 linear segments approximates 2**f; a right shift produces
    subnormal results.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** at most 0.897 ulp
    from the exact value over all FP16 arguments, subnormal results included; ``exp(0)`` is exactly
    1 and the function is monotonic. A NaN gives the quiet NaN, -inf gives 0, a result beyond 65504
    becomes infinity.

    Parameters
    ----------
    domain : Domain
        Set of accepted arguments.
    saturate : bool
        No infinity and no NaN: an argument with the largest exponent code has its value in a format
        without special values, and a result beyond 65504 becomes 65504.
    stages : int
        Pipeline stages. With seven, two are in the multiplication by log2(e), one follows the
        alignment, two are in the interpolation, one follows the shift, and the last one registers
        the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(BINARY16.layout)
        x.
    result : Out(BINARY16.layout)
        exp(x).

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        domain: Domain = Domain.ALL,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_choice("domain", domain, tuple(Domain))
        require_choice("saturate", saturate, (False, True))
        self.domain = domain
        self.saturate = saturate
        members = {"a": In(BINARY16.layout), "result": Out(BINARY16.layout)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Multiply, align, interpolate, shift, round; cut after each."""
        m = Module()
        pipeline = self.pipeline(m, cuts=7)
        mantissa, exponent = self.a.mantissa, self.a.exponent
        negative = Const(1, 1) if self.domain is Domain.NONPOSITIVE else self.a.sign
        nan = Const(0, 1) if self.saturate else exponent.all() & mantissa.any()
        # From |x| = 32 on, the result is out of range. An exponent code below 1 shifts all bits
        # out, so the missing hidden bit of subnormals has no effect.
        far = exponent >= 20
        right = (19 - exponent)[:5]
        # log2(e) is approximated by 23637 * 2**-14, the constant with the fewest nonzero digits
        # that keeps the error within 1 ulp. 23637 is 23 * 2**10 + 85, which takes five adders.
        significand = Cat(mantissa, Const(1, 1))
        times_5 = significand + (significand << 2)
        times_23 = (significand << 4) + (significand << 3) - significand
        control = (right, negative, far, nan)
        times_23, times_85, *control = pipeline.cut(times_23, times_5 + (times_5 << 4), *control)

        product = ((times_23.as_signed() << 10) + times_85)[8:26]
        product, right, negative, far, nan = pipeline.cut(product, *control)

        aligned = product >> right
        aligned, negative, far, nan = pipeline.cut(aligned, negative, far, nan)

        whole = aligned[FRACTION_BITS:]
        left, rise = line(aligned[:FRACTION_BITS] ^ negative.replicate(FRACTION_BITS))
        left, rise, whole, negative, far, nan = pipeline.cut(left, rise, whole, negative, far, nan)

        value = (left + rise)[: VALUE_BITS + 1]
        value, whole, negative, far, nan = pipeline.cut(value, whole, negative, far, nan)

        # The exponent code of the result is 15 + whole, or 15 + ~whole = 14 - whole if x < 0.
        subnormal = negative & (whole >= 14)
        code = Mux(subnormal, 0, ((whole[:5] ^ negative.replicate(5)) + 15)[:5])
        down = Mux(subnormal, (whole - 13)[:5], 0)
        shifted = (value >> down)[VALUE_BITS - 11 :]
        zero = negative & (far | whole[5])
        beyond = ~negative & (far | whole[5] | whole[4])
        shifted, code, zero, beyond, nan = pipeline.cut(shifted, code, zero, beyond, nan)

        # The leading one of a normal result is part of its exponent code, which also absorbs a
        # carry.
        magnitude = (Cat(shifted[1:11], code) + shifted[0])[:15]
        if self.saturate:
            beyond = beyond | magnitude[10:].all()
        limit = BINARY16.max_finite if self.saturate else INFINITY
        magnitude = Mux(beyond, Const(limit, 15), magnitude & ~zero.replicate(15))
        (result,) = pipeline.cut(Mux(nan, Const(QUIET_NAN, 15), magnitude))
        m.d.comb += self.result.eq(result)
        return m


def line(fraction: Value) -> tuple[Value, Value]:
    """Return a segment's value and the increment at the fraction, in `VALUE_BITS` fraction bits."""
    segment_bits = SEGMENTS.bit_length() - 1
    along_bits = FRACTION_BITS - segment_bits
    along, segment = fraction[:along_bits], fraction[along_bits:]
    table = line_table()
    value = Array([Const(value, VALUE_BITS + 1) for value, _ in table])[segment]
    slope = Array([Const(slope, SLOPE_BITS + 1) for _, slope in table])[segment]
    down = SLOPE_BITS + FRACTION_BITS - VALUE_BITS
    return value, (slope * along) >> down
