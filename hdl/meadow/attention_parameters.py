"""Dimensions and payloads of MEADOW's attention pipeline."""

from typing import Annotated

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum
from amaranth.utils import bits_for, ceil_log2

from hdl.meadow.tile.element_parameters import OPERAND, SCALE_BITS, ElementParameters
from hdl.meadow.tile.pipelined_softmax import PipelinedSoftmaxParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.parameters import Parameters, Range, parameter_object, require

HALVES = 2
"""Halves of a query's outputs, of a pair each one: the two are there at once, to be rotated."""

RESULT = signed(16)
"""An element of a result: INT8, or as wide as a requantiser's where a command says so."""

BIAS = signed(24)
"""What is added to a sum of products, in its steps."""

OCTETS = RESULT.width // OPERAND.width
"""Words of memory that a word of wide results takes, that of the lower octets first."""


class BlockMode(enum.Enum, shape=unsigned(3)):
    """Which stages of the lanes a block goes through."""

    GEMM = 0
    """The first alone, with weights: a linear layer."""
    PIPELINED = 1
    """All of them, chained: attention."""
    SCORES = 2
    """The second alone: a GEMM of queries with keys."""
    SOFTMAX = 3
    """The third alone: scores to probabilities."""
    OUTPUTS = 4
    """The last alone: a GEMM of probabilities with values."""


@parameter_object
class AttentionParameters(Parameters):
    """Dimensions of an attention pipeline; they also drive its golden model and its testbench.

    Parameters
    ----------
    lanes : int
        Token lanes: tokens of a group.
    slices : int
        Elements over which a query's inner dimension is split; twice as many make queries.
    chunks : int
        Words of a slice at most: a token has ``slices * chunks * multipliers`` elements.
    features : int
        Keys of a head at most.
    tokens : int
        Tokens of a block at most.
    heads : int
        Query heads at most, or tiles of a GEMM's outputs.
    lane_words : int
        Words of each slice that a lane's token store holds: what all of a block's groups need.
    probability_bits : int
        Bits of a probability.
    rotary : bool
        Whether queries and keys can be rotated by their positions.
    biases : bool
        Whether a bias is added to each output of a query or of a GEMM of weights.
    base : int
        What the rotation's geometric series is made of.
    element : ElementParameters
        Of every processing element; `multipliers` is the size of a head.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    lanes: Annotated[int, Range(1, 32, "lanes")] = 12
    slices: Annotated[int, Range(2, 8, "elements")] = 3
    chunks: Annotated[int, Range(1, 32, "words")] = 4
    features: Annotated[int, Range(2, 4096, "keys")] = 512
    tokens: Annotated[int, Range(1, 4096, "tokens")] = 512
    heads: Annotated[int, Range(1, 64, "heads")] = 12
    lane_words: Annotated[int, Range("chunks", 1 << 16, "words")] = 448
    probability_bits: Annotated[int, Range(8, 16, "bits")] = 12
    rotary: bool = False
    biases: bool = False
    base: Annotated[int, Range(2, 10_000_000, "ratio")] = 10_000
    element: ElementParameters = ElementParameters()

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        rule = "tokens must be at most features"
        require(self.tokens <= self.features, rule, self.tokens)
        rule = "chunks must be at most the words of an input register file"
        require(self.chunks <= self.element.input_file, rule, self.chunks)
        rule = "scalar_bits of an element must be more than probability_bits"
        require(self.element.scalar_bits > self.probability_bits, rule, self.element.scalar_bits)
        rule = "sum_bits of an element must hold the sums of features"
        longest = ceil_log2(self.features) + self.probability_bits + OPERAND.width
        require(self.element.sum_bits >= longest, rule, self.element.sum_bits)
        rule = "multipliers of an element must be at least 4"
        require(self.element.multipliers >= 4, rule, self.element.multipliers)

    @property
    def size(self) -> int:
        """Elements of a head."""
        return self.element.multipliers

    @property
    def lane_bits(self) -> int:
        """Bits of a lane's number; a single lane has one too."""
        return bits_for(self.lanes - 1)

    @property
    def lane_elements(self) -> int:
        """Processing elements of a lane: those of queries, of scores, and of outputs."""
        return HALVES * self.slices + 2

    @property
    def width(self) -> int:
        """Elements of a token at most."""
        return self.slices * self.chunks * self.size

    @property
    def query_steps(self) -> int:
        """Cycles in which a group's queries are made, of the longest tokens."""
        return self.size // HALVES * self.chunks

    @property
    def query_bits(self) -> int:
        """Bits of an element of a query before it is requantised, rotated or not."""
        sums = 2 * OPERAND.width + ceil_log2(self.width)
        # Sums of products leave their uppermost bit unused; by it a bias of as many has room.
        return (max(sums, BIAS.width + 1) if self.biases else sums) + 1

    @property
    def softmax(self) -> PipelinedSoftmaxParameters:
        """Dimensions of a lane's softmax."""
        return PipelinedSoftmaxParameters(
            features=self.features, probability_bits=self.probability_bits
        )

    @property
    def rotation(self) -> RotaryEmbeddingParameters:
        """Dimensions of a lane's rotation, a pair at a time."""
        return RotaryEmbeddingParameters(
            lanes=2,
            head_size=self.size,
            base=self.base,
            position_bits=max(ceil_log2(self.features + self.lanes), 1),
            stages=4,
        )

    @property
    def weights_layout(self) -> data.StructLayout:
        """What all elements of a lane that make queries get in a cycle: by halves, by slices."""
        words = data.ArrayLayout(self.element.word_layout, HALVES * self.slices)
        return data.StructLayout({"word": words, "last": 1})

    @property
    def bias_layout(self) -> data.StructLayout:
        """A word of biases; `last` with a head's last."""
        return data.StructLayout({"word": self.bias_pair_layout, "last": 1})

    @property
    def bias_pair_layout(self) -> data.ArrayLayout:
        """The biases of a pair of neighbouring outputs."""
        return data.ArrayLayout(BIAS, HALVES)

    @property
    def inputs_layout(self) -> data.StructLayout:
        """A word of each slice of a token; `last` ends the token, `end` a lane's last token."""
        words = data.ArrayLayout(self.element.word_layout, self.slices)
        return data.StructLayout({"words": words, "last": 1, "end": 1})

    @property
    def query_layout(self) -> data.StructLayout:
        """What the elements that make queries make of a token."""
        return data.StructLayout({"word": self.result_word_layout})

    @property
    def output_layout(self) -> data.StructLayout:
        """A word of a token's row of results; `keep` if there is such a token."""
        return data.StructLayout({"word": self.result_word_layout, "keep": 1, "last": 1})

    @property
    def row_words(self) -> int:
        """Words of a row of scores at most."""
        return -(-self.features // self.size)

    @property
    def feature_layout(self) -> data.StructLayout:
        """A score, a probability or an output; `last` with a row's last."""
        return data.StructLayout({"value": unsigned(RESULT.width), "last": 1})

    @property
    def result_word_layout(self) -> data.ArrayLayout:
        """A word of results."""
        return data.ArrayLayout(RESULT, self.size)

    @property
    def result_layout(self) -> data.StructLayout:
        """A word of results, and `last` with a block's last."""
        return data.StructLayout({"word": self.result_word_layout, "last": 1})

    @property
    def sums_layout(self) -> data.StructLayout:
        """A pair of neighbouring outputs before anything rounds them; `strobe` when it is new."""
        pair = data.ArrayLayout(signed(self.query_bits), HALVES)
        return data.StructLayout({"pair": pair, "strobe": 1})

    @property
    def word_layout(self) -> data.StructLayout:
        """A word of the memory outside, and `last` with a block's last."""
        return self.element.block_layout

    @property
    def command_layout(self) -> data.StructLayout:
        """A block of attention."""
        shift = range(self.element.sum_bits + SCALE_BITS)
        scales = {}
        for name in ("query", "score", "output"):
            scales |= {f"{name}_scale": unsigned(SCALE_BITS), f"{name}_shift": shift}
        return data.StructLayout(
            {
                "tokens": range(self.tokens + 1),
                "context": range(self.features + 1),
                "heads": range(self.heads + 1),
                "members": range(self.heads + 1),
                "mode": BlockMode,
                "chunks": range(self.chunks + 1),
                "rotate": 1,
                "wide": 1,
                "causal": 1,
                "skip": 1,
                **scales,
            }
        )
