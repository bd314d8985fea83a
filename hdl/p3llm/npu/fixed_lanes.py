"""Conversion of binary32 to Q6.10, the operand format of softmax and SiLU."""

from amaranth.hdl import Module
from amaranth.lib import data

from hdl.arith.float_to_fixed import FloatToFixed
from hdl.p3llm.npu.number_lanes import (
    FIXED_FRACTION,
    NumberLanes,
    NumberLanesParameters,
    move_together,
)
from hdl.parameters import parameter_object


@parameter_object
class FixedLanesParameters(NumberLanesParameters):
    """Dimensions of the lanes, as `NumberLanesParameters`."""

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of numbers in binary32."""
        return data.StructLayout({"values": self.singles, "last": 1})

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of numbers in fixed point."""
        return data.StructLayout({"values": self.fixed, "last": 1})


class FixedLanes(NumberLanes):
    """Conversion of binary32 to Q6.10.

    **Latency** 2 cycles. **Throughput** one slice per cycle. **Numerics** rounded to nearest, ties
    to even, then clamped to -32 and 32 - 2**-10; subnormal numbers are treated as zero, infinities
    and NaNs as the limit of their sign.

    Parameters
    ----------
    parameters : FixedLanesParameters
        Number of lanes.

    Members
    -------
    slices : In(stream)
        `values` in binary32, `last`.
    results : Out(stream)
        `values` in Q6.10, `last`.

    Raises
    ------
    ValueError
        If `FixedLanesParameters` rejects a value.
    """

    def elaborate(self, platform: object) -> Module:
        """Convert every lane."""
        m = Module()
        move = move_together(m, self.slices, self.results, 2)
        for i in range(self.parameters.lanes):
            m.submodules[f"lane_{i}"] = lane = FloatToFixed(stages=2, enable=True)
            m.d.comb += [
                lane.enable.eq(move),
                lane.a.eq(self.slices.payload["values"][i]),
                lane.point.eq(FIXED_FRACTION),
                self.results.payload["values"][i].eq(lane.result),
            ]
        return m
