"""Dimensions and payloads of MEADOW's accelerator."""

from dataclasses import dataclass, replace
from typing import Annotated

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum
from amaranth.utils import ceil_log2

from hdl.meadow.tile.element_parameters import OPERAND, ElementParameters
from hdl.meadow.tile.pipelined_softmax import DISTANCES
from hdl.meadow.tile.tile_parameters import (
    FACTOR,
    HALVES,
    MOST_TILES,
    RESULT,
    RESULT_BYTES,
    TileParameters,
)
from hdl.meadow.wilu.weight_unpacker_parameters import WeightUnpackerParameters
from hdl.memory.burst_port import BurstReadPort, BurstWritePort
from hdl.model_shape import ModelDimensions
from hdl.nonlinear.activation_functions import Activation
from hdl.nonlinear.argmax import ArgmaxParameters
from hdl.nonlinear.layer_norm import LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.parameters import Parameters, PowerOfTwo, Range, option, parameter_object, require

STATE = signed(24)
"""An element of a hidden state; all tokens and layers use the same step."""

NORM_DROP = 8
"""Bits removed from a norm's Q6.10 result to get INT8."""

GATE_DROP = 16
"""Bits removed from the product of a Q6.10 gate and a result of `up_proj` to get INT8."""

MOST_LIFT = STATE.width - RESULT.width
"""Maximum left shift of a result when it is added to the hidden state."""


class MemoryUser(enum.Enum, shape=unsigned(3)):
    """The part that reads or writes words of the activation memory."""

    TILE = 0
    """The tile reads tokens."""
    COMBINER = 1
    """The combiner writes results, and reads the old words at their addresses."""
    NORM = 2
    """The normaliser reads rows of hidden states and writes normalised ones."""
    OUTSIDE = 3
    """External memory loads and stores rows of hidden states."""
    ROWS = 4
    """The tile reads queries, one word each."""


LEAST_UNITS = 8
"""Activation modules of the published accelerator."""


@dataclass(frozen=True)
class Plane:
    """Bits of all elements of the words at the first addresses of the activation memory.

    Members
    -------
    words : int
        Number of words that have these bits.
    low, high : int
        First bit of an element, and the bit after the last one.
    """

    words: int
    low: int
    high: int


@parameter_object
class MeadowParameters(ModelDimensions, Parameters):
    """Dimensions of an accelerator; its golden model and testbench use them too.

    Parameters
    ----------
    hidden_size : int
        Elements of a hidden state: `heads` times the size of a head, and a multiple of `slices`
        times the size of a head.
    heads, kv_heads : int
        Query heads, and key/value heads, which divide them.
    intermediate_size : int
        Elements between the feed-forward matrices: a multiple of `slices` times the size of a head,
        and at most 128 times the size of a head, since a GEMM has at most 128 tiles of outputs.
    lanes : int
        Lanes of the tile, each a TPHS pipeline.
    slices : int
        Processing elements over which the inner dimension of a row is split.
    slots : int
        Tokens that the cache of a key/value head holds; also the `context_length`.
    tokens : int
        Maximum tokens per block.
    probability_bits : int
        Bits of a probability.
    rotary : bool
        Whether queries and keys can be rotated by their positions.
    rope_base : int
        Base of the frequencies of the rotary embedding.
    causal : bool
        Whether programs mask the keys after a token's own position. A flag of each instruction
        selects it, so that the hardware is the same.
    layer_norm : bool
        Whether the norm is layer norm (subtracts the mean, adds a bias) or RMSNorm.
    biases : bool
        Whether linear layers have biases.
    activation : Activation
        Function between the feed-forward matrices.
    gated : bool
        Whether a `gate_proj` matrix computes the input of the activation, whose output multiplies
        the result of `up_proj`; else the activation applies to the result of `up_proj`.
    tile_scales : bool
        Whether each output tile of a linear layer has a scale of its own, or all tiles share one.
    token_exponents : bool
        Whether the INT8 inputs of linear layers have a power of two per token, which follows from
        the row's maximum, or one step for all tokens.
    element : ElementParameters
        Dimensions of every processing element; `multipliers` is the size of a head.
    unpacker : WeightUnpackerParameters
        Dimensions of a weight unpacker.
    unpackers : int
        Weight unpackers, each of which has a port for packets and outputs at most one word per
        cycle; they divide the ``2 * slices`` words of weights that a lane multiplies in a cycle.
    vocabulary_size : int
        Tokens of the vocabulary, the outputs of the LM head.
    words : int
        Addresses of the activation memory, whose words have as many elements as a head. It has
        those words, and those bits of each, that a block needs (`planes`).
    weight_fraction : int
        Fraction bits of a norm's weights.
    address_bits : int
        Bits of an external address.
    shared_multipliers : bool
        Whether products of a lane share multipliers or have none, as in `TileParameters`, for an
        FPGA with fewer multipliers than products.
    norm_lanes : int, optional
        Elements that the norm processes per cycle, by default those of a word.
    weights_ahead : int
        Items of the weight port that a queue upstream of the tile's double buffers holds, so that
        the weight path fetches weights during attention. No queue if 0.

    Raises
    ------
    ValueError
        If a value breaks a rule; the message names the rule and the value.
    """

    hidden_size: Annotated[int, Range(2, 8192, "elements")] = 576
    heads: Annotated[int, Range(1, 64, "heads")] = 9
    kv_heads: Annotated[int, Range(1, "heads", "heads")] = 3
    intermediate_size: Annotated[int, Range(2, 8192, "elements")] = 1536
    lanes: Annotated[int, Range(1, 32, "lanes")] = 12
    slices: Annotated[int, Range(2, 8, "elements")] = 3
    slots: Annotated[int, Range(2, 4096, "keys")] = 512
    tokens: Annotated[int, Range(1, 4096, "tokens")] = 64
    probability_bits: Annotated[int, Range(8, 16, "bits")] = 12
    rotary: bool = True
    rope_base: Annotated[int, Range(2, 10_000_000, "ratio")] = 100_000
    causal: bool = True
    layer_norm: bool = False
    biases: bool = False
    activation: Activation = Activation.SILU
    gated: bool = True
    tile_scales: bool = False
    token_exponents: bool = False
    element: ElementParameters = ElementParameters()
    unpacker: WeightUnpackerParameters = WeightUnpackerParameters()
    unpackers: Annotated[int, Range(1, 16, "unpackers")] = 1
    vocabulary_size: Annotated[int, Range(2, 1 << 20, "tokens")] = 49_152
    words: Annotated[int, PowerOfTwo(2, 1 << 17, "words")] = 4096
    weight_fraction: Annotated[int, Range(10, 15, "bits")] = 10
    address_bits: Annotated[int, Range(20, 48, "bits")] = 32
    shared_multipliers: bool = option(default=False)
    norm_lanes: Annotated[int | None, PowerOfTwo(1, 64, "elements")] = option(default=None)
    weights_ahead: Annotated[int, Range(0, 1 << 16, "items")] = option(default=0)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        row = self.slices * self.head_size
        for name in ("hidden_size", "intermediate_size"):
            value = getattr(self, name)
            require(
                value % row == 0, f"{name} must be a multiple of slices * head_size = {row}", value
            )
        # Before the tile's own rules, which call an output tile of a GEMM a head.
        tiles = MOST_TILES * self.head_size
        rule = (
            f"intermediate_size must be at most {MOST_TILES} tiles of head_size outputs of a GEMM"
            f" = {tiles}"
        )
        require(self.intermediate_size <= tiles, rule, self.intermediate_size)
        rule = "hidden_size must be heads * head_size"
        require(self.hidden_size == self.heads * self.head_size, rule, self.hidden_size)
        self.require_groups()
        require(
            self.head_size <= 64, "multipliers of an element must be at most 64", self.head_size
        )
        rule = "unpacker.unpacker.lanes * unpacker.chunk must be at most 256"
        require(self.unpacker_items <= 256, rule, self.unpacker_items)
        words = HALVES * self.slices
        rule = f"unpackers must divide 2 * slices = {words}"
        require(words % self.unpackers == 0, rule, self.unpackers)
        rule = "words must hold a token's state, its norm and its gates"
        require(self.words >= self.token_words, rule, self.words)
        if self.norm_lanes is not None:
            rule = "norm_lanes must be at most head_size"
            require(self.norm_lanes <= self.head_size, rule, self.norm_lanes)
        rule = "weights_ahead must be 0 or at least 2"
        require(self.weights_ahead != 1, rule, self.weights_ahead)
        rule = "a head's probabilities must be at most 2^20 words"
        require(self.longest_rows <= self.longest_burst, rule, self.longest_rows)
        # The parts check their own rules.
        _ = self.tile, self.norm

    @property
    def head_size(self) -> int:
        """Elements of a head, and of a word of the activation memory."""
        return self.element.multipliers

    @property
    def context_length(self) -> int:
        """Tokens of the longest text; no token is evicted."""
        return self.slots

    @property
    def state_words(self) -> int:
        """Words of a hidden state."""
        return self.hidden_size // self.head_size

    @property
    def feed_forward_words(self) -> int:
        """Words of a row between the feed-forward matrices."""
        return self.intermediate_size // self.head_size

    @property
    def token_words(self) -> int:
        """Words that a token occupies at the same time: hidden state, its norm, and a wide row."""
        return 2 * self.state_words + self.wide_words

    @property
    def wide_words(self) -> int:
        """Words of the longer of a token's head outputs and its row of the feed-forward part."""
        return max(self.state_words, self.feed_forward_words)

    @property
    def most_tokens(self) -> int:
        """Maximum tokens per block that the activation memory can hold."""
        return min(self.tokens, self.words // self.token_words)

    @property
    def planes(self) -> list[Plane]:
        """Parts of the activation memory: all words have the bits of the first.

        The words of a block are first its hidden states, then its head outputs or the rows between
        the feed-forward matrices (`wide_words`), then its normalised rows. Hidden states have all
        bits. With a gate, the second kind has the bits of a result. With token exponents, it has
        all bits, and normalised rows have the bits of a result.
        """
        states, wider = self.state_words, self.state_words + self.wide_words
        if self.token_exponents:
            depths = (self.token_words, self.token_words, wider)
        else:
            depths = (self.token_words, wider if self.gated else states, states)
        planes: list[Plane] = []
        for byte, words in enumerate(self.most_tokens * depth for depth in depths):
            low, high = OPERAND.width * byte, OPERAND.width * (byte + 1)
            if planes and planes[-1].words == words:
                low = planes.pop().low
            planes.append(Plane(words, low, high))
        return planes

    @property
    def row_words(self) -> int:
        """Maximum words of a row of probabilities, with two bytes per probability."""
        return RESULT_BYTES * self.tile.row_words

    @property
    def longest_rows(self) -> int:
        """Maximum words of a head's probabilities."""
        return self.tokens * self.row_words

    @property
    def unpacker_items(self) -> int:
        """Maximum weights per cycle of an unpacker."""
        return self.unpacker.unpacker.lanes * self.unpacker.chunk

    @property
    def packet_ports(self) -> tuple[str, ...]:
        """Names of the ports for packets, one per unpacker."""
        if self.unpackers == 1:
            return ("packet_reads",)
        return tuple(f"packet_reads_{number}" for number in range(self.unpackers))

    @property
    def tile(self) -> TileParameters:
        """Dimensions of the tile; its rows hold the longer of both inner dimensions."""
        slice_words = max(self.hidden_size, self.intermediate_size) // (
            self.slices * self.head_size
        )
        return TileParameters(
            lanes=self.lanes,
            slices=self.slices,
            slice_words=slice_words,
            slots=self.slots,
            tokens=self.tokens,
            heads=max(self.state_words, self.feed_forward_words),
            lane_words=slice_words * -(-self.tokens // self.lanes),
            probability_bits=self.probability_bits,
            rotary=self.rotary,
            biases=self.biases,
            tile_scales=self.tile_scales,
            token_exponents=self.token_exponents,
            shared_multipliers=self.shared_multipliers,
            weight_words=self.unpackers,
            rope_base=self.rope_base,
            element=self.element,
        )

    @property
    def activation_units(self) -> int:
        """Elements that the combiner computes per cycle: 8, or more for many lanes.

        It combines the words of all lanes in the cycles that a group takes in a linear layer of the
        shortest rows.
        """
        cycles = self.tile.pairs * (self.state_words // self.slices)
        least = -(-self.lanes * self.head_size // cycles)
        return min(1 << ceil_log2(max(least, LEAST_UNITS)), self.head_size)

    @property
    def norm(self) -> RmsNormParameters | LayerNormParameters:
        """Dimensions of the norm, which processes one word or a part of one per cycle."""
        kind = LayerNormParameters if self.layer_norm else RmsNormParameters
        norm = kind(
            lanes=self.norm_lanes or self.head_size,
            width=self.hidden_size,
            weight_fraction=self.weight_fraction,
            weighed=True,
        )
        if isinstance(norm, RmsNormParameters):
            return replace(norm, divided=True)
        return replace(norm, registered=True)

    @property
    def norm_words(self) -> int:
        """Words of a norm's weights; layer norm adds one word of biases after each."""
        return self.state_words * (2 if self.layer_norm else 1)

    @property
    def vocabulary_tiles(self) -> int:
        """Tiles of the LM head."""
        return -(-self.vocabulary_size // self.head_size)

    @property
    def prediction_layout(self) -> data.StructLayout:
        """Index of an output of the LM head, padded to tiles, and its sum before rounding."""
        found = self.argmax.result_layout
        return data.StructLayout({"token": found["index"].shape, "sum": found["value"].shape})

    @property
    def argmax(self) -> ArgmaxParameters:
        """Dimensions of the argmax over the exact sums of the first lane."""
        return ArgmaxParameters(
            lanes=HALVES,
            length=self.vocabulary_tiles * self.head_size,
            width=self.tile.gemm_bits,
        )

    @property
    def longest_burst(self) -> int:
        """Maximum words per burst: the packets of a matrix."""
        return 1 << 20

    @property
    def state_layout(self) -> data.ArrayLayout:
        """A word of the activation memory."""
        return data.ArrayLayout(STATE, self.head_size)

    @property
    def row_layout(self) -> data.StructLayout:
        """A word of a row of hidden states; `last` ends the row."""
        return data.StructLayout({"values": self.state_layout, "last": 1})

    @property
    def norm_row_layout(self) -> data.StructLayout:
        """A slice of a row of hidden states, as wide as the norm; `last` ends the row."""
        return data.StructLayout({"values": data.ArrayLayout(STATE, self.norm.lanes), "last": 1})

    @property
    def bias_layout(self) -> data.ArrayLayout:
        """A pair of biases."""
        return self.tile.bias_pair_layout

    @property
    def factor_layout(self) -> data.StructLayout:
        """Scale and shift of an output tile."""
        return FACTOR

    @property
    def row_place_layout(self) -> data.StructLayout:
        """A row of inputs of a linear layer: its token, and whether the combiner wrote it."""
        return data.StructLayout({"combined": 1, "token": range(self.tokens)})

    @property
    def norm_weights_layout(self) -> data.StructLayout:
        """A word of a norm's weights or biases; `last` ends the row."""
        words = data.ArrayLayout(self.norm.values_layout.elem_shape, self.head_size)
        return data.StructLayout({"item": words, "last": 1})

    @property
    def table_words(self) -> int:
        """Words of a table of exponentials."""
        return DISTANCES // self.head_size

    @property
    def longest_loop(self) -> int:
        """Maximum rows of a block, and words of a row, in the activation memory."""
        return max(self.tokens, self.tile.heads)

    @property
    def loop_layout(self) -> data.StructLayout:
        """A nested loop of addresses: `outer` rows `stride` apart of `inner` words `step` apart.

        With token exponents, `combined` selects the rows whose exponents the tile reads.
        """
        count, address = range(self.longest_loop + 1), range(self.words)
        return data.StructLayout(
            {
                "first": address,
                "inner": count,
                "step": count,
                "outer": count,
                "stride": count,
                "user": MemoryUser,
                **({"combined": 1} if self.token_exponents else {}),
            }
        )

    @property
    def blocks_layout(self) -> data.StructLayout:
        """`count` bursts of `length` words, whose addresses are `spacing` apart."""
        longest = max(self.slots, self.longest_rows)
        return data.StructLayout(
            {
                "address": self.address_bits,
                "spacing": self.address_bits,
                "length": range(longest + 1),
                "count": range(self.heads + 1),
            }
        )

    @property
    def tile_pairs(self) -> int:
        """Pairs of outputs per tile; each pair is a word of biases."""
        return self.head_size // HALVES

    def reads(self, shape: data.Layout | int) -> BurstReadPort:
        """Return a read port to external memory."""
        return BurstReadPort(
            address_bits=self.address_bits, word_shape=shape, longest=self.longest_burst
        )

    def writes(self, shape: data.ArrayLayout) -> BurstWritePort:
        """Return a write port to external memory."""
        return BurstWritePort(
            address_bits=self.address_bits, word_shape=shape, longest=self.longest_burst
        )
