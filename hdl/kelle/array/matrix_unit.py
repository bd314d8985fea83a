"""The systolic array with its accumulators and requantisers: tiles in, 16-bit results out.

Section 5.2 of the paper. The results have two outputs: skewed, each lane one cycle after the
previous lane, for the systolic evictor; and aligned, for the memories.
"""

from dataclasses import replace
from typing import Annotated

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.arith.delay_line import delay_line
from hdl.kelle.array.output_stage import OutputLane, OutputStageParameters, add_output_stage
from hdl.kelle.array.systolic_array import Moving, SystolicArray
from hdl.kelle.array.tile_accumulator import TileAccumulatorParameters
from hdl.memory.memory import Memory
from hdl.nonlinear.argmax import Argmax, ArgmaxParameters
from hdl.parameters import PowerOfTwo, Range, option, parameter_object
from hdl.stream.connect import connect_streams
from hdl.stream.skew_buffer import SkewBuffer
from hdl.unit import Unit

RESULT = signed(16)
"""Shape of a result."""

SCALE = data.StructLayout({"scale": 16, "shift": 6})
"""Factor and shift of a requantiser."""

BIAS_BITS = 32
"""Bits of a bias, in units of the total that it is added to."""


@parameter_object
class MatrixUnitParameters(OutputStageParameters):
    """Dimensions of an array with accumulators and requantisers.

    Parameters
    ----------
    rows, bands, vectors, stages : int
        As in `OutputStageParameters`.
    activation_bits : int
        Bits of an element of a vector, 16 or 8.
    scales : int
        Scales per lane.
    user_width : int
        Bits of `user`, which accompanies the results of a vector.
    compared : int
        Totals of the longest argmax; 0 if no totals are compared.
    biases : bool
        Whether totals start from biases.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    activation_bits: Annotated[int, PowerOfTwo(8, 16, "bits")] = 16
    scales: Annotated[int, Range(2, 16384, "scales")] = 64
    user_width: Annotated[int, Range(1, 48, "bits")] = 16
    compared: Annotated[int, Range(0, 1 << 24, "totals")] = 0
    biases: bool = option(default=False)

    @property
    def moving(self) -> Moving:
        """Form of the moving operand; activations of 8 bits need one multiplier per element."""
        return Moving.WIDE if self.activation_bits == 16 else Moving.MODE8

    @property
    def accumulator(self) -> TileAccumulatorParameters:
        """Dimensions of the accumulators."""
        own = super().accumulator
        return replace(own, bias_bits=BIAS_BITS) if self.biases else own

    @property
    def scale_layout(self) -> data.StructLayout:
        """A lane's `scale` and `shift`, and its `bias` if there are biases."""
        bias = {"bias": signed(BIAS_BITS)} if self.biases else {}
        return data.StructLayout(SCALE.members | bias)

    @property
    def tag_layout(self) -> data.StructLayout:
        """Tag of a vector: instructions for its sums, and the index of its results' scales."""
        return data.StructLayout(
            {
                "step": self.accumulator.step_layout,
                "done": 1,
                "scale": ceil_log2(self.scales),
                "user": self.user_width,
            }
            | ({"compares": 1} if self.compared else {})
        )

    @property
    def coming_layout(self) -> data.StructLayout:
        """The result that is at lane 0 in the next cycle: its `user`, and whether it is `valid`."""
        return data.StructLayout({"user": self.user_width, "valid": 1})

    @property
    def largest_layout(self) -> data.StructLayout:
        """Argmax of the totals: the `number` of the largest, and the `total`."""
        bits = self.argmax.index_bits if self.compared else 0
        return data.StructLayout({"number": bits, "total": self.accumulator.shape})

    @property
    def argmax(self) -> ArgmaxParameters:
        """Dimensions of the argmax of totals, which the array outputs lane by lane."""
        return ArgmaxParameters(
            lanes=self.rows, length=self.compared, width=self.accumulator.width, skewed=True
        )

    @property
    def scales_layout(self) -> data.StructLayout:
        """A word of scales, one per lane, and its address."""
        return data.StructLayout(
            {
                "address": ceil_log2(self.scales),
                "values": data.ArrayLayout(self.scale_layout, self.rows),
            }
        )

    @property
    def result_layout(self) -> data.StructLayout:
        """Aligned results of a vector."""
        values = data.ArrayLayout(RESULT, self.rows)
        return data.StructLayout({"values": values, "user": self.user_width, "valid": 1})


class MatrixUnit(Unit):
    """Multiply vectors by stationary tiles, add up tiles and byte passes, and requantise.

    The `tag` of a vector controls its sums: `step` adds them to an accumulator, and `done`
    requantises the total with word `scale` of each lane's scales. With `biases`, the total starts
    from the bias in the same word.

    With `compared`, an argmax compares the totals of vectors with `compares` before they are
    rounded: the argmax over the rows of a matrix that is loaded tile by tile. Its chain of
    comparators follows the skew of the lanes, as the systolic evictor's does (Section 5.3).

    **Latency** lane i's result is valid `latency` + i cycles after the vector's acceptance, the
    aligned results `latency` + `rows` - 1 cycles after it. **Throughput** that of the array: one
    vector per cycle; only the array's inputs can wait.

    **Numerics** results are the exact sums, biases included, requantised once.

    Parameters
    ----------
    parameters : MatrixUnitParameters
        Dimensions of array and output stage.

    Members
    -------
    vectors, weights : In(stream)
        As in `SystolicArray`, with the tag of `MatrixUnitParameters.tag_layout`.
    scales : In(stream)
        Scales to store; always ready. Scales of results in flight must not be written.
    coming : Out
        `valid` and `user` of the result that is at lane 0 in the next cycle.
    lanes : Out(ArrayLayout(16, rows))
        Skewed results; lane i's are i cycles later than lane 0's.
    results : Out
        Aligned results: `values`, `user`, `valid`.
    clear : In(1)
        Restart the argmax: the next compared total has number 0.
    largest : Out
        The largest `total` compared so far and its `number`, counted lane by lane and tile by
        tile. Ties resolve to the lowest number.

    Raises
    ------
    ValueError
        If `MatrixUnitParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: MatrixUnitParameters) -> None:
        p = self.parameters = parameters
        compared = {"clear": In(1), "largest": Out(p.largest_layout)} if p.compared else {}
        super().__init__(
            compared
            | {
                "vectors": In(stream.Signature(p.vector_layout)),
                "weights": In(stream.Signature(p.array.weights_layout)),
                "scales": In(stream.Signature(p.scales_layout)),
                "coming": Out(p.coming_layout),
                "lanes": Out(data.ArrayLayout(RESULT, p.rows)),
                "results": Out(p.result_layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Chain array, accumulators and requantisers lane by lane; align the results."""
        m = Module()
        p = self.parameters
        m.submodules.array = array = SystolicArray(parameters=p.array)
        m.submodules.aligner = aligner = SkewBuffer(shape=RESULT, lanes=p.rows)
        connect_streams(m, self.vectors, array.vectors)
        connect_streams(m, self.weights, array.weights)
        m.d.comb += self.scales.ready.eq(1)

        lanes = add_output_stage(m, array, p)
        if p.compared:
            self._compare(m, array, [lane.requantiser.a for lane in lanes])
        if p.biases:
            self._begin_with_biases(m, lanes)
        for i, lane in enumerate(lanes):
            requantiser = lane.requantiser
            scales = Memory(depth=p.scales, width=SCALE.size)
            m.submodules[f"scales_{i}"] = scales
            # The accumulator takes one cycle, and so does the memory: a scale and its total are
            # valid in the same cycle.
            scale = data.View(SCALE, scales.read_data)
            word = self.scales.payload.values[i]
            m.d.comb += [
                scales.read_enable.eq(1),
                scales.read_address.eq(data.View(p.tag_layout, array.lanes[i].tag).scale),
                scales.write_enable.eq(self.scales.valid),
                scales.write_address.eq(self.scales.payload.address),
                scales.write_data.eq(Cat(word.scale, word.shift)),
                requantiser.scale.eq(scale.scale),
                requantiser.shift.eq(scale.shift),
                self.lanes[i].eq(requantiser.result),
                # Lane i is delayed until the lanes below it are valid.
                aligner.aligned[p.rows - 1 - i].eq(requantiser.result),
                self.results["values"][i].eq(aligner.skewed[p.rows - 1 - i]),
            ]

        # `coming` is one cycle earlier than lane 0's result; the aligned results are valid with the
        # last lane's.
        first, last = array.lanes[0], array.lanes[p.rows - 1]
        for name, lane, port, stages in (
            ("coming", first, self.coming, p.stages),
            ("results", last, self.results, p.stages + 1),
        ):
            tag = data.View(p.tag_layout, lane.tag)
            done = lane.valid & tag.done
            users = delay_line(m, tag.user, stages, name=f"{name}_user")
            valids = delay_line(m, done, stages, name=f"{name}_valid", reset=True)
            m.d.comb += [port.user.eq(users[-1]), port.valid.eq(valids[-1])]
        return m

    def _begin_with_biases(self, m: Module, lanes: list[OutputLane]) -> None:
        """Read each lane's bias one cycle before its scale: with the sum, not with the total."""
        p = self.parameters
        for i, lane in enumerate(lanes):
            m.submodules[f"biases_{i}"] = biases = Memory(depth=p.scales, width=BIAS_BITS)
            m.d.comb += [
                biases.read_enable.eq(1),
                biases.read_address.eq(lane.next_tag.scale),
                biases.write_enable.eq(self.scales.valid),
                biases.write_address.eq(self.scales.payload.address),
                biases.write_data.eq(self.scales.payload.values[i].bias),
                lane.accumulator.bias.eq(biases.read_data),
            ]

    def _compare(self, m: Module, array: SystolicArray, totals: list[Signal]) -> None:
        """Compare complete totals, one cycle after the array outputs their last sums."""
        p = self.parameters
        m.submodules.argmax = argmax = Argmax(parameters=p.argmax)
        slices, found = argmax.slices, argmax.results.payload
        tag = data.View(p.tag_layout, array.lanes[0].tag)
        begins = Signal(init=1)
        m.d.sync += slices.valid.eq(array.lanes[0].valid & tag.done & tag.compares)
        with m.If(self.clear):
            m.d.sync += begins.eq(1)
        with m.Elif(slices.valid):
            m.d.sync += begins.eq(0)
        m.d.comb += [
            *(
                value.eq(total)
                for value, total in zip(slices.payload["values"], totals, strict=True)
            ),
            slices.payload.count.eq(p.rows),
            slices.payload.first.eq(begins),
            argmax.results.ready.eq(1),
            self.largest.number.eq(found.index),
            self.largest.total.eq(found.value),
        ]
