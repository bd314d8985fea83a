"""Dimensions of LAD: of a tile, of the tiles that share a memory, and of its decoder layers."""

from dataclasses import dataclass
from typing import Annotated

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data

from hdl.arith.float_format import BINARY16
from hdl.lad.ac.ac_parameters import AttentionComputationModuleParameters
from hdl.lad.apid.apid_parameters import ActivePositionModuleParameters
from hdl.lad.eas.eas_parameters import AttentionScoreModuleParameters
from hdl.lad.fp16 import FP16
from hdl.lad.interval_table import IntervalTable
from hdl.lad.linear.linear_module import LinearModuleParameters
from hdl.lad.linear.sum_slices import SumSlicesParameters
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.sfm.sfm_parameters import SpecialFunctionModuleParameters
from hdl.lad.vpu.vector_processing_unit import VectorProcessingUnitParameters
from hdl.memory.memory import LARGEST_DEPTH
from hdl.model_shape import ModelDimensions
from hdl.nonlinear.argmax import ArgmaxParameters
from hdl.parameters import Parameters, Range, parameter_object, require

SCORING_UNITS = 2
"""Number of vector units of the EAS module."""


@parameter_object
class LadTileParameters(Parameters):
    """Dimensions of a tile.

    Parameters
    ----------
    stored_heads : int
        Heads whose data the memory outside holds: layers, times query heads of a layer, times
        samples of a batch.
    eas : AttentionScoreModuleParameters
        Stage 2; also defines the vector units of all modules, and stage 3.
    md : ModeDiscrepancyModuleParameters
        Stage 5; with the same vector units, slots and intervals.
    ac : AttentionComputationModuleParameters
        Stage 6; with the same vector units.
    linear : LinearModuleParameters
        Linear layers, on the vector units of all three modules.
    sfm : SpecialFunctionModuleParameters
        Norms, rotary embedding, SiLU and additions, on the first vector unit.
    waiting : int
        Active positions whose keys and values are queued on chip for stage 6, in whole transfers.
    prefetched : int
        Active positions of previous steps that are prefetched and queued on chip; 0 for no
        prefetch, otherwise at least 2.
    shared : int
        Query heads per key/value head. The steps of such a group follow each other in the order of
        its heads, and a position that several of them need is fetched once. A divisor of
        `stored_heads`; above 1 only with `prefetched`.
    kept : int
        Positions kept on chip for the next heads of a group; 0 if and only if `shared` is 1.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    stored_heads: Annotated[int, Range(1, 1024, "heads")] = 32
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
        whole = self.stored_heads % self.shared == 0
        require(whole, "shared must be a divisor of stored_heads", self.shared)
        alone = self.shared == 1 or self.prefetched > 0
        require(alone, "shared must be 1 without prefetched", self.shared)
        rule = "kept must be at least 1 with shared heads, and 0 without"
        require((self.kept > 0) == (self.shared > 1), rule, self.kept)
        # Two bits per position and head record what to prefetch.
        records = self.stored_heads << self.group_shape.width + 1 if self.prefetched else 0
        rule = f"groups of all heads' records must be at most {LARGEST_DEPTH}"
        require(records <= LARGEST_DEPTH, rule, records)
        md, recent = self.md, self.recent
        require(md.table == self.table, "md.table must be that of eas.apid", md.table)
        same = md.slots == self.slots
        require(same, "md.slots must be that of eas.apid", md.slots)
        # The last key fetched in stage 1 is the second newest.
        require(recent >= 2, "eas.apid.recent must be at least 2", recent)

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
    def slots(self) -> int:
        """Positions that the cache of a head holds."""
        return self.apid.slots

    @property
    def recent(self) -> int:
        """Number of latest positions, which are in no intermediate cache."""
        return self.apid.recent

    @property
    def head_shape(self) -> Shape:
        """Shape of a head's number."""
        return unsigned(max((self.stored_heads - 1).bit_length(), 1))

    @property
    def length_shape(self) -> Shape:
        """Shape of a number of positions."""
        return unsigned(self.slots.bit_length())

    @property
    def group_shape(self) -> Shape:
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
    def group_request_layout(self) -> data.StructLayout:
        """Payload of `group_requests`: G of a head's positions below `length`."""
        return data.StructLayout({"head": self.head_shape, "length": self.length_shape})

    @property
    def row_request_layout(self) -> data.StructLayout:
        """Payload of requests for the data of one position."""
        return data.StructLayout({"head": self.head_shape, "position": self.apid.position_shape})

    @property
    def asked_layout(self) -> data.StructLayout:
        """Payload of a step's active positions; `last` with the newest one."""
        return data.StructLayout(dict(self.row_request_layout.members) | {"last": 1})

    @property
    def listed_layout(self) -> data.StructLayout:
        """Item of a list of positions: a position, or the end of the list if `ends`."""
        return data.StructLayout({"position": self.apid.position_shape, "ends": 1})

    @property
    def wanted_layout(self) -> data.StructLayout:
        """Item of a list of positions with the head whose rows are fetched."""
        return data.StructLayout({"head": self.head_shape} | dict(self.listed_layout.members))

    @property
    def query_layout(self) -> data.StructLayout:
        """The query of a step."""
        return data.StructLayout({"query": self.vector.vector_layout})

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


@parameter_object
class LadTilesParameters(Parameters):
    """Dimensions of several tiles that share a memory.

    Parameters
    ----------
    tile : LadTileParameters
        Dimensions of each tile; its `stored_heads` are those of one tile.
    tiles : int
        Number of tiles.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    tile: LadTileParameters = LadTileParameters()
    tiles: Annotated[int, Range(1, 16, "tiles")] = 6

    @property
    def tile_shape(self) -> Shape:
        """Shape of a tile's number; it has no bits if there is one tile."""
        return unsigned((self.tiles - 1).bit_length())

    def named(self, layout: data.StructLayout) -> data.StructLayout:
        """Return the layout of a tile's payload with the tile's number appended."""
        return data.StructLayout(dict(layout.members) | {"tile": self.tile_shape})

    @property
    def task_layout(self) -> data.StructLayout:
        """Payload of `tasks`: `groups` of the first tile; the next `more` tiles have as many."""
        return data.StructLayout(
            dict(self.tile.linear.task_layout.members) | {"more": self.tile_shape}
        )


@dataclass(frozen=True)
class Areas:
    """First addresses of the areas of the on-chip memory.

    The memory's words are slices of `head_size` FP16 numbers. In each area the slices of all
    samples with one index are adjacent, so that one counter addresses all slices of all samples.

    Members
    -------
    state : int
        Hidden states.
    inputs : int
        Inputs of the next linear layer.
    attended : int
        Attention outputs of all heads, the inputs of the output projection.
    sums : int
        Outputs of the last linear layer.
    factors : int
        Weights of a norm, the same for all samples.
    angles : int
        Cosines of all samples, then their sines.
    end : int
        Number of slices of all areas.
    """

    state: int
    inputs: int
    attended: int
    sums: int
    factors: int
    angles: int
    end: int


@parameter_object
class LadParameters(ModelDimensions, Parameters):
    """Dimensions of an accelerator for decoder layers.

    Parameters
    ----------
    tile : LadTileParameters
        Dimensions of each tile. `tile.vector.head_size` is the `head_size`, `tile.sfm.hidden_size`
        the `hidden_size`, and `tile.slots` the `context_length` of the model.
    tiles : int
        Number of tiles that share the memory.
    layers : int
        Number of decoder layers.
    heads : int
        Query heads per layer.
    kv_heads : int
        Key/value heads per layer, a divisor of `heads`.
    intermediate_size : int
        Elements between the feed-forward matrices, a multiple of the head size.
    batch : int
        Number of samples that pass a layer together.
    periods : int
        Number of parts into which a layer's heads are divided; each part is projected, then
        attended. A divisor of `kv_heads`; the paper's Figure 6 has one part per head.
    epsilon : int
        FP16 code of the norms' epsilon; the default is 1e-5.
    vocabulary_size : int
        Tokens of the vocabulary, the outputs of the LM head after the last layer; 0 for none.

    Raises
    ------
    ValueError
        If a parameter breaks its rule, or the tile has too few heads or too small linear layers;
        the message contains the rule and the value.
    """

    tile: LadTileParameters = LadTileParameters()
    tiles: Annotated[int, Range(1, 16, "tiles")] = 1
    layers: Annotated[int, Range(1, 128, "layers")] = 1
    heads: Annotated[int, Range(1, 256, "heads")] = 32
    kv_heads: Annotated[int, Range(1, "heads", "heads")] = 32
    intermediate_size: Annotated[int, Range(2, 32768, "elements")] = 11008
    batch: Annotated[int, Range(1, "tile.linear.samples", "samples")] = 1
    periods: Annotated[int, Range(1, "kv_heads", "parts")] = 1
    epsilon: Annotated[int, Range(1, 0x7BFF, "FP16 code")] = 0x00A8
    vocabulary_size: Annotated[int, Range(0, 1 << 20, "tokens")] = 0

    def __post_init__(self) -> None:
        """Check the rules between the parameters."""
        super().__post_init__()
        self.require_groups()
        parts = self.kv_heads % self.periods == 0
        require(parts, "periods must be a divisor of kv_heads", self.periods)
        whole = self.intermediate_size % self.head_size == 0
        require(whole, "intermediate_size must be a multiple of head_size", self.intermediate_size)
        tile, linear = self.tile, self.tile.linear
        groups = tile.shared in (1, self.group_size)
        rule = f"tile.shared must be 1 or heads / kv_heads, {self.group_size}"
        require(groups, rule, tile.shared)
        # All heads of a group are in one tile.
        samples = self.layers * self.heads * self.batch
        least = -(-samples // tile.shared // self.tiles) * tile.shared
        rule = f"tile.stored_heads must be at least layers * heads * batch / tiles, {least}"
        require(tile.stored_heads >= least, rule, tile.stored_heads)
        slices = max(self.hidden_slices, self.heads, self.intermediate_slices)
        for name, least in (("slices", slices), ("groups", -(-self.most_row_groups // self.tiles))):
            there = getattr(linear, name)
            require(there >= least, f"tile.linear.{name} must be at least {least}", there)

    @property
    def shared_tiles(self) -> LadTilesParameters:
        """Dimensions of the tiles, which share one memory; unrelated to `tile.shared`."""
        return LadTilesParameters(tile=self.tile, tiles=self.tiles)

    @property
    def head_size(self) -> int:
        """Elements of a query, a key or a value of one head; also of a slice."""
        return self.tile.vector.head_size

    @property
    def hidden_size(self) -> int:
        """Elements of a hidden state."""
        return self.tile.sfm.hidden_size

    @property
    def context_length(self) -> int:
        """Tokens of the longest text: a head's cache has one slot per position."""
        return self.tile.slots

    @property
    def hidden_slices(self) -> int:
        """Slices per hidden state."""
        return self.tile.sfm.slices

    @property
    def intermediate_slices(self) -> int:
        """Slices of the output of `gate_proj`, and of `up_proj`."""
        return self.intermediate_size // self.head_size

    @property
    def projected(self) -> int:
        """Slices of the queries, keys and values of a period."""
        return (self.heads + 2 * self.kv_heads) // self.periods

    @property
    def most_sums(self) -> int:
        """Largest number of slices of a linear layer's output."""
        return max(self.hidden_slices, self.projected, 2 * self.intermediate_slices)

    @property
    def most_row_groups(self) -> int:
        """Largest number of groups of outputs of a linear layer, all tiles together."""
        return -(-self.most_sums * self.head_size // self.tile.linear.units)

    @property
    def pieces(self) -> int:
        """Pieces of the LM head, none larger than the largest other linear layer."""
        return -(-self.vocabulary_size // (self.most_row_groups * self.tile.linear.units))

    @property
    def piece_row_groups(self) -> int:
        """Groups of outputs per piece; rows of the last piece can be no tokens."""
        return -(-self.vocabulary_size // (self.pieces * self.tile.linear.units))

    @property
    def layer_transfers(self) -> int:
        """Transfers of a layer's weights."""
        shapes = [
            *[(self.projected, self.hidden_slices)] * self.periods,
            (self.hidden_slices, self.heads),
            (2 * self.intermediate_slices, self.hidden_slices),
            (self.hidden_slices, self.intermediate_slices),
        ]
        units, size = self.tile.linear.units, self.head_size
        return sum(-(-outputs * size // units) * inputs for outputs, inputs in shapes)

    @property
    def vocabulary_transfers(self) -> int:
        """Transfers of the LM head's weights."""
        return self.pieces * self.piece_row_groups * self.hidden_slices if self.pieces else 0

    @property
    def argmax(self) -> ArgmaxParameters:
        """Dimensions of the argmax over the LM head."""
        return ArgmaxParameters(
            lanes=self.tile.linear.units,
            length=self.vocabulary_size,
            width=BINARY16.width,
            number_format=BINARY16,
            contexts=self.batch,
        )

    @property
    def logits_layout(self) -> data.ArrayLayout:
        """Sums of the LM head for a group of rows and a sample."""
        return data.ArrayLayout(FP16, self.tile.linear.units)

    @property
    def sum_slices(self) -> SumSlicesParameters:
        """Dimensions of the conversion of sums into slices."""
        return SumSlicesParameters(
            units=self.tile.linear.units,
            head_size=self.head_size,
            batch=self.batch,
            groups=self.most_row_groups,
        )

    @property
    def areas(self) -> Areas:
        """Addresses of the areas of the on-chip memory."""
        inputs = self.hidden_slices * self.batch
        attended = inputs + max(self.hidden_slices, self.intermediate_slices) * self.batch
        sums = attended + self.heads * self.batch
        factors = sums + self.most_sums * self.batch
        angles = factors + self.hidden_slices
        return Areas(0, inputs, attended, sums, factors, angles, angles + 2 * self.batch)

    @property
    def address_shape(self) -> Shape:
        """Shape of a slice's address, and of a number of slices."""
        return unsigned(self.areas.end.bit_length())

    @property
    def slice_layout(self) -> data.StructLayout:
        """Payload of `slices`."""
        values = self.tile.vector.vector_layout
        return data.StructLayout(
            {"values": values, "length": self.tile.length_shape}
            | ({"predicts": 1} if self.vocabulary_size else {})
        )

    @property
    def prediction_layout(self) -> data.StructLayout:
        """The predicted token, and its sum in FP16."""
        return data.StructLayout({"token": range(self.vocabulary_size), "sum": FP16})

    @property
    def state_layout(self) -> data.StructLayout:
        """Payload of `states`."""
        values = self.tile.vector.vector_layout
        return data.StructLayout({"values": values, "not_positive": 1})
