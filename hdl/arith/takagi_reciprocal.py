"""FP16 reciprocal by one table and one multiplication (Takagi), as in LAD's special function unit.

The significand is split into upper and lower bits, ``x = c + d``, where c is the middle of the
lower bits' range. Complementing the lower bits gives ``c - d``. The product of the two is nearly
independent of d, so ``1 / x`` is approximately ``(c - d) / c**2``.
"""

from fractions import Fraction

from amaranth.hdl import Array, Cat, Module, Mux
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16
from hdl.arith.float_normalise import normalised
from hdl.arith.float_unpack import Inexact, pack, unpack
from hdl.arith.operator import Operator
from hdl.arith.shapes import constant
from hdl.parameters import require_choice, require_range

INDEX_BITS = 6
"""Fraction bits that select a table entry; the other four are complemented."""


def reciprocal_table(entry_bits: int) -> tuple[int, ...]:
    """Return ``1 / c**2`` at the middle c of each of 64 segments, with `entry_bits` fraction bits.

    The middle is that of a segment's sixteen numbers, half a unit of the last place below the
    middle of the interval. The limit keeps a rounded product from reaching 1.
    """
    low = (1 << (BINARY16.mantissa_bits - INDEX_BITS)) - 1
    one = 1 << BINARY16.mantissa_bits
    table = []
    for first in range(one, 2 * one, low + 1):
        middle = Fraction(2 * first + low, 2 * one)
        limit = ((one << entry_bits) - 1) // (first + low)
        table.append(min(round((1 << entry_bits) / middle**2), limit))
    return tuple(table)


class TakagiReciprocal(Operator):
    """Reciprocal of an FP16 number, within 1 ulp.

    **Latency** `stages` cycles. **Throughput** one result per cycle. **Numerics** the product
    before rounding is within 2**-13.4 of the exact value for entries of 14 bits, 2**-11.2 for 12.
    The result is within 0.596 ulp (14 bits) or 0.916 ulp (12 bits) over all FP16 arguments, and
    exact at powers of two. Subnormals in and out; infinities and NaNs by IEEE 754. LAD, section on
    attention computation, step AC.4.

    Parameters
    ----------
    entry_bits : int
        Bits of a table entry, 12 to 16.
    saturate : bool
        No infinity and no NaN: an operand with the largest exponent code has its value in a format
        without special values; 1/0 is 65504 with the zero's sign.
    stages : int
        Pipeline stages: the last one registers the result, the others follow the table, the
        multiplication and the alignment.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(BINARY16.layout)
        The number.
    result : Out(BINARY16.layout)
        Approximation of ``1 / a``.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self,
        *,
        entry_bits: int = 14,
        saturate: bool = False,
        stages: int = 0,
        enable: bool = False,
    ) -> None:
        require_range("entry_bits", entry_bits, 12, 16)
        require_choice("saturate", saturate, (False, True))
        self.entry_bits = entry_bits
        self.saturate = saturate
        members = {"a": In(BINARY16.layout), "result": Out(BINARY16.layout)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Look up, multiply, align a subnormal result, round; cut after each."""
        m = Module()
        pipeline = self.pipeline(m, cuts=4)
        a = unpack(m, BINARY16, self.a, saturate=self.saturate)
        significand, exponent = normalised(a)
        low_bits = BINARY16.mantissa_bits - INDEX_BITS
        table = Array(
            [constant(entry, self.entry_bits) for entry in reciprocal_table(self.entry_bits)]
        )
        entry = table[significand[low_bits : low_bits + INDEX_BITS]]
        # For x near c, 1 / x is near (2c - x) / c**2; complementing the low bits gives 2c - x.
        complemented = Cat(~significand[:low_bits], significand[low_bits:])
        control = (a.sign, a.nan, a.zero, a.infinite)
        entry, complemented, exponent, *control = pipeline.cut(
            entry, complemented, exponent, *control
        )

        # The product is between 1/2 and 1; keep its leading one and the bits that rounding needs.
        product = (entry * complemented)[self.entry_bits - 3 : self.entry_bits + 10]
        product, exponent, *control = pipeline.cut(product, exponent, *control)

        # Negate the exponent. The product is below 1, so the code is one less.
        code = 2 * BINARY16.bias - 1 - exponent
        subnormal = code < 1
        # The smallest reciprocal, just above 2**-17, is 3 binades below the smallest normal number.
        down = Mux(subnormal, 1 - code, 0)[:2]
        shifted = (product >> down)[1:]
        shifted, code, *control = pipeline.cut(shifted, Mux(subnormal, 0, code)[:6], *control)

        # Masks make 1 / infinity zero; `pack` makes 1 / 0 an infinity.
        sign, nan, zero, infinite = control
        finite = ~infinite
        reciprocal = pack(
            m,
            BINARY16,
            Inexact(
                sign=sign,
                exponent=Cat(code & finite.replicate(6), zero),
                mantissa=shifted[1:11] & finite.replicate(10),
                increment=shifted[0] & finite,
                infinite=zero,
                nan=nan,
            ),
            saturate=self.saturate,
        )
        (result,) = pipeline.cut(reciprocal)
        m.d.comb += self.result.eq(result)
        return m
