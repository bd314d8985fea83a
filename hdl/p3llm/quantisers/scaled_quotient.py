"""A number over its group's scale, rounded to a code as float32 arithmetic would round it."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Operator
from hdl.arith.prefix_sum import prefix_difference
from hdl.p3llm.quantisers.group_scale import SCALE_LAYOUT
from hdl.parameters import require_choice

DIGITS = 5
"""Digits of the longest quotient: four that are kept, and the one that rounds them."""

E4M3_STEPS = 11
INT4_STEPS = 2
"""Digits of a quotient between 1 and 2: down to 2**-10, half of the smallest E4M3 number, and down
to a half."""


class ScaledQuotient(Operator):
    """The magnitude of an FP16 number over a scale, rounded to a small integer.

    Software divides in float32, then rounds the quotient to an integer or to four digits: twice.
    Five digits of the exact quotient and their remainder tell the same, without the other nineteen:
    the first rounding matters only where it makes a tie of what is next to one, which is where the
    remainder, or what it lacks to the scale, is at most half of a float32's last place.

    **Latency** `stages` cycles. **Throughput** one quotient a cycle. **Numerics** as above; both
    roundings are to nearest, ties to even.

    Parameters
    ----------
    steps : int
        `E4M3_STEPS` or `INT4_STEPS`.
    stages : int
        Pipeline stages: the last one is the result, others stand behind the normalisation, the
        first digit and each of the four rows.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(15)
        An FP16 magnitude, finite.
    scale : In(SCALE_LAYOUT)
        The scale; `stored` is not used.
    rounded : Out(5)
        The quotient's digits without the last one: 0 to 16.
    excess : Out(6)
        Binades of the quotient above that in which all of its digits weigh what they weigh in a
        smaller one: for E4M3 the exponent code less 1; for INT4 a quotient of 16 or more.

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
        """Place the number above the scale, take four rows, compare the remainder, round."""
        m = Module()
        pipeline = self.pipeline(m, cuts=DIGITS + 2)
        divisor: Value = self.scale.significand
        significand, binade = self._normalised()
        divisor, significand, binade = pipeline.cut(divisor, significand, binade.as_unsigned())
        remainder, count, excess = self._begun(m, divisor, significand, binade.as_signed())
        divisor, remainder, count, excess = pipeline.cut(divisor, remainder, count, excess)

        # The first digit is 1 by the placing; a short quotient sits out the last rows.
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

        # Half of a float32's last place, in units of the remainder: its top bits by the digits.
        place = (Cat(divisor[20:], Const(0, 1)) >> (DIGITS - count)[:3])[:4]
        above, (below, _) = remainder, prefix_difference(m, divisor, remainder)
        at_tie = ~above[4:].any() & (above[:4] <= place)
        next_to_tie = ~below[4:].any() & (below[:4] <= place)
        odd, kept = quotient[0], quotient[1:]
        up = Mux(Mux(odd, at_tie, next_to_tie), kept[0], odd)
        rounded, excess = pipeline.cut((kept + up)[:5], excess)
        m.d.comb += [self.rounded.eq(rounded), self.excess.eq(excess)]
        return m

    def _normalised(self) -> tuple[Value, Value]:
        """Return the number's significand, and how many binades above the scale's it stands."""
        mantissa, exponent = self.a[:10], self.a[10:]
        normal = exponent.any()
        digits = Cat(mantissa, normal)
        zeros = leading_zeros(digits)[:4]
        binade = Cat(exponent[0] | ~normal, exponent[1:]) - zeros - self.scale.exponent
        return (digits << zeros)[:11], binade

    def _begun(
        self, m: Module, divisor: Value, significand: Value, binade: Value
    ) -> tuple[Value, Value, Value]:
        """Return what the first digit leaves of the number, the count of digits, the excess."""
        # Of a significand below the scale's, which has its first digit a place further down, the
        # double is what the scale is taken from; both differences are there before it is known.
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
        return remainder, digits_left, excess
