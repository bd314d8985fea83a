"""The systolic array with its accumulators and requantisers: tiles in, 16-bit results out.

Section 5.2 of the paper. The results have two outputs: skewed, each lane one cycle after the
previous lane, for the systolic evictor; and aligned, for the memories.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.kelle.array.matrix_parameters import BIAS_BITS, RESULT, MatrixUnitParameters
from hdl.kelle.array.output_stage import OutputLane, add_accumulators
from hdl.kelle.array.shared_requantisers import SharedRequantisers
from hdl.kelle.array.systolic_array import SystolicArray
from hdl.memory.memory import Memory
from hdl.nonlinear.argmax import Argmax
from hdl.stream.connect import connect_streams
from hdl.unit import Unit


class MatrixUnit(Unit):
    """Multiply vectors by stationary tiles, add up tiles and byte passes, and requantise.

    The `tag` of a vector controls its sums: `step` adds them to an accumulator, and `done`
    requantises the total with word `scale` of each lane's scales. With `biases`, the total starts
    from the bias in the same word.

    With `compared`, an argmax compares the totals of vectors with `compares` before they are
    rounded: the argmax over the rows of a matrix that is loaded tile by tile. Its chain of
    comparators follows the skew of the lanes, as the systolic evictor's does (Section 5.3).

    The lanes share requantisers (`SharedRequantisers`): their results are in the order of the
    vectors, at least `spacing` cycles apart.

    **Latency** lane i's result is valid `latency` + 3 + i cycles after the vector's acceptance, if
    no earlier vector waits for a requantiser, the aligned results with the last lane's.
    **Throughput** that of the array, one vector per cycle, and one result per `spacing` cycles;
    only the array's inputs can wait.

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
        """Chain array, accumulators and requantisers."""
        m = Module()
        p = self.parameters
        m.submodules.array = array = SystolicArray(parameters=p.array)
        m.submodules.output = output = SharedRequantisers(parameters=p)
        connect_streams(m, self.weights, array.weights)
        lanes = add_accumulators(m, array, p)
        totals = [lane.accumulator.total for lane in lanes]
        if p.compared:
            self._compare(m, array, totals)
        if p.biases:
            self._begin_with_biases(m, lanes)

        # Vectors in the array cannot wait, so room for their totals is reserved here: the last
        # vector of a sum takes a place, and the start of its requantisation frees it.
        vector = self.vectors.payload
        occupied = Signal(range(p.held + 1))
        allowed = ~vector.tag.done | (occupied != p.held)
        accepts = self.vectors.valid & self.vectors.ready & vector.tag.done
        m.d.sync += occupied.eq(occupied + accepts - output.started)
        tag = data.View(p.tag_layout, array.vectors.payload.tag)
        m.d.comb += [
            array.vectors.valid.eq(self.vectors.valid & allowed),
            self.vectors.ready.eq(array.vectors.ready & allowed),
            *(
                array.vectors.payload[name].eq(vector[name])
                for name in array.vectors.payload.shape().members
                if name != "tag"
            ),
            *(tag[name].eq(vector.tag[name]) for name in p.tag_layout.members),
            output.accepted.valid.eq(accepts),
            *(output.accepted.header[name].eq(vector.tag[name]) for name in p.total_layout.members),
        ]

        # A total is valid one cycle after its last sum.
        first = array.lanes[0]
        m.d.sync += output.ended.eq(first.valid & data.View(p.tag_layout, first.tag).done)
        m.d.comb += [
            *(port.eq(total) for port, total in zip(output.totals, totals, strict=True)),
            self.scales.ready.eq(1),
            output.scales.eq(self.scales.payload),
            output.scales_valid.eq(self.scales.valid),
            self.coming.eq(output.coming),
            self.lanes.eq(output.lanes),
            self.results.eq(output.results),
        ]
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
