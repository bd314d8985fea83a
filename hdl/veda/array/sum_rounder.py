"""How sums leave VEDA's array: rounded to FP16."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, FP29, FloatFormat
from hdl.arith.operator import Operator
from hdl.veda.array.processing_element import require_element

SPARE = 2
"""Mantissa bits more than FP16's that a number rounded to odd needs before it is rounded again."""


class SumRounder(Operator):
    """A sum as the nearest FP16 number.

    The sum is first rounded to odd: the mantissa bits that FP16 could never keep become one bit,
    which is all that the rounding must know of them. So the shift of subnormal results is narrow.

    **Latency** `stages` cycles. **Throughput** one sum a cycle. **Numerics** round to nearest, ties
    to even; subnormals out; beyond 65504 infinity; every NaN is the quiet NaN of sign 0.

    Parameters
    ----------
    sum_format : FloatFormat
        As in `ProcessingElement`.
    stages : int
        Pipeline stages.
    enable : bool
        Whether the stages move only while the input `enable` is 1.

    Members
    -------
    a : In(sum_format.layout)
        The sum.
    result : Out(FP16)
        The number.

    Raises
    ------
    ValueError
        If a parameter is illegal.
    """

    def __init__(
        self, *, sum_format: FloatFormat = FP29, stages: int = 0, enable: bool = False
    ) -> None:
        require_element(sum_format, 2, 2)
        self.sum_format = sum_format
        super().__init__(
            {"a": In(sum_format.layout), "result": Out(BINARY16.layout)},
            stages=stages,
            enable=enable,
        )

    def elaborate(self, platform: object) -> Module:
        """Join the low bits, convert."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        code = Value.cast(self.a)
        if self.sum_format != BINARY16:
            # The bits below are joined by an or: whether any is 1 is all that the rounding needs.
            mantissa_bits = BINARY16.mantissa_bits + SPARE
            joined = self.sum_format.mantissa_bits - mantissa_bits + 1
            odd = FloatFormat(
                exponent_bits=self.sum_format.exponent_bits,
                mantissa_bits=mantissa_bits,
                bias=self.sum_format.bias,
            )
            m.submodules.convert = convert = FloatConvert(source=odd, target=BINARY16)
            m.d.comb += convert.a.eq(Cat(code[:joined].any(), code[joined:]))
            code = Value.cast(convert.result)
        m.d.comb += self.result.eq(pipeline.cut(code)[0])
        return m
