"""Quantiser of FP16 vectors to FP8-E4M3 codes with a scale: activations and queries."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32
from hdl.arith.float_order import is_nan
from hdl.memory.row_buffer import RowBuffer, take_slices
from hdl.p3llm.quantisers.extreme import extreme, extreme_stages, higher
from hdl.p3llm.quantisers.group_scale import SCALE_LAYOUT, GroupScale
from hdl.p3llm.quantisers.quantiser_parameters import (
    QuantiserParameters,
    finite_magnitude,
)
from hdl.p3llm.quantisers.scaled_quotient import E4M3_STEPS, ScaledQuotient
from hdl.parameters import parameter_object
from hdl.unit import Unit

NAN_CODE = 0x7F
"""The E4M3 NaN, without sign."""


@parameter_object
class E4m3QuantiserParameters(QuantiserParameters):
    """Dimensions of the E4M3 quantiser, as `QuantiserParameters`."""

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of codes; every slice contains the scale of its vector."""
        codes = data.ArrayLayout(8, self.lanes)
        return data.StructLayout({"codes": codes, "scale": 16, "last": 1})

    @property
    def turnaround(self) -> int:
        """Cycles from a vector's last slice to its scale, with a margin for the pointers."""
        return extreme_stages(self.lanes) + self.scale_stages + 4


class E4m3Quantiser(Unit):
    """Quantise vectors to E4M3 with the scale ``max(max|x| / 448, 1e-6)``, in slices of `lanes`.

    The first pass finds a vector's largest magnitude while its slices are buffered; the second pass
    divides them by the scale. A vector is a token's activations or a query head (P3-LLM, Sections
    IV-D and V-B).

    **Latency** ``extreme_stages(lanes) + scale_stages + quotient_stages + 2`` cycles from a
    vector's last slice to its first codes. **Throughput** one slice in and one slice out per cycle,
    also across vectors; while `vectors` complete vectors are in flight, the next one waits.

    **Numerics** codes and scale are those of float32 arithmetic, bit for bit: the scale is a
    float32 quotient, at least 1e-6; an element over it is rounded to float32, then to E4M3, both to
    nearest, ties to even. `scale` is that scale rounded to FP16, for dequantisation. An infinity is
    treated as 65504 of its sign; a NaN does not affect the scale, and its code is E4M3's NaN.

    Parameters
    ----------
    parameters : E4m3QuantiserParameters
        Lanes, length of a vector and pipeline stages.

    Members
    -------
    vectors : In(stream)
        `values` in FP16; `last` in a vector's last slice; at most `width` elements per vector.
    results : Out(stream)
        `codes` in E4M3, `scale` in FP16, `last`.

    Raises
    ------
    ValueError
        If `E4m3QuantiserParameters` rejects a value.
    """

    def __init__(self, *, parameters: E4m3QuantiserParameters) -> None:
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
            result_shape=SCALE_LAYOUT,
            depth=p.slices + p.turnaround,
            rows=p.vectors,
        )
        self._first_pass(m, buffer)
        self._second_pass(m, buffer)
        return m

    def _first_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Compute the largest magnitude and the scale; this pass does not stall."""
        p = self.parameters
        vectors = self.vectors.payload
        take = take_slices(m, buffer, self.vectors)
        # Codes of magnitudes have the order of the magnitudes: an integer comparison suffices.
        magnitudes = [finite_magnitude(m, vectors.values[i]) for i in range(p.lanes)]
        largest, complete = extreme(
            m, magnitudes, higher, take=take, last=vectors.last, name="largest"
        )
        m.submodules.widen = widen = FloatConvert(source=BINARY16, target=BINARY32)
        m.submodules.scale = scale = GroupScale(divisor=448, stages=p.scale_stages)
        # The scale is valid so many cycles after the last slice; then the buffer releases the
        # vector.
        ended = delay_line(m, complete, p.scale_stages, name="ended", reset=True)[-1]
        m.d.comb += [
            widen.a.eq(largest),
            scale.a.eq(widen.result),
            buffer.results.valid.eq(ended),
            buffer.results.payload.eq(scale.result),
        ]

    def _second_pass(self, m: Module, buffer: RowBuffer) -> None:
        """Divide every lane by the vector's scale; all stages advance together."""
        p = self.parameters
        move = ~self.results.valid | self.results.ready
        out = self.results.payload
        scale = Signal(SCALE_LAYOUT, reset_less=True)
        read = Signal()
        read_last = Signal(reset_less=True)
        with m.If(move):
            m.d.sync += [
                scale.eq(buffer.result),
                read.eq(buffer.valid),
                read_last.eq(buffer.last),
            ]

        def beside(value: Value, name: str, *, reset: bool = False) -> Value:
            """Delay a value in parallel with the quotients."""
            stages = p.quotient_stages
            return delay_line(m, value, stages, name=name, enable=move, reset=reset)[-1]

        m.d.comb += [
            buffer.enable.eq(move),
            self.results.valid.eq(beside(read, "divided", reset=True)),
            out.last.eq(beside(read_last, "divided_last")),
            out.scale.eq(beside(scale.stored, "stored")),
        ]
        for i in range(p.lanes):
            value = buffer.data[i]
            lane = ScaledQuotient(steps=E4M3_STEPS, stages=p.quotient_stages, enable=True)
            m.submodules[f"quotient_{i}"] = lane
            marks = beside(Cat(value[15], is_nan(BINARY16, value)), f"marks_{i}")
            # A significand that rounds up to 16 carries into the exponent.
            magnitude = Cat(Const(0, 3), lane.excess[:4]) + lane.rounded
            m.d.comb += [
                lane.enable.eq(move),
                lane.a.eq(finite_magnitude(m, value)),
                lane.scale.eq(scale),
                out.codes[i].eq(Cat(Mux(marks[1], NAN_CODE, magnitude)[:7], marks[0])),
            ]
