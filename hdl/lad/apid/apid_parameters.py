"""Dimensions and payloads of LAD's active position identification (APID) module."""

from typing import Annotated

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data

from hdl.lad.exp_intervals import MODE_BITS
from hdl.lad.fp16 import FP16
from hdl.lad.interval_table import COUNT_BITS, FIVE, TABLES, IntervalTable
from hdl.parameters import Named, Parameters, Range, parameter_object, require


@parameter_object
class ActivePositionModuleParameters(Parameters):
    """Dimensions and pipeline stages of an active position module.

    `docs/lad/apid/active_position_module.md` lists the clock that the default stages reach.

    Parameters
    ----------
    lanes : int
        Positions compared per cycle.
    slots : int
        Largest number of positions of a step.
    recent : int
        Number of latest positions, which are active in every step.
    table : IntervalTable
        The intervals of the scores.
    add_stages : int
        Register stages of the subtraction.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    lanes: Annotated[int, Range(1, 32, "positions")] = 12
    slots: Annotated[int, Range(2, 1 << 16, "positions")] = 4096
    recent: Annotated[int, Range(1, 64, "positions")] = 16
    table: Annotated[IntervalTable, Named(TABLES)] = FIVE
    add_stages: Annotated[int, Range(1, 4, "stages")] = 3

    def __post_init__(self) -> None:
        """Check the type of the table."""
        super().__post_init__()
        known = isinstance(self.table, IntervalTable)
        require(known, "table must be an IntervalTable", self.table)

    @property
    def groups(self) -> int:
        """Transfers of a step of `slots` positions."""
        return -(-self.slots // self.lanes)

    @property
    def position_shape(self) -> Shape:
        """Shape of a position's index."""
        return unsigned((self.slots - 1).bit_length())

    @property
    def step_layout(self) -> data.StructLayout:
        """Payload of `steps`."""
        return data.StructLayout({"length": range(self.slots + 1), "maximum": FP16})

    @property
    def group_layout(self) -> data.StructLayout:
        """Payload of `groups`."""
        return data.StructLayout(
            {
                "scores": data.ArrayLayout(FP16, self.lanes),
                "modes": data.ArrayLayout(MODE_BITS, self.lanes),
                "counts": data.ArrayLayout(COUNT_BITS, self.lanes),
            }
        )

    @property
    def counts_layout(self) -> data.StructLayout:
        """Payload of `counts`."""
        return data.StructLayout(
            {
                "counts": data.ArrayLayout(COUNT_BITS, self.lanes),
                "modes": data.ArrayLayout(MODE_BITS, self.lanes),
                "active": self.lanes,
                "last": 1,
            }
        )

    @property
    def entry_layout(self) -> data.StructLayout:
        """Entry of the active position FIFO: a group that has at least one active position."""
        return data.StructLayout(
            {
                "base": self.position_shape,
                "active": self.lanes,
                "recent": self.lanes,
                "modes": data.ArrayLayout(MODE_BITS, self.lanes),
                "counts": data.ArrayLayout(COUNT_BITS, self.lanes),
                "graduates": 1,
                "last": 1,
            }
        )

    @property
    def position_layout(self) -> data.StructLayout:
        """Payload of `positions`."""
        return data.StructLayout(
            {
                "position": self.position_shape,
                "mode": MODE_BITS,
                "count": COUNT_BITS,
                "recent": 1,
                "graduates": 1,
                "last": 1,
            }
        )
