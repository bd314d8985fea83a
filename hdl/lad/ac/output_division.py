"""Division of the numerator by the denominator, up to the last product (AC.4)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16
from hdl.arith.float_order import is_nan
from hdl.arith.takagi_reciprocal import TakagiReciprocal
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class OutputDivision(Unit):
    """Round acc to FP16, and compute the reciprocal of the denominator.

    A vector unit, which is outside, multiplies both.

    **Latency** 1 cycle to the numerator, 1 + `reciprocal_stages` to the reciprocal. **Throughput**
    one division per cycle. **Numerics** FP16; the reciprocal is that of `TakagiReciprocal`.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Number and format of the sums, register stages.

    Members
    -------
    total : In(total_layout)
        Numerator, and the denominator as the last element.
    numerator : Out(ArrayLayout(16, head_size))
        The numerator in FP16.
    reciprocal : Out(16)
        1 / denominator in FP16.
    not_positive : Out(1)
        The denominator is not above 0: the output is invalid.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = p = parameters
        super().__init__(
            {
                "total": In(p.total_layout),
                "numerator": Out(p.vector.vector_layout),
                "reciprocal": Out(FP16),
                "not_positive": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Register the rounded sums in front of the reciprocal's table."""
        m = Module()
        p = self.parameters
        codes = []
        for column in range(p.columns):
            code = Value.cast(self.total[column])
            if p.cache_format != BINARY16:
                m.submodules[f"round_{column}"] = narrow = FloatConvert(
                    source=p.cache_format, target=BINARY16
                )
                m.d.comb += Value.cast(narrow.a).eq(code)
                code = Value.cast(narrow.result)
            codes.append(code)
        rounded = delay_line(m, Cat(codes), 1, name="rounded")[-1]
        m.submodules.reciprocal = reciprocal = TakagiReciprocal(stages=p.reciprocal_stages)
        denominator = Signal(FP16)
        # A fitted line can be below 0, and so can the sum of many such weights.
        positive = ~denominator[-1] & denominator[:-1].any() & ~is_nan(BINARY16, denominator)
        m.d.comb += [
            denominator.eq(rounded[-16:]),
            Value.cast(reciprocal.a).eq(denominator),
            Value.cast(self.numerator).eq(rounded[:-16]),
            self.reciprocal.eq(Value.cast(reciprocal.result)),
            self.not_positive.eq(~positive),
        ]
        return m
