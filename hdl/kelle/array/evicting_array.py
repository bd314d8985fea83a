"""The systolic array with its accumulators and the systolic evictor beside its rows.

Section 5.3 and Figure 11 (c, d) of the paper: in the cycle after row i's attention score is
finished, row i of the evictor takes it in, so that the victim is known one cycle after the last
score, and the array never waits for the search.
"""

from dataclasses import field
from typing import Any

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.kelle.array.output_stage import OutputStageParameters, add_output_stage
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
        """What accompanies a vector: what to do with its sums, and with its results."""
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
        """What a lane's requantiser needs."""
        return data.StructLayout({"scale": 16, "shift": 6})

    @property
    def slot_layout(self) -> data.StructLayout:
        """What the evictor's row needs besides the score."""
        members = dict(self.evictor.lane_layout.members)
        del members["score"]
        return data.StructLayout(members)

    @property
    def result_layout(self) -> data.StructLayout:
        """What a lane delivers."""
        index = self.accumulator.index_width
        return data.StructLayout({"value": signed(SCORE_WIDTH), "index": index, "valid": 1})


class EvictingArray(Unit):
    """Multiply vectors by stationary tiles, finish the sums, and find the victim among the scores.

    A vector's `tag` says what to do with its sums: `step` adds them to accumulator `index` (`first`
    from zero, `high` 256-fold), `done` makes the total a result, and `score` gives it to the
    evictor as the wavefront `wavefront`. Key tiles are transposed, so that row i's result is the
    score of the token in row i; head sizes above `rows` are channel tiles, and 16-bit keys two byte
    passes, of which the last is `done`.

    **Latency** lane i's result is there `latency` + i cycles after the vector's acceptance, and row
    i of the evictor takes it in that cycle. The victim is there one cycle after the bottom lane's
    result. **Throughput** that of the array: one vector a cycle. A vector that ends a search waits
    while `victims` victims are in flight or waiting, and nothing else ever does.

    **Numerics** results are the exact products, requantised once; the evictor's as there.

    Parameters
    ----------
    parameters : EvictingArrayParameters
        Dimensions.

    Members
    -------
    vectors : In(stream)
        As the array's, with the tag of `EvictingArrayParameters.tag_layout`.
    weights : In(stream)
        As the array's.
    scales : In(ArrayLayout(scale, rows))
        For each lane the requantiser's `scale` and `shift`; sampled `stages` cycles before the
        lane's result.
    slots : In(ArrayLayout(slot, rows))
        For each row the stored `importance`, `valid`, `protect` of its slot, in the cycle of the
        lane's result.
    results : Out(ArrayLayout(result, rows))
        For each lane: `value`, the vector's `index`, and `valid`.
    updates, victims : Out
        As the evictor's.

    Raises
    ------
    ValueError
        By `EvictingArrayParameters`.
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

    def elaborate(self, platform: Any) -> Module:
        """Chain array, accumulators, requantisers and evictor, lane by lane."""
        m = Module()
        p = self.parameters
        m.submodules.array = array = SystolicArray(parameters=p.array)
        m.submodules.evictor = evictor = SystolicEvictor(parameters=p.evictor)

        # Room for a victim is given out here, since what is in the array cannot wait.
        # Credits: one is taken when a search's last vector enters, and returned with the victim.
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

        # Lane 0's tag goes along with the sum through accumulator and requantiser, and then from
        # lane to lane.
        tag = data.View(p.tag_layout, array.lanes[0].tag)
        done = array.lanes[0].valid & tag.done
        finished = delay_line(m, tag, 1 + p.stages, name="tag")[-1]
        valid = delay_line(m, done, 1 + p.stages, name="valid", reset=True)[-1]
        m.d.comb += [
            evictor.wavefronts.payload.eq(finished.wavefront),
            evictor.wavefronts.valid.eq(valid & finished.score),
        ]

        # From lane to lane index and valid take a cycle, as sums do.
        index = finished.step.index
        for i, lane in enumerate(add_output_stage(m, array, p)):
            requantiser = lane.requantiser
            m.d.comb += [
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
