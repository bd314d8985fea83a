"""Operand decoders of a processing element's 6-bit multipliers (Figure 6 c).

An activation, query or attention probability is decoded into a small integer and a shift, a weight,
key or value into a small integer. The shifted products of these integers are exact in fixed point.
"""

from amaranth.hdl import Module, Mux, Shape, signed
from amaranth.lib import enum
from amaranth.lib.wiring import In, Out

from hdl.arith.bitmod_fp4 import BitmodFp4Decoder
from hdl.arith.fp8_e4m3 import E4m3Operand
from hdl.arith.fp8_s0e4m4 import S0e4m4Operand
from hdl.arith.int4_asym import Int4AsymOperand
from hdl.arith.operator import Operator

SIGNIFICAND = signed(6)
"""Shape of a decoded input: a sign and the five-bit significand of a probability."""

WEIGHT = signed(6)
"""Shape of a decoded weight, key or value; the widest is BitMoD's +8, 16 half-units."""

SHIFT = Shape(4)
"""Shape of a shift, 0 to 14: the input's exponent."""


class Mode(enum.Enum, shape=2):
    """Product that a compute unit computes, which selects both operand formats.

    Members
    -------
    LINEAR
        "weights @ activations" of Figure 6 (b): weights in BitMoD FP4, activations in E4M3. The
        unit of a sum is 2**-10.
    QK
        "query @ key": queries in E4M3, keys in INT4 with a zero point. The unit of a sum is 2**-9.
    PV
        "attention-score @ value": probabilities in S0E4M4, values in INT4 with a zero point. The
        unit of a sum is 2**-18.
    """

    LINEAR = 0
    QK = 1
    PV = 2


FRACTION_BITS = {Mode.LINEAR: 10, Mode.QK: 9, Mode.PV: 18}
"""Fraction bits of a sum, by mode."""


class InputDecoder(Operator):
    """Decode an 8-bit activation, query or probability into an integer and a shift.

    The input's value is ``significand * 2**(shift - 9)`` in E4M3 and ``significand * 2**(shift -
    18)`` in S0E4M4: no shift is negative, so that no product loses a bit.

    **Latency** `stages` cycles. **Throughput** one code per cycle. **Numerics** exact. An E4M3 NaN
    sets `nan` and is decoded as 0.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    mode : In(Mode)
        Selects the format of `code`: S0E4M4 in `Mode.PV`, otherwise E4M3.
    code : In(8)
        The input.
    significand : Out(signed(6))
        -15 to 15; 0 to 31 in `Mode.PV`.
    shift : Out(4)
        0 to 14.
    nan : Out(1)
        The code is a NaN.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        members = {
            "mode": In(Mode),
            "code": In(8),
            "significand": Out(SIGNIFICAND),
            "shift": Out(SHIFT),
            "nan": Out(1),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Decode both formats and select one."""
        m = Module()
        m.submodules.e4m3 = e4m3 = E4m3Operand()
        m.submodules.s0e4m4 = s0e4m4 = S0e4m4Operand()
        # Only probabilities are S0E4M4; it has no NaN.
        probability = self.mode == Mode.PV
        m.d.comb += [e4m3.a.eq(self.code), s0e4m4.a.eq(self.code)]
        significand, shift, nan = self.pipeline(m, cuts=1).cut(
            Mux(probability, s0e4m4.significand, e4m3.significand),
            Mux(probability, s0e4m4.shift, e4m3.shift),
            e4m3.nan & ~probability,
        )
        m.d.comb += [self.significand.eq(significand), self.shift.eq(shift), self.nan.eq(nan)]
        return m


class WeightDecoder(Operator):
    """Decode a 4-bit weight, key or value into a 6-bit integer.

    **Latency** `stages` cycles. **Throughput** one code per cycle. **Numerics** exact: half-units
    of BitMoD FP4, or ``code - zero_point``.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    mode : In(Mode)
        Selects the format of `code`: BitMoD in `Mode.LINEAR`, otherwise INT4 with a zero point.
    code : In(4)
        The stored code.
    group_bits : In(4)
        Select of the group's special value in the lower two bits, or the token's zero point.
    result : Out(signed(6))
        -16 to 16, or -15 to 15.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        members = {
            "mode": In(Mode),
            "code": In(4),
            "group_bits": In(4),
            "result": Out(WEIGHT),
        }
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Decode both formats and select one."""
        m = Module()
        m.submodules.bitmod = bitmod = BitmodFp4Decoder()
        m.submodules.int4 = int4 = Int4AsymOperand()
        m.d.comb += [
            bitmod.code.eq(self.code),
            # The same bits hold the select of a special value or a zero point.
            bitmod.select.eq(self.group_bits[:2]),
            int4.code.eq(self.code),
            int4.zero_point.eq(self.group_bits),
        ]
        chosen = Mux(self.mode == Mode.LINEAR, bitmod.result, int4.result)
        (result,) = self.pipeline(m, cuts=1).cut(chosen)
        m.d.comb += self.result.eq(result)
        return m
