"""What the parts of LAD's tile share: dimensions and payloads."""

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
"""Vector units of the attention score module."""


@parameter_object
class LadTileParameters(Parameters):
    """Dimensions of a tile.

    Parameters
    ----------
    heads : int
        Head-samples in the memory outside: heads, times samples of a batch.
    eas : AttentionScoreModuleParameters
        Stage 2, with the vector units of all modules and the dimensions of stage 3.
    md : ModeDiscrepancyModuleParameters
        Stage 5; of the same vector units, capacity and intervals.
    ac : AttentionComputationModuleParameters
        Stage 6; of the same vector units.
    linear : LinearModuleParameters
        Linear layers, on the vector units of all three modules.
    sfm : SpecialFunctionModuleParameters
        Norms, rotary embedding, SiLU and sums, on the first of them.
    waiting : int
        Active positions whose keys and values wait on chip for the last stage.
    prefetched : int
        Active positions of earlier steps that are fetched ahead and wait on chip; 0: none, or 2 at
        least.
    shared : int
        Query heads that share a key/value head: as many steps of such a group follow each other,
        in the order of their heads, and a position that several need is fetched once; a divisor of
        the head-samples. Above 1 only with `prefetched`.
    kept : int
        Positions that wait on chip for the group's following heads; 0 exactly without any.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
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
        # Linear layers use what the pipeline has, and nothing of their own.
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
        # A bit for each position of each head, twice, says who is fetched ahead.
        records = self.heads << self.group_shape.width + 1 if self.prefetched else 0
        rule = f"groups of all heads' records must be at most {LARGEST_DEPTH}"
        require(records <= LARGEST_DEPTH, rule, records)
        md, recent = self.md, self.recent
        require(md.table == self.table, "md.table must be that of eas.apid", md.table)
        same = md.capacity == self.capacity
        require(same, "md.capacity must be that of eas.apid", md.capacity)
        # The last key that is fetched is the newest but one.
        require(recent >= 2, "eas.apid.recent must be at least 2", recent)
        room = self.ac.updates * self.ac.lanes >= self.capacity
        require(room, "ac.updates must hold a third of eas.apid.capacity", self.ac.updates)

    @property
    def apid(self) -> ActivePositionModuleParameters:
        """Stage 3."""
        return self.eas.apid

    @property
    def vector(self) -> VectorProcessingUnitParameters:
        """The vector units."""
        return self.eas.vector

    @property
    def table(self) -> IntervalTable:
        """The intervals."""
        return self.apid.table

    @property
    def capacity(self) -> int:
        """Positions of a head at most."""
        return self.apid.capacity

    @property
    def recent(self) -> int:
        """Latest positions, which are in no cache."""
        return self.apid.recent

    @property
    def head_shape(self) -> Any:
        """Shape of a head-sample's number."""
        return unsigned(max((self.heads - 1).bit_length(), 1))

    @property
    def length_shape(self) -> Any:
        """Shape of a number of positions."""
        return unsigned(self.capacity.bit_length())

    @property
    def group_shape(self) -> Any:
        """Shape of a group's number."""
        return unsigned(max((self.apid.groups - 1).bit_length(), 1))

    @property
    def step_layout(self) -> data.StructLayout:
        """Payload of the stream of steps."""
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
        """Payload of the stream of new keys and values."""
        vector = self.vector.vector_layout
        place = {"head": self.head_shape, "position": self.apid.position_shape}
        return data.StructLayout(place | {"key": vector, "value": vector})

    @property
    def rows_layout(self) -> data.StructLayout:
        """Payload of the stream of requests for G: of a head's positions below `length`."""
        return data.StructLayout({"head": self.head_shape, "length": self.length_shape})

    @property
    def place_layout(self) -> data.StructLayout:
        """Payload of the streams of requests for what belongs to a position."""
        return data.StructLayout({"head": self.head_shape, "position": self.apid.position_shape})

    @property
    def asked_layout(self) -> data.StructLayout:
        """Payload of the stream of a step's active positions, the `last` being its newest."""
        return data.StructLayout(dict(self.place_layout.members) | {"last": 1})

    @property
    def listed_layout(self) -> data.StructLayout:
        """Of a list of positions: the next one, or nothing because the list `ends`."""
        return data.StructLayout({"position": self.apid.position_shape, "ends": 1})

    @property
    def record_layout(self) -> data.StructLayout:
        """Which positions of a group were active in a step."""
        place = {"head": self.head_shape, "group": self.group_shape}
        return data.StructLayout(place | {"active": self.apid.lanes, "last": 1, "enable": 1})

    @property
    def key_layout(self) -> data.StructLayout:
        """Payload of the stream of keys."""
        return data.StructLayout({"key": self.vector.vector_layout, "norm": FP16})

    @property
    def active_layout(self) -> data.StructLayout:
        """Payload of the stream of active positions."""
        vector = self.vector.vector_layout
        return data.StructLayout({"key": vector, "value": vector})

    @property
    def tally_layout(self) -> data.StructLayout:
        """Payload of the stream of active positions' counters as they were."""
        return data.StructLayout({"counters": self.md.counters_layout})

    @property
    def head_layout(self) -> data.StructLayout:
        """Payload of the stream of requests for caches."""
        return data.StructLayout({"head": self.head_shape})

    @property
    def centre_layout(self) -> data.StructLayout:
        """Payload of the stream of new positions' part of G."""
        return data.StructLayout(
            {"head": self.head_shape, "position": self.apid.position_shape}
            | {"centre": self.eas.position_bits, "norm": FP16, "ratio": FP16}
        )

    @property
    def marks_layout(self) -> data.StructLayout:
        """Payload of the stream of modes and counts of a group behind a step."""
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
        """Payload of the stream of an active position's counters behind a step."""
        place = {"head": self.head_shape, "position": self.apid.position_shape}
        return data.StructLayout(place | {"counters": self.md.counters_layout})

    @property
    def column_layout(self) -> data.StructLayout:
        """Payload of the stream of a head's caches behind a step."""
        return data.StructLayout({"head": self.head_shape, "word": self.ac.word_layout, "last": 1})

    @property
    def output_layout(self) -> data.StructLayout:
        """Payload of the stream of outputs."""
        vector = self.vector.vector_layout
        return data.StructLayout({"head": self.head_shape, "values": vector, "not_positive": 1})
