"""Processing elements like MANT's and BitMoD's, from this project's operators, as references.

Each executes two multiply-adds per cycle with 4-bit weights (Table VIII). They implement P3-LLM's
description and the formats, not the authors' circuits; no system uses them.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.integer_to_float import IntegerToFloat
from hdl.unit import Unit

MANT_LANES = 2

COEFFICIENT_BITS = 7

BITMOD_LANES = 4
"""Terms added per cycle; a weight is two terms, which take two cycles."""

GUARD = 3
"""Number of bits below the largest term's last bit that smaller terms keep."""

BIAS = 24 + GUARD
"""Binary point of aligned terms whose exponents add up to 0: an FP16 subnormal counts 2**-24."""


class MantElement(Unit):
    """Two products of 8-bit integers and codes of the value ``+-(a x + 2**x)``, in fixed point.

    A product is two partial sums, of ``x`` and of ``2**x``; the first one is multiplied by the
    group's coefficient before both are added.

    **Latency** 3 cycles. **Throughput** 2 multiply-adds a cycle. **Numerics** exact; sums wrap.

    Members
    -------
    inputs : In(ArrayLayout)
        8-bit integers.
    codes : In(ArrayLayout)
        Sign and 3-bit ``x`` of each weight.
    coefficient : In
        ``a``.
    valid, first : In(1)
        There are operands; their products begin a sum.
    sum : Out(signed(32))
        The sum.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "inputs": In(data.ArrayLayout(signed(8), MANT_LANES)),
                "codes": In(data.ArrayLayout(4, MANT_LANES)),
                "coefficient": In(COEFFICIENT_BITS),
                "valid": In(1),
                "first": In(1),
                "sum": Out(signed(32)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply and shift; combine both partial sums; add."""
        m = Module()
        multiplied, moved = Signal(signed(12)), Signal(signed(17))
        both = Signal(signed(20))
        coefficient = delay_line(m, self.coefficient, 1, name="coefficient")[1]
        flags = delay_line(m, Cat(self.valid, self.first), 2, name="flags", reset=True)[2]
        products, shifts = [], []
        for number, code in zip(self.inputs, self.codes, strict=True):
            signed_number = Mux(code[3], -number, number)
            products.append(signed_number * code[:3])
            shifts.append(signed_number << code[:3])
        m.d.sync += [
            multiplied.eq(sum(products)),
            moved.eq(sum(shifts)),
            both.eq(multiplied * coefficient + moved),
        ]
        with m.If(flags[0]):
            m.d.sync += self.sum.eq(Mux(flags[1], 0, self.sum) + both)
        return m


class BitmodElement(Unit):
    """Four products of FP16 numbers and signed powers of two, aligned and added in binary32.

    A BitMoD weight, in half-units, is two such terms, so that a weight takes two cycles.

    **Latency** 4 cycles. **Throughput** 4 terms per cycle: 2 multiply-adds. **Numerics** terms are
    truncated towards zero at `GUARD` bits below the largest one's last bit; their sum and the sum
    of sums are rounded to nearest.

    Members
    -------
    inputs : In(ArrayLayout)
        FP16 numbers, finite.
    terms : In(ArrayLayout)
        `some`: it is not 0; `sign`; `power`, of two.
    valid, first : In(1)
        There are operands; their products begin a sum.
    sum : Out(BINARY32.layout)
        The sum.
    """

    def __init__(self) -> None:
        self.term = data.StructLayout({"some": 1, "sign": 1, "power": 3})
        super().__init__(
            {
                "inputs": In(data.ArrayLayout(16, BITMOD_LANES)),
                "terms": In(data.ArrayLayout(self.term, BITMOD_LANES)),
                "valid": In(1),
                "first": In(1),
                "sum": Out(BINARY32.layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Find the largest exponent; align and add; make it binary32; add."""
        m = Module()
        digits = BINARY16.significand_bits
        exponents = [Signal(6, name=f"exponent_{i}") for i in range(BITMOD_LANES)]
        largest = self._largest(m, exponents)
        aligned = []
        for lane, (number, term) in enumerate(zip(self.inputs, self.terms, strict=True)):
            exponent, normal = number[10:15], number[10:15].any()
            m.d.comb += exponents[lane].eq(Mux(term.some, Mux(normal, exponent, 1) + term.power, 0))
            significand = Cat(number[:10], normal) & term.some.replicate(digits)
            kept = delay_line(m, significand, 1, name=f"significand_{lane}")[1]
            behind = delay_line(m, exponents[lane], 1, name=f"behind_{lane}")[1]
            negative = delay_line(m, number[15] ^ term.sign, 1, name=f"negative_{lane}")[1]
            magnitude = Signal(digits + GUARD, name=f"magnitude_{lane}")
            m.d.comb += magnitude.eq((kept << GUARD) >> (largest - behind).as_unsigned()[:6])
            aligned.append(Mux(negative, -magnitude, magnitude))
        total = Signal(signed(digits + GUARD + 3))
        m.submodules.single = single = IntegerToFloat(width=len(total))
        m.submodules.add = add = FloatAdd(number_format=BINARY32)
        held, point = Signal(BINARY32.layout), Signal.like(single.point)
        flags = delay_line(m, Cat(self.valid, self.first), 3, name="flags", reset=True)[3]
        m.d.sync += [
            total.eq(sum(aligned)),
            # An FP16 number's lowest bit counts 2**(exponent - 25).
            point.eq(BIAS + 1 - largest),
            held.eq(single.result),
        ]
        m.d.comb += [
            single.a.eq(total),
            single.point.eq(point),
            add.a.eq(held),
            add.b.eq(Mux(flags[1], 0, self.sum.as_value())),
        ]
        with m.If(flags[0]):
            m.d.sync += self.sum.eq(add.result)
        return m

    @staticmethod
    def _largest(m: Module, exponents: list[Signal]) -> Signal:
        """Return the largest exponent, in a register."""
        largest = Signal(6)
        a, b, c, d = exponents
        left, right = Mux(a > b, a, b), Mux(c > d, c, d)
        m.d.sync += largest.eq(Mux(left > right, left, right))
        return largest
