"""The systolic array with its accumulators and the systolic evictor next to its rows.

This is the stand-alone box of the figure; the accelerator does not contain it. There, the array and
its accumulators are in `MatrixUnit`, and the evictor is in `EvictionController`, next to the table
that holds the state of all slots: the evictor has one tile of slots, and the figure does not show
where those of all tiles, heads and layers are stored.

Section 5.3 and Figure 11 (c, d) of the paper: row i of the evictor samples the attention score of
row i in the cycle after the score is complete. The victim is therefore available one cycle after
the last score, and the array never waits for the search.
"""

from dataclasses import field

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.arith.requantiser import Requantiser
from hdl.kelle.array.output_stage import OutputStageParameters, add_accumulators
from hdl.kelle.array.systolic_array import SystolicArray
from hdl.kelle.eviction.systolic_evictor import (
    ScoreSource,
    SystolicEvictor,
    SystolicEvictorParameters,
)
from hdl.parameters import parameter_object, require
from hdl.stream.connect import connect_streams
from hdl.unit import Unit

SCORE_WIDTH = 16
"""Bits of a result."""


@parameter_object
class EvictingArrayParameters(OutputStageParameters):
    """Dimensions of an array with its evictor; they also drive golden model and testbench.

    Parameters
    ----------
    rows, bands, vectors, stages : int
        As in `OutputStageParameters`.
    evictor : SystolicEvictorParameters
        The evictor; it takes raw scores of 16 bits and has the array's rows.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    evictor: SystolicEvictorParameters = field(default_factory=SystolicEvictorParameters)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        evictor = self.evictor
        rule = f"the evictor's rows must be the array's {self.rows}"
        require(evictor.rows == self.rows, rule, evictor.rows)
        rule = f"the evictor's input_width must be {SCORE_WIDTH}"
        require(evictor.input_width == SCORE_WIDTH, rule, evictor.input_width)
        raw = evictor.source is ScoreSource.RAW
        require(raw, "the evictor's source must be raw scores", evictor.source)

    @property
    def tag_layout(self) -> data.StructLayout:
        """Tag of a vector: instructions for its sums (`step`, `done`) and results (`score`)."""
        return data.StructLayout(
            {
                "step": self.accumulator.step_layout,
                "done": 1,
                "score": 1,
                "wavefront": self.evictor.wavefront_layout,
            }
        )

    @property
    def scale_layout(self) -> data.StructLayout:
        """Scale and shift of a lane's requantiser."""
        return data.StructLayout({"scale": 16, "shift": 6})

    @property
    def slot_layout(self) -> data.StructLayout:
        """Inputs of an evictor row other than the score."""
        members = dict(self.evictor.lane_layout.members)
        del members["score"]
        return data.StructLayout(members)

    @property
    def result_layout(self) -> data.StructLayout:
        """Output of a lane: a requantised `value` and the `index` of its vector."""
        index = self.accumulator.index_width
        return data.StructLayout({"value": signed(SCORE_WIDTH), "index": index, "valid": 1})


class EvictingArray(Unit):
    """Multiply vectors by stationary tiles, requantise the sums, and find the victim of the scores.

    The `tag` of a vector controls its sums: `step` adds them to accumulator `index` (`first` starts
    from zero, `high` multiplies by 256), `done` requantises the total to a result, and `score`
    gives the result to the evictor with the header `wavefront`. Key tiles are transposed, so that
    the result of row i is the score of the token in row i. A head size above `rows` takes several
    channel tiles, and 16-bit keys take two byte passes; the last of these has `done`.

    **Latency** lane i's result is valid `latency` + i cycles after the vector's acceptance; row i
    of the evictor samples it in that cycle. The victim is valid one cycle after the bottom lane's
    result. **Throughput** that of the array: one vector per cycle. Only a vector that ends a search
    can wait, while `victims` victims are in flight or waiting.

    **Numerics** results are exact sums, requantised once; importances as in `SystolicEvictor`.

    Parameters
    ----------
    parameters : EvictingArrayParameters
        Dimensions of array, output stage and evictor.

    Members
    -------
    vectors : In(stream)
        As in `SystolicArray`, with the tag of `EvictingArrayParameters.tag_layout`.
    weights : In(stream)
        As in `SystolicArray`.
    scales : In(ArrayLayout(scale, rows))
        For each lane the requantiser's `scale` and `shift`; sampled `stages` cycles before the
        lane's result.
    slots : In(ArrayLayout(slot, rows))
        For each row the stored `importance`, `valid`, `protect` of its slot, in the cycle of the
        lane's result.
    results : Out(ArrayLayout(result, rows))
        For each lane: `value`, the vector's `index`, and `valid`.
    updates, victims : Out
        As in `SystolicEvictor`.

    Raises
    ------
    ValueError
        If `EvictingArrayParameters` rejects a dimension.
    """

    def __init__(self, *, parameters: EvictingArrayParameters) -> None:
        p = self.parameters = parameters
        super().__init__(
            {
                "vectors": In(stream.Signature(p.vector_layout)),
                "weights": In(stream.Signature(p.array.weights_layout)),
                "scales": In(data.ArrayLayout(p.scale_layout, p.rows)),
                "slots": In(data.ArrayLayout(p.slot_layout, p.rows)),
                "results": Out(data.ArrayLayout(p.result_layout, p.rows)),
                "updates": Out(data.ArrayLayout(p.evictor.update_layout, p.rows)),
                "victims": Out(stream.Signature(p.evictor.victim_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Chain array, accumulators, requantisers and evictor, lane by lane."""
        m = Module()
        p = self.parameters
        m.submodules.array = array = SystolicArray(parameters=p.array)
        m.submodules.evictor = evictor = SystolicEvictor(parameters=p.evictor)

        # Vectors in the array cannot wait, so room for a victim is reserved here by credits: the
        # last vector of a search takes a credit, and the transfer of the victim returns it.
        tag = self.vectors.payload.tag
        ends = tag.score & tag.wavefront.last
        in_flight = Signal(range(p.evictor.victims + 1))
        allowed = ~ends | (in_flight != p.evictor.victims)
        starts = self.vectors.valid & self.vectors.ready & ends
        m.d.sync += in_flight.eq(in_flight + starts - (self.victims.valid & self.victims.ready))
        m.d.comb += [
            array.vectors.payload.eq(self.vectors.payload),
            array.vectors.valid.eq(self.vectors.valid & allowed),
            self.vectors.ready.eq(array.vectors.ready & allowed),
        ]
        connect_streams(m, self.weights, array.weights)

        # Lane 0's tag accompanies the sum through accumulator and requantiser; the lanes below
        # receive it one cycle later each.
        tag = data.View(p.tag_layout, array.lanes[0].tag)
        done = array.lanes[0].valid & tag.done
        finished = delay_line(m, tag, 1 + p.stages, name="tag")[-1]
        valid = delay_line(m, done, 1 + p.stages, name="valid", reset=True)[-1]
        m.d.comb += [
            evictor.wavefronts.payload.eq(finished.wavefront),
            evictor.wavefronts.valid.eq(valid & finished.score),
        ]

        # `index` and `valid` move down one lane per cycle, as the sums do.
        index = finished.step.index
        for i, lane in enumerate(add_accumulators(m, array, p)):
            requantiser = Requantiser(width=p.accumulator.width, stages=p.stages)
            m.submodules[f"requantiser_{i}"] = requantiser
            m.d.comb += [
                requantiser.a.eq(lane.accumulator.total),
                requantiser.scale.eq(self.scales[i].scale),
                requantiser.shift.eq(self.scales[i].shift),
                self.results[i].value.eq(requantiser.result),
                self.results[i].index.eq(index),
                self.results[i].valid.eq(valid),
                evictor.lanes[i].score.eq(requantiser.result),
                evictor.lanes[i].importance.eq(self.slots[i].importance),
                evictor.lanes[i].valid.eq(self.slots[i].valid),
                evictor.lanes[i].protect.eq(self.slots[i].protect),
            ]
            index_above, valid_above = index, valid
            index = Signal.like(index_above, name=f"index_{i + 1}", reset_less=True)
            valid = Signal(name=f"lane_valid_{i + 1}")
            m.d.sync += [index.eq(index_above), valid.eq(valid_above)]
        m.d.comb += self.updates.eq(evictor.updates)
        connect_streams(m, evictor.victims, self.victims)
        return m
