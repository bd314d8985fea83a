"""BitMoD FP4: 4-bit codes of sixteen numbers, one of which each group selects."""

from amaranth.hdl import Cat, Const, Module, Mux, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator

SPECIAL_CODE = 0b1000
"""The code of negative zero, which represents the group's special value instead."""

MAGNITUDES = (0, 1, 2, 3, 4, 6, 8, 12)
"""Half-units (the value times two) of the codes 0 to 7; codes 9 to 15 are their negatives."""

SPECIALS = (10, -10, 16, -16)
"""Half-units of the special values +5, -5, +8, -8, indexed by the group's 2-bit select."""


class BitmodFp4Decoder(Operator):
    """BitMoD FP4 to a 6-bit signed integer of half-units (Q5.1).

    **Latency** `stages` cycles. **Throughput** one code per cycle. **Numerics** exact, -16 to 16.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    code : In(4)
        Sign, two exponent bits, one mantissa bit.
    select : In(2)
        The group's special value: 0 for +5, 1 for -5, 2 for +8, 3 for -8.
    result : Out(signed(6))
        The value times two.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        members = {"code": In(4), "select": In(2), "result": Out(signed(6))}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Decode the magnitude, insert the special magnitude, apply the sign.

        An exponent code e > 0 encodes ``(2 + mantissa) << (e - 1)``; code 0 encodes the mantissa
        itself. The low bit of the select is the sign of the special value; the high bit selects
        magnitude 10 or 16.
        """
        m = Module()
        mantissa, exponent, sign = self.code[0], self.code[1:3], self.code[3]
        special = self.code == SPECIAL_CODE
        # In half-units, the value is 1.m shifted by exponent - 1; only exponent 3 shifts by two.
        significand = Cat(mantissa, exponent.any())
        number = (significand << (exponent[1] & exponent[0])) << exponent[1]
        # The upper bit of the select chooses the magnitude, the lower bit the sign.
        chosen = Mux(self.select[1], Const(16, 5), Const(10, 5))
        magnitude = Mux(special, chosen, number)
        negative = Mux(special, self.select[0], sign)
        (result,) = self.pipeline(m, cuts=1).cut(Mux(negative, -magnitude, magnitude))
        m.d.comb += self.result.eq(result)
        return m
