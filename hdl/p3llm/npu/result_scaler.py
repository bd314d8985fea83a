"""Integer sums of the compute units as binary32: group and second-level scales come to them."""

from typing import Any

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
"""Pipeline stages of each of the two steps."""


@parameter_object
class ResultScalerParameters(NumberLanesParameters):
    """Dimensions of the scaler, as `NumberLanesParameters`."""

    @property
    def slice_layout(self) -> data.StructLayout:
        """Sums, and for each a factor in FP16; what is common to all of them."""
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
    """Sums times ``factor * common``, in slices.

    They leave by a register slice, so that nobody's ready moves the stages.

    **Latency** 8 cycles. **Throughput** one slice per cycle. **Numerics** the sum becomes binary32, and
    so does the product of both factors, each rounded to nearest, ties to even; then their product.
    A sum below binary32's normal numbers is a zero of its sign; no product may be below them.

    Parameters
    ----------
    parameters : ResultScalerParameters
        Number of lanes.

    Members
    -------
    slices : In(stream)
        `sums` in two's complement with `point` bits behind the binary point, `factors` in FP16,
        `common` in binary32 and not subnormal, `last`.
    results : Out(stream)
        `values` in binary32, `last`.

    Raises
    ------
    ValueError
        If `ResultScalerParameters` rejects a value.
    """

    def elaborate(self, platform: Any) -> Module:
        """Convert beside the product of the factors, then multiply; all stages move together."""
        m = Module()
        p = self.parameters
        m.submodules.registers = registers = RegisterSlice(shape=p.result_layout)
        connect_streams(m, registers.sink, self.results)
        results = registers.source
        move = move_together(m, self.slices, results, 1 + 2 * STAGES)
        # What is scaled was chosen among several: it has a register of its own.
        taken = {"enable": move, "cycles": 1}
        slices = delay_line(m, self.slices.payload, name="slice", **taken)[-1]
        # The sum is converted beside the product of its factors: three stages, then three more.
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
