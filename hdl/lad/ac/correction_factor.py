"""``x - maximum * slope + intercept``, the scalar operation of each lane."""

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_multiply import FloatMultiply
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.fp16 import FP16
from hdl.unit import Unit


class CorrectionFactor(Unit):
    """Compute a product, a difference and a sum in FP16, each rounded once.

    For an active position this is Algorithm 2's cf, ``alpha * s - maximum * alpha + beta`` (line
    23). For column p of the caches it is ``<query, A[:, p]> - maximum * B[p] + C[p]`` (line 16).
    Each lane has one instance for either use, where the paper's lane has one adder fed by Mux2.

    **Latency** `factor_stages` cycles. **Throughput** one result per cycle.

    Parameters
    ----------
    parameters : AttentionComputationModuleParameters
        Register stages of multiplier and adders.

    Members
    -------
    enable : In(1)
        The registers load.
    x, maximum, slope, intercept : In(16)
        Operands in FP16; `maximum` is the paper's max_s.
    result : Out(16)
        The result in FP16.
    """

    def __init__(self, *, parameters: AttentionComputationModuleParameters) -> None:
        self.parameters = parameters
        operands = ("x", "maximum", "slope", "intercept")
        members = {name: In(FP16) for name in operands}
        super().__init__({"enable": In(1)} | members | {"result": Out(FP16)})

    def elaborate(self, platform: object) -> Module:
        """Compute product, difference and sum; delay the operands that are used later."""
        m = Module()
        p = self.parameters
        stages = p.vector.multiply_stages
        m.submodules.multiply = multiply = FloatMultiply(stages=stages, enable=True)
        m.submodules.subtract = subtract = FloatAdd(
            subtractor=True, stages=p.add_stages, enable=True
        )
        m.submodules.add = add = FloatAdd(stages=p.add_stages, enable=True)
        # The product is computed first; the other two operands are delayed.
        x = delay_line(m, self.x, stages, name="x", enable=self.enable)[-1]
        intercept = delay_line(
            m, self.intercept, stages + p.add_stages, name="intercept", enable=self.enable
        )[-1]
        # Each operation rounds once, as the paper's separate operators do; a fused one would
        # differ.
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
