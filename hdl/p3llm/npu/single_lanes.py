"""Sums in binary32, and products with Q6.10: residual additions and SwiGLU."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_format import BINARY32
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from hdl.arith.float_to_fixed import RESULT
from hdl.arith.integer_to_float import IntegerToFloat
from hdl.p3llm.npu.number_lanes import (
    ADD_STAGES,
    FIXED_FRACTION,
    NumberLanes,
    NumberLanesParameters,
    move_together,
)
from hdl.parameters import parameter_object


@parameter_object
class SingleLanesParameters(NumberLanesParameters):
    """Dimensions of the lanes, as `NumberLanesParameters`."""

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of operands of sums, or of products."""
        return data.StructLayout(
            {
                "multiply": 1,
                "values": self.singles,
                "addends": self.singles,
                "factors": self.fixed,
                "last": 1,
            }
        )


class SingleLanes(NumberLanes):
    """Sums or products in binary32.

    **Latency** 4 cycles. **Throughput** one slice per cycle. **Numerics** rounded to nearest, ties
    to even. A sum accepts any numbers, including subnormal ones, infinities and NaNs. With
    `multiply` the second operand is Q6.10, and neither `values` nor products may be subnormal.

    Parameters
    ----------
    parameters : SingleLanesParameters
        Number of lanes.

    Members
    -------
    slices : In(stream)
        `values` and `addends` in binary32, or with `multiply` `values` and `factors` in Q6.10;
        `last`.
    results : Out(stream)
        `values` in binary32, `last`.

    Raises
    ------
    ValueError
        If `SingleLanesParameters` rejects a value.
    """

    def elaborate(self, platform: object) -> Module:
        """Add and multiply; a delayed bit selects the result."""
        m = Module()
        move = move_together(m, self.slices, self.results, ADD_STAGES)
        slices = self.slices.payload
        # Both operators run in every cycle; the slice selects the result. The conversion of a
        # factor takes the cycle by which the product is shorter than the sum.
        multiply = delay_line(m, slices.multiply, ADD_STAGES, name="multiply", enable=move)[-1]
        values = delay_line(m, slices["values"], 1, name="values", enable=move)[-1]
        options = {"number_format": BINARY32, "enable": True}
        for i in range(self.parameters.lanes):
            # A factor of 16 bits is exact in binary32.
            factor = IntegerToFloat(width=RESULT.width, stages=1, enable=True)
            add = FloatAdd(stages=ADD_STAGES, **options)
            product = FloatNormalMultiply(stages=ADD_STAGES - 1, **options)
            m.submodules[f"factor_{i}"] = factor
            m.submodules[f"add_{i}"], m.submodules[f"product_{i}"] = add, product
            m.d.comb += [
                factor.enable.eq(move),
                factor.a.eq(slices.factors[i]),
                factor.point.eq(FIXED_FRACTION),
                add.enable.eq(move),
                product.enable.eq(move),
                add.a.eq(slices["values"][i]),
                add.b.eq(slices.addends[i]),
                product.a.eq(values[i]),
                product.b.eq(factor.result),
                self.results.payload["values"][i].eq(
                    Mux(multiply, product.result.as_value(), add.result.as_value())
                ),
            ]
        return m
