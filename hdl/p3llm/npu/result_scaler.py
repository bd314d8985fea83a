"""Conversion of integer sums to binary32, with dequantisation and second-level scales."""

from amaranth.hdl import Module, signed
from amaranth.lib import data

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from hdl.arith.integer_to_float import POINT, IntegerToFloat
from hdl.p3llm.npu.number_lanes import NumberLanes, NumberLanesParameters, move_together
from hdl.parameters import parameter_object
from hdl.stream.connect import connect_streams
from hdl.stream.register_slice import RegisterSlice

SUM_BITS = 48
"""Bits of a sum of group sums times 8-bit scales."""

STAGES = 3
"""Pipeline stages of the conversion and of the final multiplication."""


@parameter_object
class ResultScalerParameters(NumberLanesParameters):
    """Dimensions of the scaler, as `NumberLanesParameters`."""

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of sums with a factor in FP16 each, their common factor and binary point."""
        return data.StructLayout(
            {
                "sums": data.ArrayLayout(signed(SUM_BITS), self.lanes),
                "factors": data.ArrayLayout(16, self.lanes),
                "common": 32,
                "point": POINT,
                "last": 1,
            }
        )


class ResultScaler(NumberLanes):
    """Multiplication of sums by ``factor * common``, in slices.

    A register slice at the output cuts the path from the consumer's ready to the stages.

    **Latency** 8 cycles. **Throughput** one slice per cycle. **Numerics** the sum is converted to
    binary32, and both factors are multiplied in binary32; then the results are multiplied. Each
    step rounds to nearest, ties to even. A sum below binary32's normal numbers is a zero of its
    sign; products must not be subnormal.

    Parameters
    ----------
    parameters : ResultScalerParameters
        Number of lanes.

    Members
    -------
    slices : In(stream)
        `sums` in two's complement with `point` fraction bits, `factors` in FP16, `common` in
        binary32 and not subnormal, `last`.
    results : Out(stream)
        `values` in binary32, `last`.

    Raises
    ------
    ValueError
        If `ResultScalerParameters` rejects a value.
    """

    def elaborate(self, platform: object) -> Module:
        """Convert sums, multiply factors, then multiply both; all stages advance together."""
        m = Module()
        p = self.parameters
        m.submodules.registers = registers = RegisterSlice(shape=p.result_layout)
        connect_streams(m, registers.sink, self.results)
        results = registers.source
        move = move_together(m, self.slices, results, 1 + 2 * STAGES)
        # Operands are selected from several sources and therefore registered first.
        taken = {"enable": move, "cycles": 1}
        slices = delay_line(m, self.slices.payload, name="slice", **taken)[-1]
        # The sum is converted in parallel with the product of its factors: three stages, then three
        # more.
        options = {"stages": STAGES, "enable": True}
        for i in range(p.lanes):
            number = IntegerToFloat(width=SUM_BITS, **options)
            widen = FloatConvert(source=BINARY16, target=BINARY32)
            factor = FloatNormalMultiply(**options)
            product = FloatNormalMultiply(**options)
            m.submodules[f"number_{i}"], m.submodules[f"widen_{i}"] = number, widen
            m.submodules[f"factor_{i}"], m.submodules[f"product_{i}"] = factor, product
            m.d.comb += [operator.enable.eq(move) for operator in (number, factor, product)]
            m.d.comb += [
                number.a.eq(slices.sums[i]),
                number.point.eq(slices.point),
                # FP16 is exact in binary32.
                widen.a.eq(slices.factors[i]),
                factor.a.eq(widen.result),
                factor.b.eq(slices.common),
                product.a.eq(number.result),
                product.b.eq(factor.result),
                results.payload["values"][i].eq(product.result),
            ]
        return m
