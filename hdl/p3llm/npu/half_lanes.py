"""Integers with a binary point, or binary32, as FP16."""

from typing import Any

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
"""Shape of what any function gives: a probability is not signed."""


@parameter_object
class HalfLanesParameters(NumberLanesParameters):
    """Dimensions of the lanes, as `NumberLanesParameters`."""

    @property
    def slice_layout(self) -> data.StructLayout:
        """Numbers in one of two formats."""
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
    """Integers with a binary point, or binary32, as FP16.

    They leave by a register slice: who takes them is at the end of a chain of units, each of which
    moves when the next one does.

    **Latency** 3 cycles. **Throughput** one slice per cycle. **Numerics** rounded once, to nearest,
    ties to even; subnormal numbers in and out. Beyond 65504 the result is an infinity, and every
    NaN the quiet one of sign 0. An integer below binary32's normal numbers is a zero.

    Parameters
    ----------
    parameters : HalfLanesParameters
        Number of lanes.

    Members
    -------
    slices : In(stream)
        With `whole` the `integers` over two to their `point`, else `singles`; `last`.
    results : Out(stream)
        `values` in FP16, `last`.

    Raises
    ------
    ValueError
        If `HalfLanesParameters` rejects a value.
    """

    def elaborate(self, platform: Any) -> Module:
        """Integers have 17 bits: as binary32 they are exact."""
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
            # One rounding only: integers are exact in binary32.
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
