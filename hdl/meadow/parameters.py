"""Dimensions, instructions and payloads of MEADOW's accelerator."""

from typing import Annotated

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum

from hdl.meadow.attention_parameters import HALVES, OCTETS, RESULT, AttentionParameters
from hdl.meadow.tile.element_parameters import ElementParameters
from hdl.meadow.tile.pipelined_softmax import DISTANCES
from hdl.meadow.wilu.weight_unpacker import WeightUnpackerParameters
from hdl.memory.burst_port import BurstReadPort, BurstWritePort
from hdl.nonlinear.activation_functions import Activation
from hdl.nonlinear.layer_norm import LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.nonlinear.row_norm import EPSILON_BITS
from hdl.parameters import Parameters, PowerOfTwo, Range, parameter_object, require

STATE = signed(24)
"""An element of a hidden state; all tokens and layers have the same step."""

NORM_DROP = 8
"""Bits that a norm's Q6.10 loses on its way to INT8."""

GATE_DROP = 16
"""Bits that a gate's Q6.10 times the other matrix's result loses on its way to INT8."""

MOST_LIFT = STATE.width - RESULT.width
"""Powers of two at most by which a result is larger than a step of the hidden state."""


class Kind(enum.Enum, shape=unsigned(3)):
    """What an instruction does."""

    LOAD = 0
    """Hidden states come from outside."""
    STORE = 1
    """They leave."""
    NORM = 2
    """Rows are normalised to INT8."""
    GEMM = 3
    """A linear layer, tile after tile; or a product of attention, head after head."""
    TPHS = 4
    """Attention, from tokens to heads' outputs, in the token-parallel head-sequential pipeline."""
    PREDICT = 5
    """The number of the largest sum leaves, and the next one is looked for."""
    SOFTMAX = 6
    """Rows of scores come from outside, and leave as probabilities."""


class Matrix(enum.Enum, shape=unsigned(2)):
    """What a GEMM's rows are multiplied with."""

    WEIGHTS = 0
    """The next matrix of the weight path."""
    KEYS = 1
    """Each head's cached keys: queries become scores."""
    VALUES = 2
    """Each head's cached values: probabilities become heads' outputs."""


class Reader(enum.Enum, shape=unsigned(3)):
    """Who reads the activation memory."""

    PIPELINE = 0
    """The token lanes: tokens."""
    COMBINER = 1
    """What was in the place of a result."""
    NORM = 2
    """Rows to normalise."""
    OUTSIDE = 3
    """Rows to store."""
    ROWS = 4
    """The token lanes: queries, each by itself."""


class Combine(enum.Enum, shape=unsigned(2)):
    """What becomes of a result."""

    KEEP = 0
    """It takes the place of what was there."""
    ADD = 1
    """It is added to the hidden state that was there."""
    ACTIVATE = 2
    """It becomes INT8: multiplied by the activation of what was there, or activated itself."""
    COMPARE = 3
    """It goes nowhere; the sum that it is made of is compared with the largest so far."""


@parameter_object
class MeadowParameters(Parameters):
    """Dimensions of an accelerator; they also drive its golden model and its testbench.

    Parameters
    ----------
    hidden_size : int
        Elements of a hidden state; a multiple of ``slices * size``, as is the feed-forward's.
    heads, kv_heads : int
        Query heads, and those of keys and values; heads of `size` elements make a hidden state.
    feed_forward_size : int
        Elements between the feed-forward matrices.
    lanes : int
        Token lanes.
    slices : int
        Elements over which a row is split.
    features : int
        Cached tokens at most.
    tokens : int
        Tokens of a block at most.
    probability_bits : int
        Of a probability.
    rotary : bool
        Whether queries and keys can be rotated by their positions.
    base : int
        Of the rotary embedding.
    layer_norm : bool
        Whether norms take the mean off and add a bias (layer norm), or not (RMSNorm).
    biases : bool
        Whether linear layers have biases.
    activation : Activation
        Between the feed-forward matrices.
    gated : bool
        Whether the activation's input is a matrix of its own, the gate, or the activation's output
        goes on as it is.
    element : ElementParameters
        Of every processing element; `multipliers` is the `size` of a head.
    unpacker : WeightUnpackerParameters
        Of the weight path.
    vocabulary : int
        Tokens that a prediction tells apart.
    words : int
        Words of the activation memory, of `size` elements each.
    weight_fraction : int
        Fraction bits of a norm's weights.
    address_bits : int
        Of every address outside.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    hidden_size: Annotated[int, Range(2, 8192, "elements")] = 576
    heads: Annotated[int, Range(1, 64, "heads")] = 9
    kv_heads: Annotated[int, Range(1, "heads", "heads")] = 3
    feed_forward_size: Annotated[int, Range(2, 8192, "elements")] = 1536
    lanes: Annotated[int, Range(1, 32, "lanes")] = 12
    slices: Annotated[int, Range(2, 8, "elements")] = 3
    features: Annotated[int, Range(2, 4096, "keys")] = 512
    tokens: Annotated[int, Range(1, 4096, "tokens")] = 64
    probability_bits: Annotated[int, Range(8, 16, "bits")] = 12
    rotary: bool = True
    base: Annotated[int, Range(2, 10_000_000, "ratio")] = 100_000
    layer_norm: bool = False
    biases: bool = False
    activation: Activation = Activation.SILU
    gated: bool = True
    element: ElementParameters = ElementParameters()
    unpacker: WeightUnpackerParameters = WeightUnpackerParameters()
    vocabulary: Annotated[int, Range(2, 1 << 20, "tokens")] = 49_152
    words: Annotated[int, PowerOfTwo(2, 1 << 16, "words")] = 4096
    weight_fraction: Annotated[int, Range(10, 15, "bits")] = 10
    address_bits: Annotated[int, Range(20, 48, "bits")] = 32

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        row = self.slices * self.head_size
        for name in ("hidden_size", "feed_forward_size"):
            value = getattr(self, name)
            require(
                value % row == 0, f"{name} must be a multiple of slices * head_size = {row}", value
            )
        rule = "hidden_size must be heads * head_size"
        require(self.hidden_size == self.heads * self.head_size, rule, self.hidden_size)
        require(self.heads % self.kv_heads == 0, "kv_heads must divide heads", self.kv_heads)
        require(
            self.head_size <= 64, "multipliers of an element must be at most 64", self.head_size
        )
        rule = "unpacker.unpacker.lanes * unpacker.chunk must be at most 256"
        require(self.unpacker_items <= 256, rule, self.unpacker_items)
        rule = "words must hold a token's state, its norm and its gates"
        require(self.words >= self.token_words, rule, self.words)
        rule = "a head's probabilities must be at most 2^20 words"
        require(self.longest_rows <= self.longest_burst, rule, self.longest_rows)
        # Their own rules.
        _ = self.attention, self.norm

    @property
    def head_size(self) -> int:
        """Elements of a head, and of a word."""
        return self.element.multipliers

    @property
    def state_words(self) -> int:
        """Words of a hidden state."""
        return self.hidden_size // self.head_size

    @property
    def feed_forward_words(self) -> int:
        """Words between the feed-forward matrices."""
        return self.feed_forward_size // self.head_size

    @property
    def token_words(self) -> int:
        """Words that a token needs at once: its state, what is made of it, and the gates."""
        return 2 * self.state_words + self.feed_forward_words

    @property
    def most_tokens(self) -> int:
        """Tokens of a block at most, as far as the activation memory holds them."""
        return min(self.tokens, self.words // self.token_words)

    @property
    def row_words(self) -> int:
        """Words of a row of probabilities at most, with two octets each."""
        return OCTETS * self.attention.row_words

    @property
    def longest_rows(self) -> int:
        """Words of a head's probabilities at most."""
        return self.tokens * self.row_words

    @property
    def unpacker_items(self) -> int:
        """Weights of a cycle at most."""
        return self.unpacker.unpacker.lanes * self.unpacker.chunk

    @property
    def attention(self) -> AttentionParameters:
        """Dimensions of the pipeline, whose rows are as long as the feed-forward's."""
        chunks = max(self.hidden_size, self.feed_forward_size) // (self.slices * self.head_size)
        return AttentionParameters(
            lanes=self.lanes,
            slices=self.slices,
            chunks=chunks,
            features=self.features,
            tokens=self.tokens,
            heads=max(self.state_words, self.feed_forward_words),
            lane_words=chunks * -(-self.tokens // self.lanes),
            probability_bits=self.probability_bits,
            rotary=self.rotary,
            biases=self.biases,
            base=self.base,
            element=self.element,
        )

    @property
    def norm(self) -> RmsNormParameters | LayerNormParameters:
        """Dimensions of the norm: a word a cycle."""
        kind = LayerNormParameters if self.layer_norm else RmsNormParameters
        return kind(
            lanes=self.head_size, width=self.hidden_size, weight_fraction=self.weight_fraction
        )

    @property
    def norm_words(self) -> int:
        """Words of a norm's weights, each followed by one of biases if the norm has them."""
        return self.state_words * (2 if self.layer_norm else 1)

    @property
    def vocabulary_tiles(self) -> int:
        """Tiles of the vocabulary's projection."""
        return -(-self.vocabulary // self.head_size)

    @property
    def prediction_layout(self) -> data.StructLayout:
        """A token of the vocabulary, tiles filled up, and its sum, which nothing has rounded."""
        tokens = self.vocabulary_tiles * self.head_size
        return data.StructLayout({"token": range(tokens), "sum": signed(self.attention.query_bits)})

    @property
    def longest_burst(self) -> int:
        """Words of a burst at most: a matrix's packets."""
        return 1 << 20

    @property
    def state_layout(self) -> data.ArrayLayout:
        """A word of the activation memory."""
        return data.ArrayLayout(STATE, self.head_size)

    @property
    def row_layout(self) -> data.StructLayout:
        """A word of a row of hidden states."""
        return data.StructLayout({"values": self.state_layout, "last": 1})

    @property
    def bias_layout(self) -> data.ArrayLayout:
        """A word of biases."""
        return self.attention.bias_pair_layout

    @property
    def norm_weights_layout(self) -> data.StructLayout:
        """A word of a norm's weights, or biases."""
        return data.StructLayout({"item": self.norm.values_layout, "last": 1})

    @property
    def table_words(self) -> int:
        """Words of a table of exponentials."""
        return DISTANCES // self.head_size

    @property
    def walk_layout(self) -> data.StructLayout:
        """Rows of words: `inner` of them in `step`s, `outer` times, each row `stride` further."""
        count, address = range(self.words + 1), range(self.words)
        return data.StructLayout(
            {
                "first": address,
                "inner": count,
                "step": count,
                "outer": count,
                "stride": count,
                "reader": Reader,
            }
        )

    @property
    def blocks_layout(self) -> data.StructLayout:
        """`count` bursts of `length` words, each `spacing` further than the one before."""
        longest = max(self.features, self.longest_rows)
        return data.StructLayout(
            {
                "address": self.address_bits,
                "spacing": self.address_bits,
                "length": range(longest + 1),
                "count": range(self.attention.heads + 1),
            }
        )

    @property
    def instruction_layout(self) -> data.StructLayout:
        """An instruction."""
        count, address = range(max(self.words, self.row_words) + 1), range(self.words)
        return data.StructLayout(
            {
                "kind": Kind,
                "matrix": Matrix,
                "block": self.attention.command_layout,
                "source": address,
                "words": count,
                "target": address,
                "stride": count,
                "combine": Combine,
                "lift": range(MOST_LIFT + 1),
                "cached": 1,
                "vectors": self.address_bits,
                "keys": self.address_bits,
                "values": self.address_bits,
                "spacing": self.address_bits,
                "shared": range(self.kv_heads + 1),
                "epsilon": EPSILON_BITS,
            }
        )

    @property
    def tile_pairs(self) -> int:
        """Pairs of a tile's outputs, each a word of biases."""
        return self.head_size // HALVES

    @property
    def matrix_layout(self) -> data.StructLayout:
        """What is told of a matrix: how it is packed, where it stands, how many words it has."""
        tiles = {"biases": self.address_bits, "tiles": range(self.attention.heads + 1)}
        return data.StructLayout(
            {
                "packing": self.unpacker.matrix_layout,
                "table": self.address_bits,
                "rows": range(self.unpacker.entries + 1),
                "packets": self.address_bits,
                "number": range(self.longest_burst + 1),
                "words": 28,
                "tile": range(self.attention.query_steps * 2 * self.slices + 1),
                **(tiles if self.biases else {}),
            }
        )

    def reads(self, shape: data.ArrayLayout | int) -> BurstReadPort:
        """Return a port to the memory outside."""
        return BurstReadPort(
            address_bits=self.address_bits, word_shape=shape, longest=self.longest_burst
        )

    def writes(self, shape: data.ArrayLayout) -> BurstWritePort:
        """Return a port to the memory outside."""
        return BurstWritePort(
            address_bits=self.address_bits, word_shape=shape, longest=self.longest_burst
        )
