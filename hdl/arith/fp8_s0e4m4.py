"""FP8 S0E4M4, P3-LLM's unsigned format of attention probabilities: bits 13 to 6 of an FP16."""

from enum import Enum

from amaranth.hdl import Cat, Const, Module, Mux, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator
from hdl.arith.rounding import Rounding, round_up
from hdl.parameters import require_choice


class Round(Enum):
    """Rounding rule for the six dropped bits of an FP16 number.

    Members
    -------
    HALF_UP : Rounding
        To nearest, ties up: the behaviour of the authors' code.
    RNE : Rounding
        To nearest, ties to even: the rule in a comment of that code.
    TRUNC : Rounding
        Towards zero: the cheaper alternative that the authors accept.
    """

    HALF_UP = Rounding.HALF_UP
    RNE = Rounding.HALF_EVEN
    TRUNC = Rounding.FLOOR


class S0e4m4Encoder(Operator):
    """FP16 to FP8 S0E4M4: one 8-bit increment.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** the selected
    rounding rule, subnormals included. Numbers that round beyond 1.9375, infinities and NaNs become
    1.9375 (0xFF). Any operand with the sign bit set becomes 0.

    Parameters
    ----------
    round : Round
        The rounding rule.
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(16)
        FP16 number.
    result : Out(8)
        S0E4M4 number.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(
        self, *, round: Round = Round.HALF_UP, stages: int = 0, enable: bool = False
    ) -> None:
        require_choice("round", round, tuple(Round))
        self.rounding = round.value
        super().__init__({"a": In(16), "result": Out(8)}, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Round the kept bits; a carry out of the mantissa increments the exponent."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        kept = self.a[6:14]
        up = round_up(self.rounding, kept[0], self.a[5], self.a[:5].any())
        raised = (kept + up)[:9]
        beyond = self.a[14] | raised[8]
        code = (raised[:8] | beyond.replicate(8)) & ~self.a[15].replicate(8)
        (result,) = pipeline.cut(code)
        m.d.comb += self.result.eq(result)
        return m


class S0e4m4Operand(Operator):
    """FP8 S0E4M4 as a small integer and a shift, for an exact fixed-point multiplier (P3-LLM).

    ``value = significand * 2**(shift - 18)``. The shift is never negative, so shifting a product
    left loses no bits. The significand has a sign bit, which is always 0, to match the port of E4M3
    operands.

    **Latency** `stages` cycles. **Throughput** one number per cycle. **Numerics** exact.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    a : In(8)
        S0E4M4 number.
    significand : Out(signed(6))
        Significand, 0 to 31.
    shift : Out(4)
        Left-shift distance, 0 to 14.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        members = {"a": In(8), "significand": Out(signed(6)), "shift": Out(4)}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Insert the hidden bit; decrement the exponent."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        mantissa, exponent = self.a[:4], self.a[4:8]
        normal = exponent.any()
        outputs = pipeline.cut(Cat(mantissa, normal), Mux(normal, exponent - 1, Const(0, 4))[:4])
        m.d.comb += [self.significand.eq(outputs[0]), self.shift.eq(outputs[1])]
        return m
