"""Dimensions of VEDA's accelerator, and what follows from them."""

from dataclasses import field

from hdl.parameters import parameter_object, require, require_power_of_two, require_range
from hdl.veda.array.array_parameters import FlexiblePeArrayParameters
from hdl.veda.encodings import PassKind
from hdl.veda.functions.layernorm_parameters import ElementSerialLayernormParameters
from hdl.veda.functions.softmax_parameters import ElementSerialSoftmaxParameters
from hdl.veda.functions.special_function_unit import SpecialFunctionUnitParameters
from hdl.veda.voting.vote_threshold import VoteThresholdParameters
from hdl.veda.voting.voting_engine import VotingEngineParameters


@parameter_object
class VedaDimensions:
    """Dimensions of the accelerator.

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
    hidden_size : int
        Elements of the hidden state: 2 to 65536, a multiple of `copies`.
    feed_forward_size : int
        Elements between the feed-forward layer's matrices: a multiple of all arrays' width. A
        narrower layer is padded with columns of zeros.
    positions : int
        Positions that have angles: a power of two, 2 to 65536.
    block : int
        Tokens of a prompt that go through a layer together, each line of its matrices being fetched
        once for all of them: 1 to 64, at most `capacity`. With 1 there is no weight buffer.

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
    hidden_size: int = 4096
    feed_forward_size: int = 11008
    positions: int = 4096
    block: int = 1

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
        require_range("hidden_size", self.hidden_size, 2, 1 << 16)
        require(
            self.hidden_size % self.copies == 0,
            f"hidden_size must be a multiple of copies {self.copies}",
            self.hidden_size,
        )
        require_range("feed_forward_size", self.feed_forward_size, 1, 1 << 16)
        require(
            self.feed_forward_size % self.row == 0,
            f"feed_forward_size must be a multiple of all arrays' width {self.row}",
            self.feed_forward_size,
        )
        require_power_of_two("positions", self.positions, 2, 1 << 16)
        require_range("block", self.block, 1, min(64, self.capacity))

    @property
    def row(self) -> int:
        """Elements of all arrays: a row of results, or a line of every channel."""
        return self.copies * self.array.width

    @property
    def projected_rows(self) -> int:
        """Rows of keys, values and queries."""
        return 2 * self.kv_rounds + self.rounds

    @property
    def gated_rows(self) -> int:
        """Rows of gates and ups."""
        return 2 * self.feed_forward_size // self.row

    @property
    def attended_slices(self) -> int:
        """Vectors of an array's width that the heads' outputs are."""
        return self.rounds * self.copies

    @property
    def activated_slices(self) -> int:
        """Vectors of an array's width between the feed-forward layer's matrices."""
        return self.feed_forward_size // self.array.width

    @property
    def slices(self) -> int:
        """Vectors of an array's width that a block's matrices of inner products meet, at most."""
        # A memory has at least two words.
        return max(2, self.block * max(self.attended_slices, self.activated_slices))

    @property
    def queries(self) -> int:
        """Turns of a block's queries, at most."""
        return max(2, self.block * self.rounds)

    @property
    def sums(self) -> int:
        """Elements of the hidden state that an array makes."""
        return self.hidden_size // self.copies

    @property
    def beats(self) -> dict[PassKind, int]:
        """Lines a channel of a layer's matrices, in the order of the program."""
        return {
            PassKind.QUERY_KEY_VALUE: self.projected_rows * self.hidden_size,
            PassKind.OUTPUT_PROJECTION: self.attended_slices * self.sums,
            PassKind.GATE_UP: self.gated_rows * self.hidden_size,
            PassKind.DOWN: self.activated_slices * self.sums,
        }

    @property
    def segment_lines(self) -> int:
        """Lines a channel that a token needs before the next token uses them again, at most."""
        # A row of outer products, or a block of as many outputs as there are partial sums.
        slices = max(self.attended_slices, self.activated_slices)
        return max(self.hidden_size, slices * min(self.array.partial_sums, self.sums))

    @property
    def state_elements(self) -> int:
        """Elements of the hidden states of a block."""
        return self.block * self.hidden_size

    @property
    def token_shape(self) -> range:
        """Shape of a token's number in its block."""
        return range(max(self.block, 2))

    @property
    def functions(self) -> SpecialFunctionUnitParameters:
        """Dimensions of the special function unit.

        Its divider is a pipelined one: the down projection waits for the last row of gates and ups.
        """
        return SpecialFunctionUnitParameters(
            lanes=self.lanes,
            capacity=self.capacity,
            tile=self.tile,
            heads=self.group,
            width=self.hidden_size,
            # One vector is normalised while the next is reduced; of one token there is no next.
            vectors=min(self.block, 2),
            divide_digits=0,
        )

    @property
    def norm(self) -> ElementSerialLayernormParameters:
        """Dimensions of the RMSNorm before the projections, and before gate and up."""
        return self.functions.layernorm

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
        """Times that `lanes` heads are taken, until all have been taken."""
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
        return self.functions.softmax

    @property
    def voting(self) -> VotingEngineParameters:
        """Dimensions of the voting engine."""
        return VotingEngineParameters(
            threshold=VoteThresholdParameters(capacity=self.capacity),
            heads=self.heads,
            lanes=self.lanes,
            # Which tokens vote is in the instructions.
            reserved=0,
        )

    def lane(self, head_round: int, channel: int) -> int:
        """Return the number of a channel's head in a round, which may be one too many."""
        return head_round * self.lanes + channel // self.lines

    def kv_head(self, head_round: int, channel: int) -> int:
        """Return whose keys a channel reads in a round; a lane without a head takes the last's."""
        # What it makes of them is never used, but their address must be a legal one.
        head = min(self.lane(head_round, channel), self.heads - 1)
        return head // (self.heads // self.kv_heads)
