"""Rounding of the sums of VEDA's array to FP16."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, FP29, FloatFormat
from hdl.arith.operator import Operator
from hdl.veda.array.processing_element import require_element

SPARE = 2
"""Mantissa bits beyond FP16's that a number rounded to odd needs before the final rounding."""


class SumRounder(Operator):
    """Round a sum to the nearest FP16 number.

    The sum is first rounded to odd: all mantissa bits that FP16 cannot represent are combined into
    one sticky bit, which is sufficient for correct rounding. This narrows the shifter of subnormal
    results.

    **Latency** `stages` cycles. **Throughput** one sum per cycle. **Numerics** to nearest, ties to
    even; results may be subnormal; magnitudes that round beyond 65504 become infinity; every NaN is
    the quiet NaN of sign 0.

    Parameters
    ----------
    sum_format : FloatFormat
        Format of the sums, as in `ProcessingElement`.
    stages : int
        Pipeline stages.
    enable : bool
        Add the input `enable`; the stages load only while it is 1.

    Members
    -------
    a : In(sum_format.layout)
        The sum.
    result : Out(FP16)
        The rounded number.

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
        """Combine the low mantissa bits, then convert."""
        m = Module()
        pipeline = self.pipeline(m, cuts=1)
        code = Value.cast(self.a)
        if self.sum_format != BINARY16:
            # Rounding needs only whether any of these bits is 1.
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
