"""FP16 exponential: a constant multiplication, a table of 64 lines, two shifts."""

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
"""Lines on [0, 1): the upper fraction bits choose the line, the lower ones walk along it."""

VALUE_BITS = 13
"""Fraction bits of a line's value."""

SLOPE_BITS = 4
"""Fraction bits of a line's slope."""


class Domain(Enum):
    """Which arguments an exponential accepts.

    Members
    -------
    ALL : str
        Every FP16 number.
    NONPOSITIVE : str
        Zero and below, as in a softmax after its maximum is subtracted. The sign is not looked at:
        the result is ``exp(-|x|)``.
    """

    ALL = "all"
    NONPOSITIVE = "nonpositive"


def line_table() -> tuple[tuple[int, int], ...]:
    """Return ``(value, slope)`` of every line of ``2**f``, in units of their last bits.

    A line has the slope of the curve at the segment's centre. Its height there is halfway between
    the curve and the mean of the curve's ends, which halves the largest error. The value belongs to
    the middle of the segment's first step, because the dropped bits of the argument make half a
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

    ``exp(x) = 2**i * 2**f`` with ``i + f = x * log2(e)``. The magnitude of x is multiplied by
    log2(e) and aligned; for a negative x its complement is taken, so that f counts upwards in
    either case; 2**f comes from one of 64 lines; a right shift makes subnormal results.

    **Latency** `stages` cycles. **Throughput** one result a cycle. **Numerics** at most 0.897 ulp
    from the exact value over all FP16 arguments, subnormal results included; ``exp(0)`` is exactly
    1 and the function is monotonic. A NaN gives the quiet NaN, -inf gives 0, a result beyond 65504
    infinity.

    Parameters
    ----------
    domain : Domain
        Which arguments are accepted.
    saturate : bool
        No infinity and no NaN: an argument with the largest exponent code is the number it would be
        in a format without special values, and a result beyond 65504 is 65504.
    stages : int
        Pipeline stages. Of seven, two stand in the multiplication by log2(e), one behind the
        alignment, two in the line, one behind the shift, and the last one is the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

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
        """Multiply, align, walk along the line, shift, round; a cut behind each."""
        m = Module()
        pipeline = self.pipeline(m, cuts=7)
        mantissa, exponent = self.a.mantissa, self.a.exponent
        negative = Const(1, 1) if self.domain is Domain.NONPOSITIVE else self.a.sign
        nan = Const(0, 1) if self.saturate else exponent.all() & mantissa.any()
        # From |x| = 32 on, the result is out of range. Below exponent code 1 nothing is left of x
        # after the shift, so the subnormals' missing leading one does not matter.
        far = exponent >= 20
        right = (19 - exponent)[:5]
        # log2(e) is 23637 * 2**-14, the constant with the fewest digits that keeps within 1 ulp,
        # and 23637 is 23 * 2**10 + 85: five adders.
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

        # The exponent code of the result is 15 + whole, or 15 + ~whole = 14 - whole if negative.
        subnormal = negative & (whole >= 14)
        code = Mux(subnormal, 0, ((whole[:5] ^ negative.replicate(5)) + 15)[:5])
        down = Mux(subnormal, (whole - 13)[:5], 0)
        shifted = (value >> down)[VALUE_BITS - 11 :]
        zero = negative & (far | whole[5])
        beyond = ~negative & (far | whole[5] | whole[4])
        shifted, code, zero, beyond, nan = pipeline.cut(shifted, code, zero, beyond, nan)

        # The leading one of a normal result is its exponent code's; a carry goes there by itself.
        magnitude = (Cat(shifted[1:11], code) + shifted[0])[:15]
        if self.saturate:
            beyond = beyond | magnitude[10:].all()
        limit = BINARY16.max_finite if self.saturate else INFINITY
        magnitude = Mux(beyond, Const(limit, 15), magnitude & ~zero.replicate(15))
        (result,) = pipeline.cut(Mux(nan, Const(QUIET_NAN, 15), magnitude))
        m.d.comb += self.result.eq(result)
        return m


def line(fraction: Value) -> tuple[Value, Value]:
    """Return a line's value and its rise to the fraction, both with `VALUE_BITS` fraction bits."""
    segment_bits = SEGMENTS.bit_length() - 1
    along_bits = FRACTION_BITS - segment_bits
    along, segment = fraction[:along_bits], fraction[along_bits:]
    table = line_table()
    value = Array([Const(value, VALUE_BITS + 1) for value, _ in table])[segment]
    slope = Array([Const(slope, SLOPE_BITS + 1) for _, slope in table])[segment]
    down = SLOPE_BITS + FRACTION_BITS - VALUE_BITS
    return value, (slope * along) >> down
