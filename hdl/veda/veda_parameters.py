"""Dimensions of VEDA's accelerator, and what its streams carry."""

from dataclasses import dataclass, field

from amaranth.lib import data, enum
from amaranth.utils import ceil_log2

from hdl.arith.float_format import BINARY16
from hdl.parameters import require, require_power_of_two, require_range
from hdl.veda.array_parameters import ArrayMode, FlexiblePeArrayParameters
from hdl.veda.softmax_parameters import ElementSerialSoftmaxParameters
from hdl.veda.vote_threshold import VoteThresholdParameters
from hdl.veda.voting_engine import VotingEngineParameters


class SlotState(enum.Enum, shape=2):
    """Where the next token of a layer goes."""

    APPEND = 0
    """Behind the tokens that there are."""

    WAITING = 1
    """Not known before the votes are counted."""

    VICTIM = 2
    """Into the victim's slot."""


@dataclass(frozen=True, kw_only=True)
class VedaParameters:
    """Dimensions of the accelerator; they also drive its golden model and its testbench.

    A head is as wide as the array, or as wide as a plane: then each plane has a head of its own.
    `lanes` heads are worked on at a time, in lock-step.

    Parameters
    ----------
    array : FlexiblePeArrayParameters
        Dimensions of an array.
    copies : int
        Arrays, each on other heads, 1 to 8.
    head_size : int
        Elements of a query: an array's width, or a plane's.
    heads : int
        Query heads of a layer, 1 to 128.
    kv_heads : int
        Heads of keys and values; divides `heads`.
    layers : int
        Layers in the slot table, 2 to 256.
    capacity : int
        Tokens that a layer can cache: a power of two, 4 to 4096.
    tile : int
        Scores of a tile of the softmax, as in `ElementSerialSoftmaxParameters`.
    group : int
        Heads a lane whose scores are computed before their values are read, 1 to 64.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    array: FlexiblePeArrayParameters = field(default_factory=FlexiblePeArrayParameters)
    copies: int = 1
    head_size: int = 128
    heads: int = 32
    kv_heads: int = 32
    layers: int = 32
    capacity: int = 4096
    tile: int = 32
    group: int = 8

    def __post_init__(self) -> None:
        """Check every rule."""
        require_range("copies", self.copies, 1, 8)
        widths = (self.array.width, self.array.plane_width)
        require(
            self.head_size in widths,
            f"head_size must be the array's width {widths[0]} or a plane's {widths[1]}",
            self.head_size,
        )
        require_range("heads", self.heads, 1, 128)
        require_range("kv_heads", self.kv_heads, 1, self.heads)
        require(
            self.heads % self.kv_heads == 0,
            f"kv_heads must divide heads {self.heads}",
            self.kv_heads,
        )
        require_range("layers", self.layers, 2, 256)
        require_power_of_two("capacity", self.capacity, 4, 4096)
        require_power_of_two("tile", self.tile, 2, 64)
        require_range("group", self.group, 1, 64)

    @property
    def split(self) -> bool:
        """Whether each plane has a head of its own."""
        return self.head_size < self.array.width

    @property
    def array_lanes(self) -> int:
        """Heads that one array works on at a time."""
        return self.array.planes if self.split else 1

    @property
    def lanes(self) -> int:
        """Heads that all arrays work on at a time."""
        return self.copies * self.array_lanes

    @property
    def channels(self) -> int:
        """Memory channels: one a plane."""
        return self.copies * self.array.planes

    @property
    def rounds(self) -> int:
        """Times that `lanes` heads are taken, until all have had their turn."""
        return -(-self.heads // self.lanes)

    @property
    def kv_rounds(self) -> int:
        """Beats in which all key or value heads of a token are written."""
        return -(-self.kv_heads // self.lanes)

    @property
    def lines(self) -> int:
        """Memory lines of a key or value."""
        return 1 if self.split else self.array.planes

    @property
    def softmax(self) -> ElementSerialSoftmaxParameters:
        """Dimensions of a lane's softmax."""
        return ElementSerialSoftmaxParameters(
            capacity=self.capacity, tile=self.tile, heads=self.group
        )

    @property
    def voting(self) -> VotingEngineParameters:
        """Dimensions of the voting engine."""
        return VotingEngineParameters(
            threshold=VoteThresholdParameters(capacity=self.capacity),
            heads=self.heads,
            lanes=self.lanes,
            reserved=0,
        )

    def lane(self, turn: int, channel: int) -> int:
        """Return the number of a channel's head in a round, which may be one too many."""
        return turn * self.lanes + channel // self.lines

    def kv_head(self, turn: int, channel: int) -> int:
        """Return whose keys a channel reads in a round; a lane without a head takes the last's."""
        head = min(self.lane(turn, channel), self.heads - 1)
        return head // (self.heads // self.kv_heads)

    @property
    def slot_bits(self) -> int:
        """Bits of a slot."""
        return ceil_log2(self.capacity)

    @property
    def layer_bits(self) -> int:
        """Bits of a layer's number."""
        return ceil_log2(self.layers)

    @property
    def address_layout(self) -> data.StructLayout:
        """Address of a line of the cache: nothing is added to form it."""
        return data.StructLayout(
            {
                "part": ceil_log2(self.lines),
                "slot": self.slot_bits,
                "value": 1,
                "kv_head": ceil_log2(self.kv_heads),
                "layer": self.layer_bits,
            }
        )

    @property
    def addresses_layout(self) -> data.ArrayLayout:
        """One line's address for each channel."""
        return data.ArrayLayout(self.address_layout, self.channels)

    @property
    def beat_layout(self) -> data.ArrayLayout:
        """A line of each channel, which is a row of each array."""
        return data.ArrayLayout(self.array.vector_layout, self.copies)

    @property
    def length_shape(self) -> range:
        """Shape of a number of cached tokens."""
        return range(self.capacity + 1)

    @property
    def instruction_layout(self) -> data.StructLayout:
        """One token's attention in one layer."""
        return data.StructLayout(
            {
                "layer": self.layer_bits,
                "load": 1,
                "length": self.length_shape,
                "vote": 1,
                "evictions": self.length_shape,
            }
        )

    @property
    def entry_layout(self) -> data.StructLayout:
        """What the slot table knows of a layer."""
        return data.StructLayout(
            {"length": self.length_shape, "slot": self.slot_bits, "state": SlotState}
        )

    @property
    def task_layout(self) -> data.StructLayout:
        """An instruction, with the token's slot and the number of cached tokens with it."""
        return data.StructLayout(
            {
                "layer": self.layer_bits,
                "slot": self.slot_bits,
                "length": self.length_shape,
                "vote": 1,
                "evictions": self.length_shape,
            }
        )

    @property
    def read_layout(self) -> data.StructLayout:
        """A burst: `beats` tokens from the addresses on."""
        return data.StructLayout({"addresses": self.addresses_layout, "beats": self.length_shape})

    @property
    def write_layout(self) -> data.StructLayout:
        """A line for each enabled channel."""
        return data.StructLayout(
            {
                "addresses": self.addresses_layout,
                "enables": self.channels,
                "words": self.beat_layout,
            }
        )

    @property
    def pass_layout(self) -> data.StructLayout:
        """What the arrays do with a burst: all scores, or the output, of a head a lane."""
        return data.StructLayout({"mode": ArrayMode, "beats": self.length_shape, "vote": 1})

    @property
    def eviction_layout(self) -> data.StructLayout:
        """Who leaves a layer."""
        return data.StructLayout({"layer": self.layer_bits, "slot": self.slot_bits})

    @property
    def lanes_layout(self) -> data.ArrayLayout:
        """One FP16 number for each lane."""
        return data.ArrayLayout(BINARY16.layout, self.lanes)

    @property
    def scalar_layout(self) -> data.StructLayout:
        """One probability for each lane."""
        return self.voting.beat_layout
