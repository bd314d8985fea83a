"""Conversion of integers with a binary point, or of binary32, to FP16."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data

from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.integer_to_float import POINT, IntegerToFloat
from hdl.p3llm.npu.number_lanes import NumberLanes, NumberLanesParameters, move_together
from hdl.parameters import parameter_object
from hdl.stream.connect import connect_streams
from hdl.stream.register_slice import RegisterSlice

INTEGER = signed(17)
"""Shape of an integer; it includes the unsigned 16-bit probabilities."""


@parameter_object
class HalfLanesParameters(NumberLanesParameters):
    """Dimensions of the lanes, as `NumberLanesParameters`."""

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of numbers in one of two formats."""
        return data.StructLayout(
            {
                "whole": 1,
                "integers": data.ArrayLayout(INTEGER, self.lanes),
                "point": POINT,
                "singles": self.singles,
                "last": 1,
            }
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of FP16 numbers."""
        return data.StructLayout({"values": data.ArrayLayout(16, self.lanes), "last": 1})


class HalfLanes(NumberLanes):
    """Conversion of integers with a binary point, or of binary32, to FP16.

    A register slice at the output cuts the path of ready through the chain of downstream units.

    **Latency** 3 cycles. **Throughput** one slice per cycle. **Numerics** rounded once, to nearest,
    ties to even, including subnormal operands and results. Numbers that round above 65504 become
    infinities, NaNs the positive quiet NaN. An integer below binary32's normal numbers is a zero.

    Parameters
    ----------
    parameters : HalfLanesParameters
        Number of lanes.

    Members
    -------
    slices : In(stream)
        With `whole`: `integers` with `point` fraction bits; otherwise `singles` in binary32;
        `last`.
    results : Out(stream)
        `values` in FP16, `last`.

    Raises
    ------
    ValueError
        If `HalfLanesParameters` rejects a value.
    """

    def elaborate(self, platform: object) -> Module:
        """Convert integers to binary32, which is exact for 17 bits, then to FP16."""
        m = Module()
        m.submodules.registers = registers = RegisterSlice(shape=self.results.payload.shape())
        connect_streams(m, registers.sink, self.results)
        move = move_together(m, self.slices, registers.source, 2)
        slices = self.slices.payload
        for i in range(self.parameters.lanes):
            number = IntegerToFloat(width=INTEGER.width)
            half = FloatConvert(source=BINARY32, target=BINARY16, stages=1, enable=True)
            m.submodules[f"number_{i}"], m.submodules[f"half_{i}"] = number, half
            single = Signal(32, name=f"single_{i}")
            # Only one rounding: integers are exact in binary32.
            with m.If(move):
                m.d.sync += single.eq(
                    Mux(slices.whole, number.result.as_value(), slices.singles[i])
                )
            m.d.comb += [
                number.a.eq(slices.integers[i]),
                number.point.eq(slices.point),
                half.enable.eq(move),
                half.a.eq(single),
                registers.source.payload["values"][i].eq(half.result),
            ]
        return m
