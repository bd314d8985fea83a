"""Quantiser of FP16 vectors to INT4-Asym codes with scale and zero point: keys and values."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.float_order import total_order, total_order_code
from hdl.memory.row_buffer import RowBuffer, take_slices
from hdl.p3llm.quantisers.extreme import extreme, extreme_stages, higher, lower
from hdl.p3llm.quantisers.group_scale import SCALE_LAYOUT, GroupScale
from hdl.p3llm.quantisers.quantiser_parameters import (
    QuantiserParameters,
    finite,
    finite_magnitude,
)
from hdl.p3llm.quantisers.scaled_quotient import INT4_STEPS, ScaledQuotient
from hdl.parameters import parameter_object
from hdl.unit import Unit

RANGE_STAGES = 5
"""Pipeline stages of the difference of maximum and minimum, including one for its operands."""

GROUP_LAYOUT = data.StructLayout({"scale": SCALE_LAYOUT, "zero_point": 4})
"""Results of the first pass for a whole vector."""


@parameter_object
class Int4QuantiserParameters(QuantiserParameters):
    """Dimensions of the INT4 quantiser, as `QuantiserParameters`."""

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of codes; every slice contains the scale and zero point of its vector."""
        codes = data.ArrayLayout(4, self.lanes)
        return data.StructLayout({"codes": codes, "zero_point": 4, "scale": 16, "last": 1})

    @property
    def group_latency(self) -> int:
        """Cycles from a vector's maximum and minimum to its scale and zero point."""
        return RANGE_STAGES + self.scale_stages + self.quotient_stages

    @property
    def turnaround(self) -> int:
        """Cycles from a vector's last slice to its scale, with a margin for the pointers."""
        return extreme_stages(self.lanes) + self.group_latency + 4


class Int4Quantiser(Unit):
    """Quantise vectors to ``clamp(round(x / scale) + zero_point, 0, 15)``, in slices of `lanes`.

    ``scale = max((max - min) / 15, 1e-6)`` and ``zero_point = clamp(round(-min / scale), 0, 15)``.
    The first pass finds a vector's maximum and minimum while its slices are buffered; the second
    pass divides them by the scale. A vector is a token's key or value of one head (P3-LLM, Sections
    IV-A and V-B).

    **Latency** ``extreme_stages(lanes) + scale_stages + 2 * quotient_stages + 7`` cycles from a
    vector's last slice to its first codes. **Throughput** one slice in and one slice out per cycle,
    also across vectors; while `vectors` complete vectors are in flight, the next one waits.

    **Numerics** codes, zero point and scale are those of float32 arithmetic, bit for bit: the
    difference and every quotient are rounded to float32, then codes to integers, all to nearest,
    ties to even. Zero points are clamped, so a vector of one sign far from zero is clipped. `scale`
    is the scale rounded to FP16, for dequantisation. An infinity is treated as 65504 of its sign, a
    NaN as zero.

    Parameters
    ----------
    parameters : Int4QuantiserParameters
        Lanes, length of a vector and pipeline stages.

    Members
    -------
    vectors : In(stream)
        `values` in FP16; `last` in a vector's last slice; at most `width` elements per vector.
    results : Out(stream)
        `codes`, `zero_point`, `scale` in FP16, `last`.

    Raises
    ------
    ValueError
        If `Int4QuantiserParameters` rejects a value.
    """

    def __init__(self, *, parameters: Int4QuantiserParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "vectors": In(stream.Signature(parameters.slice_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the first pass, the buffer and the second pass."""
        m = Module()
        p = self.parameters
        m.submodules.buffer = buffer = RowBuffer(
            data_shape=p.values_layout,
            result_shape=GROUP_LAYOUT,
            depth=p.slices + p.turnaround,
            rows=p.vectors,
        )
        self._first_pass(m, buffer)
        self._second_pass(m, buffer)
        return m

    def _first_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Compute maximum and minimum; this pass does not stall."""
        p = self.parameters
        vectors = self.vectors.payload
        take = take_slices(m, buffer, self.vectors)
        # Keys of finite numbers need only integer comparisons.
        ordered = [Signal(16, name=f"ordered_{i}") for i in range(p.lanes)]
        for i, code in enumerate(ordered):
            m.d.comb += code.eq(total_order(finite(m, vectors.values[i])))
        slices = {"take": take, "last": vectors.last}
        high, complete = extreme(m, ordered, higher, name="high", **slices)
        low, _ = extreme(m, ordered, lower, name="low", **slices)
        group = self._group(m, high, low)
        ended = delay_line(m, complete, p.group_latency, name="ended", reset=True)[-1]
        m.d.comb += [buffer.results.valid.eq(ended), buffer.results.payload.eq(group)]

    def _group(self, m: Module, high: Value, low: Value) -> Value:
        """Return a vector's scale and zero point, `group_latency` cycles after its extremes."""
        p = self.parameters
        m.submodules.range = difference = FloatAdd(
            number_format=BINARY32, subtractor=True, stages=RANGE_STAGES - 1
        )
        m.d.comb += difference.subtract.eq(1)
        code = total_order_code(low)
        for name, end, operand in (
            ("high", total_order_code(high), difference.a),
            ("low", code, difference.b),
        ):
            m.submodules[f"widen_{name}"] = widen = FloatConvert(source=BINARY16, target=BINARY32)
            wide = delay_line(m, widen.result.as_value(), 1, name=f"wide_{name}")[-1]
            m.d.comb += [widen.a.eq(end), operand.eq(wide)]
        m.submodules.scale = scale = GroupScale(divisor=15, stages=p.scale_stages)
        # The zero point is the rounded quotient of the minimum, with inverted sign.
        m.submodules.zero = zero = ScaledQuotient(steps=INT4_STEPS, stages=p.quotient_stages)
        minimum = delay_line(m, code, RANGE_STAGES + p.scale_stages, name="minimum")[-1]
        m.d.comb += [
            scale.a.eq(difference.result),
            zero.a.eq(minimum[:15]),
            zero.scale.eq(scale.result),
        ]
        held = delay_line(m, scale.result, p.quotient_stages, name="held")[-1]
        negative = delay_line(m, minimum[15], p.quotient_stages, name="negative")[-1]
        # Clamp: a positive minimum has the zero point 0, one far below zero has 15.
        clamped = Mux(zero.excess.any() | zero.rounded[4], 15, zero.rounded[:4])
        return Cat(held, Mux(negative, clamped, Const(0, 4)))

    def _second_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Divide every lane by the vector's scale; all stages advance together."""
        p = self.parameters
        move = ~self.results.valid | self.results.ready
        out = self.results.payload
        group = Signal(GROUP_LAYOUT, reset_less=True)
        read = Signal()
        read_last = Signal(reset_less=True)
        with m.If(move):
            m.d.sync += [
                group.eq(buffer.result),
                read.eq(buffer.valid),
                read_last.eq(buffer.last),
            ]

        def beside(value: Value, name: str, *, reset: bool = False) -> Value:
            """Delay a value in parallel with the quotients."""
            stages = p.quotient_stages
            return delay_line(m, value, stages, name=name, enable=move, reset=reset)[-1]

        zero_point = beside(group.zero_point, "zero_point")
        m.d.comb += [
            buffer.enable.eq(move),
            self.results.valid.eq(beside(read, "divided", reset=True)),
            out.last.eq(beside(read_last, "divided_last")),
            out.scale.eq(beside(group.scale.stored, "stored")),
            out.zero_point.eq(zero_point),
        ]
        for i in range(p.lanes):
            value = buffer.data[i]
            lane = ScaledQuotient(steps=INT4_STEPS, stages=p.quotient_stages, enable=True)
            m.submodules[f"quotient_{i}"] = lane
            m.d.comb += [
                lane.enable.eq(move),
                lane.a.eq(finite_magnitude(m, value)),
                lane.scale.eq(group.scale),
            ]
            # A quotient of 16 or more is beyond both clamps, whatever the zero point.
            size = Mux(lane.excess.any(), 16, lane.rounded)
            placed = Mux(beside(value[15], f"sign_{i}"), zero_point - size, zero_point + size)
            m.d.comb += out.codes[i].eq(Mux(placed < 0, 0, Mux(placed > 15, 15, placed)))
