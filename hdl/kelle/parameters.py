"""Dimensions of the Kelle accelerator, and what its parts tell each other."""

from typing import Annotated, Any

from amaranth.hdl import Shape, signed
from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from hdl.kelle.array.matrix_unit import MatrixUnitParameters
from hdl.kelle.array.systolic_array import SystolicArrayParameters
from hdl.kelle.edram.kv_edram import KvEdramParameters
from hdl.kelle.edram.refresh_walker import RefreshParameters
from hdl.kelle.edram.refreshed_edram import RefreshedEdramParameters
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters
from hdl.kelle.operations import PROJECTIONS, Operation
from hdl.nonlinear.activation_functions import ActivationFunctionsParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.nonlinear.softmax import SoftmaxParameters
from hdl.parameters import As, Parameters, PowerOfTwo, Range, parameter_object, require

SCORE_BITS = 16
"""Bits of a score."""


@parameter_object
class KelleParameters(Parameters):
    """Dimensions of the accelerator; they also drive its golden model and its testbench.

    Parameters
    ----------
    rows, bands : int
        As in `SystolicArrayParameters`, if weights have 8 bits.
    weight_bits : int
        Bits of a weight, 8 or 4. A beat of weights has as many octets either way: with 4 bits the
        array has twice as many bands.
    activation_bits : int
        Bits of the vectors that meet tiles, 16 or 8. Hidden states, keys and values have 16.
    banks, word_bytes, words : int
        As in `KvEdramParameters`.
    head_size : int
        Channels of a head: a multiple of `rows`, and of `banks` * `word_bytes`.
    layers : int
        Layers whose keys, values, slots and scales are kept, one of which a step goes through.
    sequences : int
        Texts whose tokens go through a layer together (the paper's batch is 16), each with keys,
        values and slots of its own.
    heads : int
        Key/value heads of a layer.
    queries : int
        Query heads that share a key/value head. Hidden states have
        ``heads * queries * head_size`` elements.
    feed_forward : int
        Elements between the feed-forward matrices: a multiple of `head_size`.
    vocabulary : int
        Tokens of the vocabulary, which follows the last layer; 0 if it is elsewhere, as it must be
        with several sequences.
    slots : int
        Tokens cached a head (N').
    window, sinks : int
        As in `EvictionParameters`.
    context : int
        As in `PrefillSelectorParameters`.
    vectors : int
        Input vectors stored at most for each layer and sequence, for tokens that are recomputed.
    popular_above : int, optional
        As in `EvictionParameters`.
    score_shift : int
        Bits that a score loses before it is added to a token's importance.
    score_width : int
        Bits of an importance. Scores have 16, of which `score_shift` are lost, and a prefill adds
        up to ``context * queries`` of them: no sum of it may leave the range, where it would no
        longer tell tokens apart.
    position_bits : int
        Bits of a position.
    base : int
        As in `RotaryEmbeddingParameters`.
    tick_bits, interval_bits : int
        As in `RefreshParameters`.

    Raises
    ------
    ValueError
        If a rule above, or one of a part, is broken.
    """

    rows: Annotated[int, As(SystolicArrayParameters)] = 32
    bands: Annotated[int, As(SystolicArrayParameters)] = 4
    weight_bits: Annotated[int, PowerOfTwo(4, 8, "bits")] = 8
    activation_bits: Annotated[int, As(MatrixUnitParameters)] = 16
    banks: Annotated[int, As(KvEdramParameters)] = 8
    word_bytes: Annotated[int, As(KvEdramParameters)] = 8
    words: Annotated[int, As(KvEdramParameters)] = 16384
    head_size: Annotated[int, Range(2, 256, "channels")] = 64
    layers: Annotated[int, Range(1, 32, "layers")] = 1
    sequences: Annotated[int, Range(1, 64, "sequences")] = 1
    heads: Annotated[int, Range(1, 64, "heads")] = 3
    queries: Annotated[int, Range(1, 16, "heads")] = 3
    feed_forward: Annotated[int, Range(2, 65536, "elements")] = 1536
    vocabulary: Annotated[int, Range(0, 1 << 20, "tokens")] = 0
    slots: Annotated[int, As(SystolicEvictorParameters)] = 512
    window: Annotated[int, As(EvictionParameters)] = 256
    sinks: Annotated[int, As(EvictionParameters)] = 10
    context: Annotated[int, As(PrefillSelectorParameters)] = 2048
    vectors: Annotated[int, Range(1, 32, "vectors")] = 8
    popular_above: Annotated[int | None, As(EvictionParameters)] = None
    score_shift: Annotated[int, As(SystolicEvictorParameters, "shift")] = 2
    score_width: Annotated[int, As(SystolicEvictorParameters)] = 27
    position_bits: Annotated[int, Range(4, 20, "bits")] = 14
    base: Annotated[int, As(RotaryEmbeddingParameters)] = 100_000
    tick_bits: Annotated[int, As(RefreshParameters)] = 20
    interval_bits: Annotated[int, As(RefreshParameters)] = 5

    def __post_init__(self) -> None:
        """Check the rules between the parts; the parts check their own."""
        super().__post_init__()
        require(
            self.head_size % self.rows == 0,
            f"head_size must be a multiple of rows = {self.rows}",
            self.head_size,
        )
        require(
            self.heads * self.queries >= 2,
            "heads * queries must be at least 2",
            self.heads * self.queries,
        )
        require(
            self.feed_forward % self.head_size == 0,
            f"feed_forward must be a multiple of head_size = {self.head_size}",
            self.feed_forward,
        )
        require(
            self.sequences == 1 or not self.vocabulary,
            "vocabulary must be 0 with several sequences",
            self.vocabulary,
        )
        most = self.rows // (2 * self.density)
        require(
            self.bands <= most,
            f"bands must be at most rows * weight_bits / 16, here {most}",
            self.bands,
        )
        least = SCORE_BITS + ceil_log2(self.context * self.queries)
        require(
            self.score_shift + self.score_width >= least,
            f"score_shift + score_width must be at least {SCORE_BITS} and the bits of"
            f" context * queries, {least}",
            self.score_shift + self.score_width,
        )
        # Building the parts' parameters checks them.
        _ = self.array, self.selector, self.memory, self.softmax, self.rotary, self.norm
        row = self.memory.edram.row_channels
        require(
            row % self.rows == 0, f"rows must divide the {row} channels of an eDRAM row", self.rows
        )
        require(
            self.width // 2 % self.rows == 0,
            f"rows must divide half of the {self.width} elements of a hidden state",
            self.rows,
        )

    @property
    def density(self) -> int:
        """Weights in an octet."""
        return 8 // self.weight_bits

    @property
    def block_cycles(self) -> int:
        """Cycles of the keys or values of `rows` slots: of their loads, or of their reads."""
        loads = 2 * self.slices * self.array.array.load_cycles
        return max(loads, self.rows * self.memory.edram.entry_words)

    @property
    def width(self) -> int:
        """Elements of a hidden state."""
        return self.heads * self.queries * self.head_size

    @property
    def query_heads(self) -> int:
        """Query heads of the layer."""
        return self.heads * self.queries

    @property
    def inputs(self) -> int:
        """Slices of `rows` elements in a hidden state."""
        return self.width // self.rows

    @property
    def slices(self) -> int:
        """Slices in a head."""
        return self.head_size // self.rows

    @property
    def feed_heads(self) -> int:
        """Operations for all channels of the feed-forward block, each as wide as a head."""
        return self.feed_forward // self.head_size

    @property
    def products(self) -> int:
        """Slices between the feed-forward matrices."""
        return self.feed_forward // self.rows

    @property
    def vocabulary_heads(self) -> int:
        """Operations for all tokens of the vocabulary, each as many as a head has channels."""
        return -(-self.vocabulary // self.head_size)

    @property
    def prediction_layout(self) -> data.StructLayout:
        """The token that follows, and its sum before rounding."""
        layout = self.array.largest_layout
        return data.StructLayout({"token": layout["number"].shape, "sum": layout["total"].shape})

    @property
    def row_slices(self) -> int:
        """Slices in a row of the eDRAM."""
        return self.memory.edram.row_channels // self.rows

    @property
    def tiles(self) -> int:
        """Tiles of `rows` slots in a head."""
        return self.slots // self.rows

    @property
    def items(self) -> int:
        """Key/value heads of all sequences: how often a layer's attention is computed."""
        return self.sequences * self.heads

    @property
    def caches(self) -> int:
        """How many sets of slots there are: one for each layer and sequence."""
        return self.layers * self.sequences

    @property
    def stored(self) -> int:
        """Input vectors stored at most for a layer."""
        return self.sequences * self.vectors

    @property
    def members(self) -> int:
        """Rows of the combined matrix at most: the arriving tokens and the recomputed ones."""
        return self.sequences + self.stored

    def item(self, sequence: Any, head: Any) -> Any:
        """Return the number of a sequence's head among those of all sequences."""
        return sequence * self.heads + head if self.sequences > 1 else head

    def cache(self, layer: Any, sequence: Any) -> Any:
        """Return the number of a set of slots, the eviction controller's layer."""
        return layer * self.sequences + sequence if self.sequences > 1 else layer

    @property
    def eviction(self) -> EvictionParameters:
        """The eviction controller."""
        return EvictionParameters(
            evictor=SystolicEvictorParameters(
                rows=self.rows,
                slots=self.slots,
                index_width=ceil_log2(self.slots),
                shift=self.score_shift,
                score_width=self.score_width,
            ),
            heads=self.heads,
            layers=self.caches,
            window=self.window,
            sinks=self.sinks,
            position_bits=self.position_bits,
            vectors=self.vectors,
            vector_entries=self.memory.edram.vector_entries,
            popular_above=self.popular_above,
        )

    @property
    def selector(self) -> PrefillSelectorParameters:
        """What chooses the tokens that a prefill keeps."""
        return PrefillSelectorParameters(eviction=self.eviction, context=self.context)

    @property
    def memory(self) -> RefreshedEdramParameters:
        """The refreshed KV eDRAM."""
        return RefreshedEdramParameters(
            edram=KvEdramParameters(
                banks=self.banks,
                word_bytes=self.word_bytes,
                words=self.words,
                head_size=self.head_size,
                slots=self.slots,
                heads=self.caches * self.heads,
                vector_size=self.width,
                vectors=self.caches * self.vectors,
            ),
            tick_bits=self.tick_bits,
            interval_bits=self.interval_bits,
        )

    @property
    def array(self) -> MatrixUnitParameters:
        """The array."""
        return MatrixUnitParameters(
            rows=self.rows,
            bands=self.bands * self.density,
            activation_bits=self.activation_bits,
            vectors=max(self.members, self.queries * self.slices, 2),
            scales=self.layers * self.scales,
            user_width=Shape.cast(self.header_layout).width,
            number_bits=ceil_log2(self.vocabulary_heads * self.head_size) if self.vocabulary else 0,
        )

    @property
    def weights_layout(self) -> data.ArrayLayout:
        """A beat of weights: a row of each band of the array, in as many bits as weights have."""
        row = data.ArrayLayout(self.weight_bits, self.rows)
        return data.ArrayLayout(row, self.array.bands)

    @property
    def softmax(self) -> SoftmaxParameters:
        """The softmax: a row is the scores of all slots and of the arriving token."""
        return SoftmaxParameters(lanes=self.rows, scores=(self.tiles + 1) * self.rows)

    @property
    def norm(self) -> RmsNormParameters:
        """The norms before either block, whose weights belong into the matrices behind them."""
        return RmsNormParameters(lanes=self.rows, width=self.width, rows=min(self.sequences, 4))

    @property
    def activation(self) -> ActivationFunctionsParameters:
        """The gates' SiLU."""
        return ActivationFunctionsParameters(lanes=self.rows)

    @property
    def rotary(self) -> RotaryEmbeddingParameters:
        """The rotary embedding."""
        return RotaryEmbeddingParameters(
            lanes=self.rows,
            head_size=self.head_size,
            base=self.base,
            position_bits=self.position_bits,
        )

    @property
    def slice_layout(self) -> data.ArrayLayout:
        """A slice of a vector."""
        return data.ArrayLayout(signed(16), self.rows)

    @property
    def operand_layout(self) -> data.ArrayLayout:
        """A slice as it meets a tile."""
        return data.ArrayLayout(signed(self.activation_bits), self.rows)

    @property
    def header_layout(self) -> data.StructLayout:
        """What accompanies a result: whose it is, which slice or tile, whether it is the last.

        `index` is the member of the combined matrix, the query head among those that share a key,
        or with `ATTEND` that query head's slice; `sequence` is whose keys or values they are.
        """
        return data.StructLayout(
            {
                "operation": Operation,
                "sequence": self.sequence_bits,
                "head": self.head_bits,
                "part": bits_for(max(self.slices - 1, self.tiles)),
                "index": ceil_log2(max(self.members, self.queries * self.slices, 2)),
                "ends": 1,
            }
        )

    @property
    def head_bits(self) -> int:
        """Bits of the number of an operation's head."""
        return ceil_log2(max(self.query_heads, self.feed_heads, self.vocabulary_heads))

    @property
    def layer_bits(self) -> int:
        """Bits of a layer's number."""
        return max(ceil_log2(self.layers), 1)

    @property
    def sequence_bits(self) -> int:
        """Bits of a sequence's number; none, if there is one."""
        return ceil_log2(self.sequences)

    @property
    def count_shape(self) -> Shape:
        """A number of heads, or of those of all sequences."""
        return Shape.cast(range(max(self.query_heads, self.items) + 1))

    @property
    def scales(self) -> int:
        """Words of scales that a layer has."""
        return self.scale(Operation.ATTEND) + 1

    def scale(self, operation: Operation) -> int:
        """Return where an operation's scales begin among a layer's.

        A projection has one word a slice of a head.
        """
        place = 0
        for projection in PROJECTIONS:
            if projection is operation:
                return place
            place += self.operations(projection) * self.slices
        # Behind them, a word for all scores and one for all of attention.
        return place + (operation is Operation.ATTEND)

    def operations(self, projection: Operation) -> int:
        """Return how many operations a step has of a projection, each as wide as a head."""
        if projection in (Operation.KEY, Operation.VALUE):
            return self.heads
        return self.feed_heads if projection in (Operation.UP, Operation.GATE) else self.query_heads
