"""Conversion of binary32 vectors to block floating point, for the norm and the rotary embedding."""

from typing import Annotated

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.float_to_fixed import RESULT, FloatToFixed
from hdl.arith.integer_to_float import POINT
from hdl.memory.row_buffer import RowBuffer, take_slices
from hdl.p3llm.quantisers.extreme import extreme, extreme_stages, higher
from hdl.parameters import Parameters, PowerOfTwo, Range, option, parameter_object
from hdl.unit import Unit

STAGES = 2
"""Pipeline stages of a lane's conversion."""

WHOLE_POINT = 141
"""Binary point at which a number with exponent code 0 fills 16 bits."""


@parameter_object
class BlockFixedParameters(Parameters):
    """Dimensions of the conversion.

    Parameters
    ----------
    lanes : int
        Elements per slice.
    slices : int
        Slices of the longest vector.
    vectors : int
        Maximum number of vectors in flight or stored.

    Raises
    ------
    ValueError
        If a parameter violates a rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, PowerOfTwo(1, 64, "elements")] = 16
    slices: Annotated[int, Range(2, 4000, "slices")] = 36
    vectors: Annotated[int, Range(1, 16, "vectors")] = option(default=1)

    @property
    def slice_layout(self) -> data.StructLayout:
        """A slice of a vector; `spare`, in the last slice, keeps one bit free."""
        return data.StructLayout(
            {"values": data.ArrayLayout(32, self.lanes), "spare": 1, "last": 1}
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """A slice of integers; every slice of a vector carries its binary point."""
        return data.StructLayout(
            {"values": data.ArrayLayout(RESULT, self.lanes), "point": POINT, "last": 1}
        )


class BlockFixed(Unit):
    """16-bit integers with one binary point per vector, chosen by its largest exponent.

    The largest magnitude fills 16 bits, or 15 with `spare`: a rotation can increase an element by a
    factor of up to the square root of two.

    **Latency** ``extreme_stages(lanes) + 4`` cycles from a vector's last slice to its first
    integers. **Throughput** one slice in and one slice out per cycle, with up to `vectors` vectors
    in flight. **Numerics** see `FloatToFixed`. An infinity or a NaN has the largest exponent and
    becomes the limit of its sign.

    Parameters
    ----------
    parameters : BlockFixedParameters
        Lanes, length of a vector and number of vectors.

    Members
    -------
    vectors : In(stream)
        `values` in binary32, `spare`, `last`.
    results : Out(stream)
        `values`, `point`, `last`.

    Raises
    ------
    ValueError
        If `BlockFixedParameters` rejects a value.
    """

    def __init__(self, *, parameters: BlockFixedParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "vectors": In(stream.Signature(parameters.slice_layout)),
                "results": Out(stream.Signature(parameters.result_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Find the largest exponent while slices are buffered; then shift every lane."""
        m = Module()
        p = self.parameters
        m.submodules.buffer = buffer = RowBuffer(
            data_shape=data.ArrayLayout(32, p.lanes),
            result_shape=POINT,
            depth=p.slices + extreme_stages(p.lanes) + 6,
            rows=p.vectors,
        )
        slices = self.vectors.payload
        take = take_slices(m, buffer, self.vectors)
        exponents = [slices["values"][i][23:31] for i in range(p.lanes)]
        largest, complete = extreme(
            m, exponents, higher, take=take, last=slices.last, name="largest"
        )
        spare = delay_line(m, slices.spare, extreme_stages(p.lanes), name="spare")[-1]
        m.d.comb += [
            # The largest exponent is known: the slices of the vector may be read.
            buffer.results.valid.eq(complete),
            buffer.results.payload.eq(Const(WHOLE_POINT) - spare - largest),
        ]
        self._shift(m, buffer)
        return m

    def _shift(self, m: Module, buffer: RowBuffer) -> None:
        """Convert the buffer's slices; all stages advance together."""
        p, results = self.parameters, self.results
        move = ~results.valid | results.ready
        point, read, last = Signal(POINT), Signal(), Signal()
        # A binary point belongs to all slices of its vector.
        with m.If(move):
            m.d.sync += [point.eq(buffer.result), read.eq(buffer.valid), last.eq(buffer.last)]
        beside = {"enable": move, "cycles": STAGES}
        m.d.comb += [
            buffer.enable.eq(move),
            results.valid.eq(delay_line(m, read, name="read", reset=True, **beside)[-1]),
            results.payload.last.eq(delay_line(m, last, name="last", **beside)[-1]),
            results.payload.point.eq(delay_line(m, point, name="point", **beside)[-1]),
        ]
        for i in range(p.lanes):
            m.submodules[f"lane_{i}"] = lane = FloatToFixed(stages=STAGES, enable=True)
            m.d.comb += [
                lane.enable.eq(move),
                lane.a.eq(buffer.data[i]),
                lane.point.eq(point),
                results.payload["values"][i].eq(lane.result),
            ]
