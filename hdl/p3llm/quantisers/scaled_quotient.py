"""Division of a number by its group's scale, rounded to a code as in float32 arithmetic."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Operator
from hdl.arith.prefix_sum import prefix_difference
from hdl.p3llm.quantisers.group_scale import SCALE_LAYOUT
from hdl.parameters import require_choice

DIGITS = 5
"""Digits of the longest quotient: four digits of the result, and a rounding digit."""

E4M3_STEPS = 11
INT4_STEPS = 2
"""Digits of a quotient between 1 and 2: down to 2**-10, half of the smallest E4M3 number, and for
INT4 down to a half."""


class Normalised(NamedTuple):
    """A number's significand, and its exponent minus that of the scale."""

    significand: Value
    binade: Value


class Begun(NamedTuple):
    """The remainder after the first digit, the count of digits, and the excess."""

    remainder: Value
    count: Value
    excess: Value


class ScaledQuotient(Operator):
    """Division of an FP16 magnitude by a scale, rounded to a small integer.

    Software rounds twice: the quotient to float32, then to an integer or to four digits. Five
    digits of the exact quotient and their remainder give the same result, without the other
    nineteen digits. The first rounding matters only if it turns a quotient next to a tie into a
    tie. This is the case if the remainder, or its difference to the scale, is at most half of a
    float32's last place.

    **Latency** `stages` cycles. **Throughput** one quotient per cycle. **Numerics** as above; both
    roundings are to nearest, ties to even.

    Parameters
    ----------
    steps : int
        `E4M3_STEPS` or `INT4_STEPS`.
    stages : int
        Pipeline stages: the last one registers the result; others are after the normalisation, the
        first digit and each of the four rows.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(15)
        A finite FP16 magnitude.
    scale : In(SCALE_LAYOUT)
        The scale; `stored` is not used.
    rounded : Out(5)
        The rounded quotient, without the rounding digit: 0 to 16.
    excess : Out(6)
        Number of binades of the quotient above the range in which the weights of its digits are
        fixed: for E4M3 the exponent code minus 1; for INT4 nonzero if the quotient is 16 or more.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, steps: int, stages: int = 0, enable: bool = False) -> None:
        require_choice("steps", steps, (E4M3_STEPS, INT4_STEPS))
        self.steps = steps
        members = {"a": In(15), "scale": In(SCALE_LAYOUT), "rounded": Out(5), "excess": Out(6)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Align the number with the scale, divide in four rows, compare the remainder, round."""
        m = Module()
        pipeline = self.pipeline(m, cuts=DIGITS + 2)
        divisor: Value = self.scale.significand
        significand, binade = self._normalised()
        divisor, significand, binade = pipeline.cut(divisor, significand, binade.as_unsigned())
        remainder, count, excess = self._begun(m, divisor, significand, binade.as_signed())
        divisor, remainder, count, excess = pipeline.cut(divisor, remainder, count, excess)

        # The first digit is 1 by the alignment; a short quotient skips the last rows.
        quotient: Value = count.any()
        for row in range(1, DIGITS):
            twice = Cat(Const(0, 1), remainder)
            difference, fits = prefix_difference(m, twice, Cat(divisor, Const(0, 1)))
            takes = count > row
            remainder = Mux(takes, Mux(fits, difference, twice), remainder)[:24]
            quotient = Mux(takes, Cat(fits, quotient), quotient)[: row + 1]
            divisor, remainder, quotient, count, excess = pipeline.cut(
                divisor, remainder, quotient, count, excess
            )

        # Half of a float32's last place, in units of the remainder, by the number of digits.
        place = (Cat(divisor[20:], Const(0, 1)) >> (DIGITS - count)[:3])[:4]
        above, (below, _) = remainder, prefix_difference(m, divisor, remainder)
        at_tie = ~above[4:].any() & (above[:4] <= place)
        next_to_tie = ~below[4:].any() & (below[:4] <= place)
        odd, kept = quotient[0], quotient[1:]
        up = Mux(Mux(odd, at_tie, next_to_tie), kept[0], odd)
        rounded, excess = pipeline.cut((kept + up)[:5], excess)
        m.d.comb += [self.rounded.eq(rounded), self.excess.eq(excess)]
        return m

    def _normalised(self) -> Normalised:
        """Shift out leading zeros."""
        mantissa, exponent = self.a[:10], self.a[10:]
        normal = exponent.any()
        digits = Cat(mantissa, normal)
        zeros = leading_zeros(digits)[:4]
        binade = Cat(exponent[0] | ~normal, exponent[1:]) - zeros - self.scale.exponent
        return Normalised((digits << zeros)[:11], binade)

    def _begun(self, m: Module, divisor: Value, significand: Value, binade: Value) -> Begun:
        """Compute the first digit."""
        # If the significand is below the scale's, its first digit is one place lower, and the scale
        # is subtracted from the double. Both differences are computed in parallel.
        once, twice = Cat(Const(0, 13), significand), Cat(Const(0, 14), significand)[:24]
        difference, fits = prefix_difference(m, once, divisor)
        doubled, _ = prefix_difference(m, twice, divisor)
        remainder = Mux(fits, difference, doubled)
        # The binade of the quotient, and so the number of its digits.
        binade -= ~fits
        count = (binade + (112 + self.steps)).as_signed()
        some = significand[10] & (count > 0)
        beyond = some & (count > DIGITS)
        excess = Mux(beyond, count - DIGITS, 0)[:6]
        digits_left = Mux(beyond, DIGITS, Mux(some, count[:3], 0))[:3]
        return Begun(remainder, digits_left, excess)
