"""``x - maximum * slope + intercept``: what each lane's scalar operators compute."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_multiply import FloatMultiply
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class CorrectionFactor(Unit):
    """A product, a difference and a sum in FP16, each rounded once.

    Of a position, ``alpha * s - maximum * alpha + beta``; of a column of the caches,
    ``<query, A> - maximum * B + C``.

    **Latency** `factor_stages` cycles. **Throughput** one a cycle.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Dimensions.

    Members
    -------
    enable : In(1)
        The registers move.
    x, maximum, slope, intercept : In(16)
        The operands.
    result : Out(16)
        The factor.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = parameters
        operands = ("x", "maximum", "slope", "intercept")
        members = {name: In(FP16) for name in operands}
        super().__init__({"enable": In(1)} | members | {"result": Out(FP16)})

    def elaborate(self, platform: Any) -> Module:
        """Let the later operands wait."""
        m = Module()
        p = self.parameters
        stages = p.vector.multiply_stages
        m.submodules.multiply = multiply = FloatMultiply(stages=stages, enable=True)
        m.submodules.subtract = subtract = FloatAdd(
            subtractor=True, stages=p.add_stages, enable=True
        )
        m.submodules.add = add = FloatAdd(stages=p.add_stages, enable=True)
        # The product is needed first, so the other two operands wait for it.
        x = delay_line(m, self.x, stages, name="x", enable=self.enable)[-1]
        intercept = delay_line(
            m, self.intercept, stages + p.add_stages, name="intercept", enable=self.enable
        )[-1]
        # One rounding each: a fused product would not be what the order of the paper's units gives.
        for operator, a, b in (
            (multiply, self.maximum, self.slope),
            (subtract, x, multiply.result),
            (add, subtract.result, intercept),
        ):
            m.d.comb += [
                operator.enable.eq(self.enable),
                Value.cast(operator.a).eq(Value.cast(a)),
                Value.cast(operator.b).eq(Value.cast(b)),
            ]
        m.d.comb += [subtract.subtract.eq(1), self.result.eq(Value.cast(add.result))]
        return m
