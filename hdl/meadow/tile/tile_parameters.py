"""Dimensions and payloads of MEADOW's tile."""

from dataclasses import replace
from typing import Annotated

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import bits_for, ceil_log2

from hdl.meadow.tile.element_parameters import (
    LEAST_SUM_BITS,
    OPERAND,
    SCALE_BITS,
    ElementParameters,
)
from hdl.meadow.tile.pipelined_softmax import PipelinedSoftmaxParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.parameters import Parameters, Range, option, parameter_object, require

HALVES = 2
"""Halves of an output tile; a rotary pair has one output of each, computed at the same time."""

RESULT = signed(16)
"""An element of a result: INT8, or 16 bits where a command selects `wide`."""

BIAS = signed(24)
"""A bias, in the steps of the sum of products to which it is added."""

FACTOR = data.StructLayout({"scale": unsigned(SCALE_BITS), "shift": unsigned(8)})
"""Scale and shift of a head or an output tile in external memory, in three bytes."""

MOST_TILES = 128
"""Maximum output tiles of a GEMM, each of which takes the place of a query head."""

BASE_EXPONENT = RESULT.width - OPERAND.width
"""Exponent of a token whose 16-bit values use all of their bits; biases are in its steps."""

MOST_EXPONENT = 16
"""Maximum exponent of a token, whose values of up to 24 bits then fit INT8 as they are."""

RESULT_BYTES = RESULT.width // OPERAND.width
"""Memory words per word of wide results, the one of the lower bytes first."""


class BlockMode(enum.Enum, shape=unsigned(3)):
    """The stages of the lanes (Figure 3) that process a block."""

    GEMM = 0
    """Only stage Q, with weights: a linear layer in GEMM mode."""
    TPHS = 1
    """All stages, chained: attention in the token-parallel head-sequential dataflow."""
    SCORES = 2
    """Only stage QK: a GEMM of queries with keys."""
    SOFTMAX = 3
    """Only the softmax stages (MAX, EXP, DIV): scores to probabilities."""
    OUTPUTS = 4
    """Only stage SM x V: a GEMM of probabilities with values."""


@parameter_object
class TileParameters(Parameters):
    """Dimensions of a tile; its golden model and testbench use them too.

    Parameters
    ----------
    lanes : int
        Lanes, each a TPHS pipeline; a group has one token per lane.
    slices : int
        Elements over which the inner dimension of a linear layer is split; stage Q has twice as
        many.
    slice_words : int
        Maximum words per slice: a token has ``slices * slice_words * multipliers`` elements.
    slots : int
        Maximum keys per head.
    tokens : int
        Maximum tokens per block.
    heads : int
        Maximum query heads, or output tiles of a GEMM.
    lane_words : int
        Words per slice in the token store of a lane; it must hold the lane's tokens of all groups
        of a block.
    probability_bits : int
        Bits of a probability.
    rotary : bool
        Whether queries and keys can be rotated by their positions.
    biases : bool
        Whether a bias is added to each result of stage Q.
    tile_scales : bool
        Whether each head or output tile of stage Q has a scale of its own.
    token_exponents : bool
        Whether each token of stage Q has an exponent: its elements are in steps that are smaller by
        this power of two.
    shared_multipliers : bool
        Whether two products of stage Q share a multiplier, and QK and SM x V have none, for an FPGA
        with fewer multipliers than products. No value and no cycle depends on it.
    weight_words : int
        Words per cycle at the port for weights: a divisor of ``2 * slices``.
    rope_base : int
        Base of the geometric series of rotation frequencies.
    element : ElementParameters
        Dimensions of a processing element: `multipliers` is the size of a head; each stage has the
        register file and the accumulator that it needs, at most of `sum_bits`.

    Raises
    ------
    ValueError
        If a value breaks a rule; the message names the rule and the value.
    """

    lanes: Annotated[int, Range(1, 32, "lanes")] = 12
    slices: Annotated[int, Range(2, 8, "elements")] = 3
    slice_words: Annotated[int, Range(1, 32, "words")] = 4
    slots: Annotated[int, Range(2, 4096, "keys")] = 512
    tokens: Annotated[int, Range(1, 4096, "tokens")] = 512
    heads: Annotated[int, Range(1, MOST_TILES, "heads")] = 12
    lane_words: Annotated[int, Range("slice_words", 1 << 16, "words")] = 448
    probability_bits: Annotated[int, Range(8, 16, "bits")] = 12
    rotary: bool = False
    biases: bool = False
    tile_scales: bool = False
    token_exponents: bool = False
    shared_multipliers: bool = option(default=False)
    weight_words: Annotated[int, Range(1, 16, "words")] = 1
    rope_base: Annotated[int, Range(2, 10_000_000, "ratio")] = 10_000
    element: ElementParameters = ElementParameters()

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        words = HALVES * self.slices
        rule = f"words of weights per cycle must divide 2 * slices = {words}"
        require(words % self.weight_words == 0, rule, self.weight_words)
        rule = "tokens must be at most slots"
        require(self.tokens <= self.slots, rule, self.tokens)
        rule = "scalar_bits of an element must be more than probability_bits"
        require(self.element.scalar_bits > self.probability_bits, rule, self.element.scalar_bits)
        rule = "sum_bits of an element must hold the sums of slots"
        require(self.element.sum_bits >= self.output_bits, rule, self.element.sum_bits)
        rule = "multipliers of an element must be at least 4"
        require(self.element.multipliers >= 4, rule, self.element.multipliers)

    @property
    def size(self) -> int:
        """Elements of a head."""
        return self.element.multipliers

    @property
    def lane_bits(self) -> int:
        """Bits of a lane's number; 1 for a single lane."""
        return bits_for(self.lanes - 1)

    @property
    def lane_elements(self) -> int:
        """Processing elements per lane: those of stage Q, one of QK, and one of SM x V."""
        return HALVES * self.slices + 2

    @property
    def gemm_element(self) -> ElementParameters:
        """Dimensions of an element of stage Q, whose input register file holds one row."""
        return self._element(input_file=1 << ceil_log2(max(self.slice_words, 2)))

    @property
    def score_element(self) -> ElementParameters:
        """Dimensions of the element of QK, whose row is one word."""
        return self._element()

    @property
    def output_bits(self) -> int:
        """Bits of the sums of values times probabilities."""
        return ceil_log2(self.slots) + self.probability_bits + OPERAND.width

    @property
    def output_element(self) -> ElementParameters:
        """Dimensions of the element of SM x V."""
        return self._element(sum_bits=self.output_bits)

    def _element(self, *, input_file: int = 2, sum_bits: int = 0) -> ElementParameters:
        """Return an element with an accumulator of the necessary width; absent files are smallest.

        Its accumulator also holds the sums of the smallest register files, by the element's rules.
        """
        e = self.element
        row = 2 * OPERAND.width + ceil_log2(input_file * e.multipliers)
        column = e.scalar_bits + OPERAND.width + 1
        return replace(
            e,
            input_file=input_file,
            weight_file=2,
            output_file=2,
            sum_bits=max(sum_bits, row, column, LEAST_SUM_BITS),
        )

    @property
    def width(self) -> int:
        """Maximum elements of a token."""
        return self.slices * self.slice_words * self.size

    @property
    def pairs(self) -> int:
        """Pairs of outputs per head or output tile."""
        return self.size // HALVES

    @property
    def gemm_steps(self) -> int:
        """Cycles of stage Q for a group of tokens of the maximum length."""
        return self.size // HALVES * self.slice_words

    @property
    def gemm_bits(self) -> int:
        """Bits of a result of stage Q before requantisation, rotated or not."""
        sums = 2 * OPERAND.width + ceil_log2(self.width)
        # Sums of products do not use their top bit, so that a bias of equal width cannot overflow.
        bias = BIAS.width + (MOST_EXPONENT - BASE_EXPONENT if self.token_exponents else 0)
        return (max(sums, bias + 1) if self.biases else sums) + 1

    @property
    def softmax(self) -> PipelinedSoftmaxParameters:
        """Dimensions of a lane's softmax."""
        return PipelinedSoftmaxParameters(scores=self.slots, probability_bits=self.probability_bits)

    @property
    def rotation(self) -> RotaryEmbeddingParameters:
        """Dimensions of a lane's rotation, a pair at a time."""
        return RotaryEmbeddingParameters(
            lanes=2,
            head_size=self.size,
            base=self.rope_base,
            position_bits=max(ceil_log2(self.slots + self.lanes), 1),
            stages=7,
        )

    @property
    def weights_layout(self) -> data.StructLayout:
        """Weights of all elements of stage Q of a lane in one cycle, by half, then by slice."""
        words = data.ArrayLayout(self.element.word_layout, HALVES * self.slices)
        return data.StructLayout({"word": words, "last": 1})

    @property
    def weight_port_layout(self) -> data.StructLayout:
        """Neighbouring words of weights in one cycle; `last` with the last words of a tile."""
        words = data.ArrayLayout(self.element.word_layout, self.weight_words)
        return data.StructLayout({"word": words, "last": 1})

    @property
    def bias_layout(self) -> data.StructLayout:
        """A pair of biases; `last` with the last pair of a head."""
        return data.StructLayout({"word": self.bias_pair_layout, "last": 1})

    @property
    def bias_pair_layout(self) -> data.ArrayLayout:
        """The biases of a pair of neighbouring outputs."""
        return data.ArrayLayout(BIAS, HALVES)

    @property
    def inputs_layout(self) -> data.StructLayout:
        """One word per slice of a token; `last` ends a token, `end` the last token of a lane."""
        words = data.ArrayLayout(self.element.word_layout, self.slices)
        return data.StructLayout({"words": words, "last": 1, "end": 1, **self._exponent})

    @property
    def _exponent(self) -> dict[str, range]:
        """The field of a token's exponent, if tokens have one."""
        return {"exponent": range(MOST_EXPONENT + 1)} if self.token_exponents else {}

    @property
    def token_layout(self) -> data.StructLayout:
        """A word of a token, with its exponent if tokens have one."""
        return data.StructLayout({**self.word_layout.members, **self._exponent})

    @property
    def scale_layout(self) -> data.StructLayout:
        """Scale and shift of the results of a head or output tile; `last` is always 1."""
        return data.StructLayout({"word": FACTOR, "last": 1})

    @property
    def lane_word_layout(self) -> data.StructLayout:
        """A word of a token between two stages: a query, results of GEMM mode, or part of a row."""
        return data.StructLayout({"word": self.result_word_layout})

    @property
    def output_layout(self) -> data.StructLayout:
        """A word of a token's row of results; `keep` is 0 for a lane without a token."""
        return data.StructLayout({"word": self.result_word_layout, "keep": 1, "last": 1})

    @property
    def row_words(self) -> int:
        """Maximum words of a row of scores."""
        return -(-self.slots // self.size)

    @property
    def feature_layout(self) -> data.StructLayout:
        """A score, a probability or an output; `last` with the last of a row."""
        return data.StructLayout({"value": unsigned(RESULT.width), "last": 1})

    @property
    def result_word_layout(self) -> data.ArrayLayout:
        """A word of results."""
        return data.ArrayLayout(RESULT, self.size)

    @property
    def result_layout(self) -> data.StructLayout:
        """A word of results; `last` with the last word of a block."""
        return data.StructLayout({"word": self.result_word_layout, "last": 1})

    @property
    def sums_layout(self) -> data.StructLayout:
        """A pair of neighbouring results of stage Q before rounding; `strobe` marks a new pair."""
        pair = data.ArrayLayout(signed(self.gemm_bits), HALVES)
        return data.StructLayout({"pair": pair, "strobe": 1})

    @property
    def gemm_members(self) -> dict[str, Member]:
        """Members of `GemmStage` that are also members of its `TphsPipeline`."""
        biases = {"biases": In(stream.Signature(self.bias_layout))} if self.biases else {}
        scales = {"scales": In(stream.Signature(self.scale_layout))} if self.tile_scales else {}
        return {
            "lane": In(self.lane_bits),
            "command": In(self.command_layout),
            "inputs": In(stream.Signature(self.inputs_layout)),
            "weights": In(stream.Signature(self.weights_layout)),
            **biases,
            **scales,
            "sums": Out(self.sums_layout),
        }

    @property
    def word_layout(self) -> data.StructLayout:
        """A word of external memory; `last` with the last word of a block."""
        return self.element.block_layout

    @property
    def command_layout(self) -> data.StructLayout:
        """A command: one block of attention or of a GEMM."""
        shift = range(self.element.sum_bits + SCALE_BITS)
        scales = {}
        # With `tile_scales` those of stage Q are operands.
        for name in (*(() if self.tile_scales else ("gemm",)), "score", "output"):
            scales |= {f"{name}_scale": unsigned(SCALE_BITS), f"{name}_shift": shift}
        return data.StructLayout(
            {
                "tokens": range(self.tokens + 1),
                "context": range(self.slots + 1),
                "heads": range(self.heads + 1),
                "members": range(self.heads + 1),
                "mode": BlockMode,
                "slice_words": range(self.slice_words + 1),
                "rotate": 1,
                "wide": 1,
                "causal": 1,
                "skip": 1,
                **scales,
            }
        )
