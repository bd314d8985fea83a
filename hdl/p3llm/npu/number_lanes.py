"""Lanes between the NPU's number formats, and those that add and multiply in binary32."""

from typing import Any

import numpy as np
from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from hdl.arith.float_to_fixed import RESULT, FloatToFixed
from hdl.arith.integer_to_float import POINT, IntegerToFloat
from hdl.stream.connect import connect_streams
from hdl.stream.register_slice import RegisterSlice
from hdl.unit import Unit

INTEGER = signed(17)
"""Shape of what any function gives: a probability is not signed."""

FIXED_FRACTION = 10
"""Fraction bits of scores and of what SiLU takes and gives."""

ADD_STAGES = 4


def score_factor(head_size: int) -> int:
    """Return what makes a score in base 2 of a dot product over a head: binary32's code."""
    return int(np.float32(np.log2(np.e) / np.sqrt(head_size)).view(np.uint32))


def _streams(given: dict[str, Any], values: data.ArrayLayout) -> dict[str, Any]:
    """Return the ports: what is `given`, and `values` out of it; both with `last`."""
    results = data.StructLayout({"values": values, "last": 1})
    return {
        "slices": In(stream.Signature(data.StructLayout({**given, "last": 1}))),
        "results": Out(stream.Signature(results)),
    }


def move_together(m: Module, source: Any, results: Any, stages: int) -> Value:
    """Connect the handshake of a unit whose stages all move together; return when."""
    # Nothing is held back inside: the whole pipeline stands, or all of it moves.
    move = ~results.valid | results.ready
    beside = {"enable": move, "cycles": stages}
    m.d.comb += [
        source.ready.eq(move),
        results.valid.eq(delay_line(m, source.valid, name="valid", reset=True, **beside)[-1]),
        results.payload.last.eq(delay_line(m, source.payload.last, name="last", **beside)[-1]),
    ]
    return move


class HalfLanes(Unit):
    """Integers with a binary point, or binary32, as FP16.

    They leave by a register slice: who takes them is at the end of a chain of units, each of which
    moves when the next one does.

    **Latency** 3 cycles. **Throughput** a slice a cycle. **Numerics** rounded once, to nearest,
    ties to even.

    Parameters
    ----------
    lanes : int
        Numbers in a slice.

    Members
    -------
    slices : In(stream)
        With `whole` the `integers` and their `point`, else `singles`; `last`.
    results : Out(stream)
        `values` in FP16, `last`.
    """

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        given = {
            "whole": 1,
            "integers": data.ArrayLayout(INTEGER, lanes),
            "point": POINT,
            "singles": data.ArrayLayout(32, lanes),
        }
        super().__init__(_streams(given, data.ArrayLayout(16, lanes)))

    def elaborate(self, platform: Any) -> Module:
        """Integers have 17 bits: as binary32 they are exact."""
        m = Module()
        m.submodules.registers = registers = RegisterSlice(shape=self.results.payload.shape())
        connect_streams(m, registers.sink, self.results)
        move = move_together(m, self.slices, registers.source, 2)
        slices = self.slices.payload
        for i in range(self.lanes):
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


class FixedLanes(Unit):
    """Binary32 as Q6.10.

    **Latency** 2 cycles. **Throughput** a slice a cycle. **Numerics** see `FloatToFixed`.

    Parameters
    ----------
    lanes : int
        Numbers in a slice.

    Members
    -------
    slices : In(stream)
        `values` in binary32, `last`.
    results : Out(stream)
        `values` in Q6.10, `last`.
    """

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        given = {"values": data.ArrayLayout(32, lanes)}
        super().__init__(_streams(given, data.ArrayLayout(RESULT, lanes)))

    def elaborate(self, platform: Any) -> Module:
        """Convert every lane."""
        m = Module()
        move = move_together(m, self.slices, self.results, 2)
        for i in range(self.lanes):
            m.submodules[f"lane_{i}"] = lane = FloatToFixed(stages=2, enable=True)
            m.d.comb += [
                lane.enable.eq(move),
                lane.a.eq(self.slices.payload["values"][i]),
                lane.point.eq(FIXED_FRACTION),
                self.results.payload["values"][i].eq(lane.result),
            ]
        return m


class SingleLanes(Unit):
    """Sums or products in binary32.

    **Latency** 4 cycles. **Throughput** a slice a cycle. **Numerics** rounded to nearest, ties to
    even. With `multiply` the second operand is Q6.10, and neither `values` nor products are
    subnormal.

    Parameters
    ----------
    lanes : int
        Numbers in a slice.

    Members
    -------
    slices : In(stream)
        `values` and `addends` in binary32, or with `multiply` `factors` in Q6.10; `last`.
    results : Out(stream)
        `values` in binary32, `last`.
    """

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        singles = data.ArrayLayout(32, lanes)
        given = {
            "multiply": 1,
            "values": singles,
            "addends": singles,
            "factors": data.ArrayLayout(RESULT, lanes),
        }
        super().__init__(_streams(given, singles))

    def elaborate(self, platform: Any) -> Module:
        """Add and multiply; which of both it is comes along."""
        m = Module()
        move = move_together(m, self.slices, self.results, ADD_STAGES)
        slices = self.slices.payload
        # Both operators work all the time; the slice says whose result counts. A factor is made a
        # number in the cycle that the product has less than the sum.
        multiply = delay_line(m, slices.multiply, ADD_STAGES, name="multiply", enable=move)[-1]
        values = delay_line(m, slices["values"], 1, name="values", enable=move)[-1]
        options = {"number_format": BINARY32, "enable": True}
        for i in range(self.lanes):
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
