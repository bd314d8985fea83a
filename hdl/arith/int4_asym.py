"""Operand decoder of INT4 with a zero point, P3-LLM's format of keys and values."""

from amaranth.hdl import Module, signed
from amaranth.lib.wiring import In, Out

from hdl.arith.operator import Operator


class Int4AsymOperand(Operator):
    """The integer ``code - zero_point`` that a 4-bit code represents, in units of its scale.

    **Latency** `stages` cycles. **Throughput** one code per cycle. **Numerics** exact: -15 to 15
    fits five bits of two's complement.

    Parameters
    ----------
    stages : int
        Pipeline stages; the last one registers the result.
    enable : bool
        Add the input `enable`; the registers load only while it is 1.

    Members
    -------
    code : In(4)
        The stored code.
    zero_point : In(4)
        The code that represents zero.
    result : Out(signed(5))
        The difference.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    def __init__(self, *, stages: int = 0, enable: bool = False) -> None:
        members = {"code": In(4), "zero_point": In(4), "result": Out(signed(5))}
        super().__init__(members, stages=stages, enable=enable)

    def elaborate(self, platform: object) -> Module:
        """Subtract."""
        m = Module()
        # Amaranth's difference includes a sign bit: 15 - 0 and 0 - 15 both fit.
        (result,) = self.pipeline(m, cuts=1).cut(self.code - self.zero_point)
        m.d.comb += self.result.eq(result)
        return m
