"""Dimensions and payloads of LAD's mode discrepancy (MD) module."""

from typing import Annotated

from amaranth.hdl import Shape, ShapeLike, unsigned
from amaranth.lib import data

from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.fp16 import FP16
from hdl.lad.interval_table import COUNT_BITS, FIVE, TABLES, IntervalTable
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from hdl.parameters import Named, Parameters, Range, parameter_object, require


@parameter_object
class ModeDiscrepancyModuleParameters(Parameters):
    """Dimensions and pipeline stages of a mode discrepancy module.

    `docs/lad/md/mode_discrepancy_module.md` lists the clock that the default stages reach.

    Parameters
    ----------
    vector : VectorProcessingUnitParameters
        Dimensions of the vector units; each lane has one.
    lanes : int
        Active positions processed per cycle.
    slots : int
        Largest number of positions of a step.
    table : IntervalTable
        The intervals and their lines.
    add_stages : int
        Register stages of a subtraction.
    multiply_stages : int
        Register stages of the product of a score and a slope.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    vector: VectorProcessingUnitParameters = VectorProcessingUnitParameters()
    lanes: Annotated[int, Range(1, 8, "positions")] = 2
    slots: Annotated[int, Range(2, 1 << 16, "positions")] = 4096
    table: Annotated[IntervalTable, Named(TABLES)] = FIVE
    add_stages: Annotated[int, Range(1, 4, "stages")] = 3
    multiply_stages: Annotated[int, Range(1, 4, "stages")] = 2

    def __post_init__(self) -> None:
        """Check the type of the table."""
        super().__post_init__()
        known = isinstance(self.table, IntervalTable)
        require(known, "table must be an IntervalTable", self.table)

    @property
    def in_flight(self) -> int:
        """Transfers in flight between a key and the use of its score, at one transfer per cycle."""
        return self.vector.scalar_latency + 3

    @property
    def update_latency(self) -> int:
        """Cycles from a score to the position's state after the step."""
        return self.add_stages + 3

    @property
    def coefficient_latency(self) -> int:
        """Cycles from a score to the position's coefficients."""
        return self.update_latency + self.add_stages + self.multiply_stages

    @property
    def counters_layout(self) -> data.ArrayLayout:
        """Counters of a position: in how many steps its score was in each interval."""
        return data.ArrayLayout(COUNT_BITS, self.table.intervals)

    @property
    def position_shape(self) -> Shape:
        """Shape of a position's index."""
        return unsigned((self.slots - 1).bit_length())

    @property
    def step_layout(self) -> data.StructLayout:
        """Payload of `steps`."""
        return data.StructLayout({"query": self.vector.vector_layout, "maximum": FP16})

    @property
    def mark_layout(self) -> data.StructLayout:
        """State of an active position: all that accompanies its key."""
        return data.StructLayout(
            {
                "position": self.position_shape,
                "mode": MODE_BITS,
                "count": COUNT_BITS,
                "counters": self.counters_layout,
                "recent": 1,
                "graduates": 1,
            }
        )

    @property
    def side_layout(self) -> data.StructLayout:
        """Side information of a transfer, held until its scores are valid."""
        return data.StructLayout(
            {
                "marks": data.ArrayLayout(self.mark_layout, self.lanes),
                "present": self.lanes,
                "last": 1,
                "maximum": FP16,
            }
        )

    @property
    def active_layout(self) -> data.StructLayout:
        """Payload of `active`."""
        return data.StructLayout(
            {
                "keys": data.ArrayLayout(self.vector.vector_layout, self.lanes),
                "marks": data.ArrayLayout(self.mark_layout, self.lanes),
                "present": self.lanes,
                "last": 1,
            }
        )

    @property
    def coefficient_layout(self) -> data.StructLayout:
        """Coefficients of a position for the AC module."""
        return data.StructLayout({"alpha_score": FP16, "alpha": FP16, "beta": FP16, "update": 1})

    @property
    def update_layout(self) -> data.StructLayout:
        """State of a position after the step."""
        return data.StructLayout(
            {
                "position": self.position_shape,
                "mode": MODE_BITS,
                "count": COUNT_BITS,
                "counters": self.counters_layout,
                "update": 1,
            }
        )

    def lanes_layout(self, layout: ShapeLike) -> data.StructLayout:
        """Payload of a stream with one value per lane."""
        return data.StructLayout(
            {"lanes": data.ArrayLayout(layout, self.lanes), "present": self.lanes, "last": 1}
        )
