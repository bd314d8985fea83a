"""P3-LLM's operand decoders: what the multipliers of a processing element are given (Figure 6 c).

Activations, queries and probabilities become a small integer and a shift, weights, keys and values
a small integer. The products of these integers, shifted, are exact in fixed point.
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
"""Shape of a decoded input: a sign and the five bits of a probability's significand."""

WEIGHT = signed(6)
"""Shape of a decoded weight, key or value: BitMoD's +8 is 16 half-units."""

SHIFT = Shape(4)
"""Shape of a shift: 0 to 14."""


class Mode(enum.Enum, shape=2):
    """What a compute unit multiplies, and with it both formats.

    Members
    -------
    LINEAR
        Activations in E4M3 by weights in BitMoD FP4; a sum counts 2**-10.
    QK
        Queries in E4M3 by keys in INT4 with a zero point; a sum counts 2**-9.
    PV
        Probabilities in S0E4M4 by values in INT4 with a zero point; a sum counts 2**-18.
    """

    LINEAR = 0
    QK = 1
    PV = 2


FRACTION_BITS = {Mode.LINEAR: 10, Mode.QK: 9, Mode.PV: 18}
"""Place of the binary point in a sum, by the mode."""


class InputDecoder(Operator):
    """An 8-bit activation, query or probability as a small integer and a shift.

    The input's value is ``significand * 2**(shift - 9)`` in E4M3 and ``significand * 2**(shift -
    18)`` in S0E4M4: no shift is ever negative, so that no product loses a bit.

    **Latency** `stages` cycles. **Throughput** one code a cycle. **Numerics** exact. A NaN of E4M3
    sets `nan` and has the significand 0.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one is the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

    Members
    -------
    mode : In(Mode)
        S0E4M4 in `Mode.PV`, otherwise E4M3.
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
        """Decode both formats and choose."""
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
    """A 4-bit weight, key or value as a 6-bit integer.

    **Latency** `stages` cycles. **Throughput** one code a cycle. **Numerics** exact: half-units of
    BitMoD FP4, or ``code - zero_point``.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one is the result.
    enable : bool
        Whether the registers move only while the input `enable` is 1.

    Members
    -------
    mode : In(Mode)
        BitMoD in `Mode.LINEAR`, otherwise INT4 with a zero point.
    code : In(4)
        The stored code.
    group_bits : In(4)
        The group's special value in the lower two bits, or the token's zero point.
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
        """Decode both formats and choose."""
        m = Module()
        m.submodules.bitmod = bitmod = BitmodFp4Decoder()
        m.submodules.int4 = int4 = Int4AsymOperand()
        m.d.comb += [
            bitmod.code.eq(self.code),
            # The same bits are a special value's number or a zero point.
            bitmod.select.eq(self.group_bits[:2]),
            int4.code.eq(self.code),
            int4.zero_point.eq(self.group_bits),
        ]
        chosen = Mux(self.mode == Mode.LINEAR, bitmod.result, int4.result)
        (result,) = self.pipeline(m, cuts=1).cut(chosen)
        m.d.comb += self.result.eq(result)
        return m
