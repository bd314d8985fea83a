"""Dimensions and payloads of LAD's tile."""

from typing import Annotated, Any

from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.apid.active_position_module import ActivePositionModuleParameters
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.fp16 import FP16
from hdl.lad.interval_table import IntervalTable
from hdl.lad.linear.linear_module import LinearModuleParameters
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from hdl.memory.memory import LARGEST_DEPTH
from hdl.parameters import Parameters, Range, parameter_object, require

SCORING_UNITS = 2
"""Number of vector units of the EAS module."""


@parameter_object
class LadTileParameters(Parameters):
    """Dimensions of a tile.

    Parameters
    ----------
    heads : int
        Heads in the memory outside: layers, times query heads, times samples of a batch.
    eas : AttentionScoreModuleParameters
        Stage 2; also defines the vector units of all modules, and stage 3.
    md : ModeDiscrepancyModuleParameters
        Stage 5; with the same vector units, capacity and intervals.
    ac : AttentionComputationModuleParameters
        Stage 6; with the same vector units.
    linear : LinearModuleParameters
        Linear layers, on the vector units of all three modules.
    sfm : SpecialFunctionModuleParameters
        Norms, rotary embedding, SiLU and additions, on the first vector unit.
    waiting : int
        Active positions whose keys and values are queued on chip for stage 6.
    prefetched : int
        Active positions of previous steps that are prefetched and queued on chip; 0 for no
        prefetch, otherwise at least 2.
    shared : int
        Query heads per key/value head. The steps of such a group follow each other in the order of
        its heads, and a position that several of them need is fetched once. A divisor of `heads`;
        above 1 only with `prefetched`.
    kept : int
        Positions kept on chip for the next heads of a group; 0 if and only if `shared` is 1.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    heads: Annotated[int, Range(1, 1024, "head-samples")] = 32
    eas: AttentionScoreModuleParameters = AttentionScoreModuleParameters()
    md: ModeDiscrepancyModuleParameters = ModeDiscrepancyModuleParameters()
    ac: AttentionComputationModuleParameters = AttentionComputationModuleParameters()
    linear: LinearModuleParameters = LinearModuleParameters()
    sfm: SpecialFunctionModuleParameters = SpecialFunctionModuleParameters()
    waiting: Annotated[int, Range(4, 1 << 16, "positions")] = 1024
    prefetched: Annotated[int, Range(0, 1 << 16, "positions")] = 0
    shared: Annotated[int, Range(1, 256, "heads")] = 1
    kept: Annotated[int, Range(0, 1 << 16, "positions")] = 0

    def __post_init__(self) -> None:
        """Check the rules between the parameters."""
        super().__post_init__()
        for name in ("md", "ac", "linear", "sfm"):
            part = getattr(self, name)
            require(part.vector == self.vector, f"{name}.vector must be that of eas", part.vector)
        # Linear layers use the vector units of the pipeline, and none of their own.
        units = SCORING_UNITS + self.md.lanes + self.ac.lanes
        all_work = self.linear.units == units
        require(all_work, f"linear.units must be those of all modules, {units}", self.linear.units)
        require(self.prefetched != 1, "prefetched must be 0 or at least 2", self.prefetched)
        whole = self.heads % self.shared == 0
        require(whole, "shared must be a divisor of heads", self.shared)
        alone = self.shared == 1 or self.prefetched > 0
        require(alone, "shared must be 1 without prefetched", self.shared)
        rule = "kept must be at least 1 with shared heads, and 0 without"
        require((self.kept > 0) == (self.shared > 1), rule, self.kept)
        # Two bits per position and head record what to prefetch.
        records = self.heads << self.group_shape.width + 1 if self.prefetched else 0
        rule = f"groups of all heads' records must be at most {LARGEST_DEPTH}"
        require(records <= LARGEST_DEPTH, rule, records)
        md, recent = self.md, self.recent
        require(md.table == self.table, "md.table must be that of eas.apid", md.table)
        same = md.capacity == self.capacity
        require(same, "md.capacity must be that of eas.apid", md.capacity)
        # The last key fetched in stage 1 is the second newest.
        require(recent >= 2, "eas.apid.recent must be at least 2", recent)
        room = self.ac.updates * self.ac.lanes >= self.capacity
        require(room, "ac.updates must hold a third of eas.apid.capacity", self.ac.updates)

    @property
    def apid(self) -> ActivePositionModuleParameters:
        """Dimensions of stage 3."""
        return self.eas.apid

    @property
    def vector(self) -> VectorProcessingUnitParameters:
        """Dimensions of the vector units."""
        return self.eas.vector

    @property
    def table(self) -> IntervalTable:
        """Intervals and lines."""
        return self.apid.table

    @property
    def capacity(self) -> int:
        """Largest number of positions of a head."""
        return self.apid.capacity

    @property
    def recent(self) -> int:
        """Number of latest positions, which are in no intermediate cache."""
        return self.apid.recent

    @property
    def head_shape(self) -> Any:
        """Shape of a head's number."""
        return unsigned(max((self.heads - 1).bit_length(), 1))

    @property
    def length_shape(self) -> Any:
        """Shape of a number of positions."""
        return unsigned(self.capacity.bit_length())

    @property
    def group_shape(self) -> Any:
        """Shape of the number of a group of positions."""
        return unsigned(max((self.apid.groups - 1).bit_length(), 1))

    @property
    def step_layout(self) -> data.StructLayout:
        """Payload of `steps`."""
        vector = self.vector.vector_layout
        return data.StructLayout(
            {
                "head": self.head_shape,
                "length": self.length_shape,
                "query": vector,
                "key": vector,
                "value": vector,
            }
        )

    @property
    def append_layout(self) -> data.StructLayout:
        """Payload of `appends`."""
        vector = self.vector.vector_layout
        place = {"head": self.head_shape, "position": self.apid.position_shape}
        return data.StructLayout(place | {"key": vector, "value": vector})

    @property
    def rows_layout(self) -> data.StructLayout:
        """Payload of `group_requests`: G of a head's positions below `length`."""
        return data.StructLayout({"head": self.head_shape, "length": self.length_shape})

    @property
    def place_layout(self) -> data.StructLayout:
        """Payload of requests for the data of one position."""
        return data.StructLayout({"head": self.head_shape, "position": self.apid.position_shape})

    @property
    def asked_layout(self) -> data.StructLayout:
        """Payload of a step's active positions; `last` with the newest one."""
        return data.StructLayout(dict(self.place_layout.members) | {"last": 1})

    @property
    def listed_layout(self) -> data.StructLayout:
        """Item of a list of positions: a position, or the end of the list if `ends`."""
        return data.StructLayout({"position": self.apid.position_shape, "ends": 1})

    @property
    def record_layout(self) -> data.StructLayout:
        """Record of the active positions of a group in a step."""
        place = {"head": self.head_shape, "group": self.group_shape}
        return data.StructLayout(place | {"active": self.apid.lanes, "last": 1, "enable": 1})

    @property
    def key_layout(self) -> data.StructLayout:
        """Payload of `keys`."""
        return data.StructLayout({"key": self.vector.vector_layout, "norm": FP16})

    @property
    def active_layout(self) -> data.StructLayout:
        """Payload of `active`."""
        vector = self.vector.vector_layout
        return data.StructLayout({"key": vector, "value": vector})

    @property
    def tally_layout(self) -> data.StructLayout:
        """Payload of `tallies`: counters of an active position before the step."""
        return data.StructLayout({"counters": self.md.counters_layout})

    @property
    def head_layout(self) -> data.StructLayout:
        """Payload of `cache_requests`."""
        return data.StructLayout({"head": self.head_shape})

    @property
    def centre_layout(self) -> data.StructLayout:
        """Payload of `centres`."""
        return data.StructLayout(
            {"head": self.head_shape, "position": self.apid.position_shape}
            | {"centre": self.eas.position_bits, "norm": FP16, "ratio": FP16}
        )

    @property
    def marks_layout(self) -> data.StructLayout:
        """Payload of `marks`: modes and counts of a group of positions after a step."""
        members = self.apid.counts_layout.members
        return data.StructLayout(
            {
                "head": self.head_shape,
                "group": self.group_shape,
                "modes": members["modes"],
                "counts": members["counts"],
                "last": 1,
            }
        )

    @property
    def counters_layout(self) -> data.StructLayout:
        """Payload of `counters`: counters of an active position after a step."""
        place = {"head": self.head_shape, "position": self.apid.position_shape}
        return data.StructLayout(place | {"counters": self.md.counters_layout})

    @property
    def column_layout(self) -> data.StructLayout:
        """Payload of `columns`: a head's caches after a step."""
        return data.StructLayout({"head": self.head_shape, "word": self.ac.word_layout, "last": 1})

    @property
    def output_layout(self) -> data.StructLayout:
        """Payload of `outputs`."""
        vector = self.vector.vector_layout
        return data.StructLayout({"head": self.head_shape, "values": vector, "not_positive": 1})
