"""FP8 E4M3 (OCP "fn"): encoder from FP16, decoder to FP16, operand for exact multipliers."""

from enum import Enum

from amaranth.hdl import Cat, Const, Module, Mux, Value, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.float_format import BINARY16, FP8_E4M3FN
from hdl.arith.float_normalise import QUIET_NAN
from hdl.arith.leading_zeros import leading_zeros
from hdl.arith.operator import Operator
from hdl.arith.rounding import Rounding, round_up
from hdl.parameters import require_choice


class Overflow(Enum):
    """Result for a number beyond the largest finite one.

    Members
    -------
    SATURATE : str
        The largest finite number of its sign; an infinity saturates too.
    NAN : str
        NaN.
    """

    SATURATE = "saturate"
    NAN = "nan"


class E4m3Encoder(Operator):
    """FP16 to FP8 E4M3, rounded to nearest, ties to even.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** correctly
    rounded, subnormals included; zeros and NaNs keep their sign. A NaN gives NaN. A number that
    rounds beyond 448 is handled as `overflow` specifies.

    Parameters
    ----------
    overflow : Overflow
        Result for a number beyond 448.
    stages : int
        Pipeline stages: the last one registers the result, a second precedes the rounding.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(16)
        FP16 number.
    result : Out(8)
        E4M3 number.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, overflow: Overflow = Overflow.SATURATE, stages: int = 0, enable: bool = False
    ) -> None:
        require_choice("overflow", overflow, tuple(Overflow))
        self.overflow = overflow
        super().__init__({"a": In(16), "result": Out(8)}, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Align the significand below the smallest normal, cut, round, cut.

        The exponent code decreases by the difference of the biases. If the result is subnormal, the
        significand shifts right instead. Both cases share the rounding and the carry into the
        exponent.
        """
        m = Module()
        pipeline = self.pipeline(m, cuts=2)
        mantissa, exponent, sign = self.a[:10], self.a[10:15], self.a[15]
        bias = BINARY16.bias - FP8_E4M3FN.bias
        normal = exponent > bias
        significand = Cat(mantissa, 1)

        def kept(down: int) -> Value:
            """Return sticky bit, half bit and kept bits after a shift by 7 + `down`."""
            return Cat(significand[: 6 + down].any(), significand[6 + down :])

        aligned: Value = Const(0, 9)
        for down in range(1, 5):
            aligned = Mux(exponent == bias + 1 - down, kept(down), aligned)
        magnitude = Mux(normal, Cat(kept(0)[:5], (exponent - bias)[:4]), aligned)
        nan = exponent.all() & mantissa.any()
        large = normal & (exponent - bias)[4]
        magnitude, sign, nan, large = pipeline.cut(magnitude, sign, nan, large)

        up = round_up(Rounding.HALF_EVEN, magnitude[2], magnitude[1], magnitude[0])
        rounded = (magnitude[2:] + up)[:8]
        beyond = large | rounded[7] | rounded[:7].all()
        limit = FP8_E4M3FN.max_finite if self.overflow is Overflow.SATURATE else 0x7F
        code = Mux(nan, Const(0x7F, 7), Mux(beyond, Const(limit, 7), rounded[:7]))
        (result,) = pipeline.cut(Cat(code, sign))
        m.d.comb += self.result.eq(result)
        return m


class E4m3Decoder(Operator):
    """FP8 E4M3 to FP16.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** exact: every E4M3
    number is a normal FP16 number. A NaN gives the quiet NaN 0x7E00 with its sign.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(8)
        E4M3 number.
    result : Out(16)
        FP16 number.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        super().__init__({"a": In(8), "result": Out(16)}, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Adjust the bias; normalise the seven subnormals."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        mantissa, exponent, sign = self.a[:3], self.a[3:7], self.a[7]
        bias = BINARY16.bias - FP8_E4M3FN.bias
        zeros = leading_zeros(mantissa)
        normalised = (mantissa << (zeros + 1)[:2])[:3]
        subnormal = Mux(mantissa.any(), Cat(normalised, (bias - zeros)[:5]), 0)
        normal = Cat(mantissa, (exponent + bias)[:5])
        magnitude = Mux(exponent.any(), normal, subnormal)[:8]
        nan = self.a[:7].all()
        fp16 = Mux(nan, Const(QUIET_NAN, 15), Cat(Const(0, 7), magnitude))
        (result,) = pipeline.cut(Cat(fp16, sign))
        m.d.comb += self.result.eq(result)
        return m


class E4m3Operand(Operator):
    """FP8 E4M3 as a small integer and a shift, for an exact fixed-point multiplier (P3-LLM).

    ``value = significand * 2**(shift - 9)``. The shift is never negative, so shifting a product
    left loses no bits.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** exact. A NaN sets
    `nan` and gives a significand of 0.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(8)
        E4M3 number.
    significand : Out(signed(6))
        Signed significand, -15 to 15.
    shift : Out(4)
        Left-shift distance, 0 to 14.
    nan : Out(1)
        1 if the code is a NaN.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        members = {"a": In(8), "significand": Out(signed(6)), "shift": Out(4), "nan": Out(1)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Insert the hidden bit, apply the sign, decrement the exponent."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        mantissa, exponent, sign = self.a[:3], self.a[3:7], self.a[7]
        nan = self.a[:7].all()
        magnitude = Mux(nan, 0, Cat(mantissa, exponent.any()))
        significand = Mux(sign, -magnitude, magnitude)
        shift = Mux(exponent.any(), exponent - 1, 0)[:4]
        outputs = pipeline.cut(significand, shift, nan)
        m.d.comb += [
            self.significand.eq(outputs[0]),
            self.shift.eq(outputs[1]),
            self.nan.eq(outputs[2]),
        ]
        return m
