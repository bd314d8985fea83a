"""2**x of a fixed-point number x <= 0: linear segments for the fraction, then a shift."""

import mpmath
from amaranth.hdl import Array, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.fixed_point import FixedPoint
from hdl.arith.operator import Operator
from hdl.arith.shapes import constant
from hdl.parameters import require, require_power_of_two, require_range

SOFTERMAX_ARGUMENT = FixedPoint(integer_bits=6, fraction_bits=10)
"""Q6.10, a score minus the integer maximum."""

SOFTERMAX_RESULT = FixedPoint(integer_bits=1, fraction_bits=15, signed=False)
"""UQ1.15, a term of the sum."""


def slope_bits(segments: int, fraction_bits: int) -> int:
    """Return the fraction bits of a slope; rounding at this width adds little to the error."""
    return min(2 * (segments.bit_length() - 1) + 6, fraction_bits)


def line_table(segments: int, fraction_bits: int) -> tuple[tuple[int, int], ...]:
    """Return ``(value, slope)`` of each segment of ``2**f`` on [0, 1), in units of the last place.

    Each line passes through the curve at the left end of its segment and, except for the rounding
    of the slope, at the right end. Slopes are rounded down, so the function never decreases at a
    segment boundary. 2**0 is exactly 1.

    Parameters
    ----------
    segments : int
        Number of segments, a power of two.
    fraction_bits : int
        Fraction bits of a value, rounded to nearest.
    """
    table = []
    unit = 1 << slope_bits(segments, fraction_bits)
    with mpmath.workprec(100):
        for segment in range(segments):
            left, right = (
                mpmath.mpf(2) ** (mpmath.mpf(segment + end) / segments) for end in range(2)
            )
            slope = int(mpmath.floor((right - left) * segments * unit))
            table.append((int(mpmath.nint(left * 2**fraction_bits)), slope))
    return tuple(table)


class Exp2Fixed(Operator):
    """``2**x`` for x <= 0, by linear interpolation.

    ``x = -i + f`` with f in [0, 1). One of `segments` lines approximates 2**f and a right shift by
    i gives the result, as in Softermax.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** bits below the
    result's last place are truncated (floor). Before truncation, the relative error of the lines is
    0 to ``(ln(2) / segments)**2 / 8`` (0.38 % for 4 segments, 0.0015 % for 64). Rounding of table
    values and slopes adds less than a tenth of that, plus two units of the last place. ``2**0`` is
    exactly 1 and the function is monotonic.

    Parameters
    ----------
    argument : FixedPoint
        Signed format of x. A positive argument is outside the contract.
    result_format : FixedPoint
        Unsigned format that can represent 1: ``integer_bits >= 1``.
    segments : int
        Number of segments, a power of two from 2 to 64, at most one per step of the argument.
    stages : int
        Pipeline stages: the last one registers the result, a second separates segment and shift.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(argument.shape)
        x.
    result : Out(result_format.shape)
        2**x.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        argument: FixedPoint = SOFTERMAX_ARGUMENT,
        result_format: FixedPoint = SOFTERMAX_RESULT,
        segments: int = 4,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require(argument.signed, "argument must be a signed format", str(argument))
        require_range("argument.integer_bits", argument.integer_bits, 2, 16)
        require_range("argument.fraction_bits", argument.fraction_bits, 1, 24)
        require(not result_format.signed, "result_format must be unsigned", str(result_format))
        require_range("result_format.integer_bits", result_format.integer_bits, 1, 64)
        require_range("result_format.fraction_bits", result_format.fraction_bits, 1, 32)
        require_power_of_two("segments", segments, 2, min(64, 1 << argument.fraction_bits))
        self.argument = argument
        self.result_format = result_format
        self.segments = segments
        members = {"a": In(argument.shape), "result": Out(result_format.shape)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Interpolate, cut, shift, cut."""
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        point = self.argument.fraction_bits
        # The integer part is zero or negative: its complement is one less than the shift.
        whole = self.a[point:]
        value, down = pipeline.cut(self._line(self.a[:point]), (-whole.as_signed())[: len(whole)])
        (result,) = pipeline.cut((value >> down)[: self.result_format.width])
        m.d.comb += self.result.eq(result)
        return m

    def _line(self, fraction: Value) -> Value:
        """Return 2**fraction with the result's fraction bits."""
        bits = self.result_format.fraction_bits
        along_bits = len(fraction) - (self.segments.bit_length() - 1)
        # The fraction's upper bits select the segment, the lower bits are the offset in it.
        along, segment = fraction[:along_bits], fraction[along_bits:]
        unit_bits = slope_bits(self.segments, bits)
        table = line_table(self.segments, bits)
        value = Array([constant(value, bits + 1) for value, _ in table])[segment]
        slope = Array([constant(slope, unit_bits + 1) for _, slope in table])[segment]
        # The slope is per unit interval; `along` counts steps of the fraction's last place.
        rise = (slope * along) << (bits - unit_bits) >> len(fraction)
        return (value + rise)[: bits + 1]
