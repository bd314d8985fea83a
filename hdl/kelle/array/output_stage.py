"""Output stage of an array: one accumulator per lane, and requantisers.

Section 5.2 of the paper. `EvictingArray` and `MatrixUnit` share it, and with it the tags of
vectors and the latency of results.
"""

from dataclasses import dataclass
from typing import Annotated

from amaranth.hdl import Module
from amaranth.lib import data

from hdl.kelle.array.systolic_array import Moving, SystolicArray, SystolicArrayParameters
from hdl.kelle.array.tile_accumulator import TileAccumulator, TileAccumulatorParameters
from hdl.parameters import As, Parameters, Range, parameter_object


@parameter_object
class OutputStageParameters(Parameters):
    """Dimensions of an array with accumulators and requantisers; subclasses add a `tag_layout`.

    Parameters
    ----------
    rows, bands : int
        As in `SystolicArrayParameters`.
    vectors : int
        Vectors whose results accumulate concurrently, as in `TileAccumulatorParameters`.
    stages : int
        Latency of a requantiser in cycles.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    rows: Annotated[int, As(SystolicArrayParameters)] = 32
    bands: Annotated[int, As(SystolicArrayParameters)] = 4
    vectors: Annotated[int, As(TileAccumulatorParameters)] = 16
    stages: Annotated[int, Range(1, 8, "cycles")] = 5

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        # Checks rows, bands and vectors.
        _ = self.array, self.accumulator

    @property
    def tag_layout(self) -> data.StructLayout:
        """Tag of a vector: `step` for its sums, `done` if they are complete, and further fields."""
        raise NotImplementedError

    @property
    def moving(self) -> Moving:
        """Form of the moving operand."""
        return Moving.WIDE

    @property
    def accumulator(self) -> TileAccumulatorParameters:
        """Dimensions of the accumulators."""
        array = SystolicArrayParameters(rows=self.rows, bands=self.bands, moving=self.moving)
        sum_width = array.sum_shape.width
        return TileAccumulatorParameters(sum_width=sum_width, vectors=self.vectors)

    @property
    def array(self) -> SystolicArrayParameters:
        """Dimensions of the array."""
        return SystolicArrayParameters(
            rows=self.rows,
            bands=self.bands,
            moving=self.moving,
            tag_width=self.tag_layout.size,
        )

    @property
    def latency(self) -> int:
        """Cycles from a vector's acceptance to its result at lane 0; lane i follows i later."""
        return self.array.latency + 1 + self.stages

    @property
    def vector_layout(self) -> data.StructLayout:
        """The array's vector, with the fields of its tag."""
        members = dict(self.array.vector_layout.members)
        return data.StructLayout(members | {"tag": self.tag_layout})


@dataclass(frozen=True)
class OutputLane:
    """The accumulator of a lane, and the tag at its input in the next cycle."""

    accumulator: TileAccumulator
    next_tag: data.View


def add_accumulators(m: Module, array: SystolicArray, p: OutputStageParameters) -> list[OutputLane]:
    """Connect an accumulator to each lane of an array.

    Returns
    -------
    list[OutputLane]
        All lanes. The caller drives `bias` of each accumulator that has one.
    """
    lanes = []
    next_tag = array.next_tag
    for i, lane in enumerate(array.lanes):
        accumulator = TileAccumulator(parameters=p.accumulator)
        coming = data.View(p.tag_layout, next_tag)
        m.submodules[f"accumulator_{i}"] = accumulator
        m.d.comb += [
            accumulator.next_index.eq(coming.step.index),
            accumulator.step.eq(data.View(p.tag_layout, lane.tag).step),
            accumulator.sum.eq(lane.sum),
            accumulator.valid.eq(lane.valid),
        ]
        # Tags move down one lane per cycle: a lane's next tag is the current tag of the lane above.
        lanes.append(OutputLane(accumulator, coming))
        next_tag = lane.tag
    return lanes
