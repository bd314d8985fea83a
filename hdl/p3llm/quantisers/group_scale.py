"""The scale of a group of numbers, ``max(extent / divisor, 1e-6)``, rounded as in float32."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.arith.divider import restoring_step
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.operator import Operator
from hdl.arith.prefix_sum import incremented
from hdl.arith.rounding import Rounding, round_up
from hdl.parameters import require_choice

SCALE_LAYOUT = data.StructLayout({"significand": 24, "exponent": 8, "stored": 16})
"""A scale: the divisor of the quantiser, ``significand * 2**(exponent - 150)``, and the FP16 value
that is `stored`."""

SMALLEST = BINARY32.from_fraction(1e-6)
"""The binary32 code of the smallest scale."""

ROWS_A_CUT = 4


class GroupScale(Operator):
    """Division of a group's extent by the largest code, in float32, with the minimum 1e-6.

    The divisor is 7 or 15 times a power of two, so that the remainder of a division row has three
    or four bits.

    **Latency** `stages` cycles. **Throughput** one scale per cycle. **Numerics** the quotient and
    1e-6 are float32, rounded to nearest, ties to even; `stored` is that rounded to FP16.

    Parameters
    ----------
    divisor : int
        448, the largest E4M3 number, or 15, the largest INT4 code.
    stages : int
        Pipeline stages: the last one registers the result; others are after every four rows of the
        division, before and after the rounding.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(BINARY32.layout)
        The extent: not negative, finite, zero or a normal number.
    result : Out(SCALE_LAYOUT)
        The scale.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, divisor: int, stages: int = 0, enable: bool = False) -> None:
        require_choice("divisor", divisor, (15, 448))
        self.divisor = divisor
        super().__init__(
            {"a": In(BINARY32.layout), "result": Out(SCALE_LAYOUT)}, stages=stages, enable=enable
        )

    def elaborate(self, platform: object) -> Module:
        """Divide, round, apply the minimum, round to FP16."""
        m = Module()
        power = (self.divisor & -self.divisor).bit_length() - 1
        odd = self.divisor >> power
        down = odd.bit_length()
        # If the quotient's first digit is zero, the others are a significand and a rounding bit.
        rows = 25 + down
        pipeline = self.pipeline(m, cuts=-(-rows // ROWS_A_CUT) + 3)

        exponent: Value = self.a.exponent
        digits: Value = Cat(self.a.mantissa, exponent.any())
        remainder: Value = Const(0, down)
        quotient: Value = Const(0, 0)
        for row in range(rows):
            brought = digits[23 - row] if row < 24 else Const(0, 1)
            remainder, fits = restoring_step(remainder, brought, Const(odd, down))
            quotient = Cat(fits, quotient)
            if row % ROWS_A_CUT == ROWS_A_CUT - 1 or row == rows - 1:
                remainder, quotient, digits, exponent = pipeline.cut(
                    remainder, quotient, digits, exponent
                )

        early = quotient[25]
        kept = Mux(early, quotient[2:26], quotient[1:25])
        half = Mux(early, quotient[1], quotient[0])
        sticky = remainder.any() | (early & quotient[0])
        up = round_up(Rounding.HALF_EVEN, kept[0], half, sticky)
        floor = Cat(kept[:23], (exponent - (down + power) + early)[:8])
        code, positive = pipeline.cut(incremented(m, floor, up), kept[23])
        # The exponent of an extent of zero is ignored.
        (code,) = pipeline.cut(Mux(positive & (code >= SMALLEST), code, SMALLEST))
        m.submodules.store = store = FloatConvert(source=BINARY32, target=BINARY16)
        m.d.comb += store.a.eq(code)
        (result,) = pipeline.cut(Cat(code[:23], 1, code[23:], store.result))
        m.d.comb += self.result.eq(result)
        return m
