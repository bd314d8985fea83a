"""Dimensions of the Kelle accelerator, and what its parts tell each other."""

from typing import Annotated

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
from hdl.kelle.operations import Operation
from hdl.kelle.sizes import Sizes
from hdl.nonlinear.activation_functions import Activation, ActivationFunctionsParameters
from hdl.nonlinear.layer_norm import LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.nonlinear.softmax import SoftmaxParameters
from hdl.parameters import As, Parameters, PowerOfTwo, Range, option, parameter_object, require

SCORE_BITS = 16
"""Bits of a score."""


@parameter_object
class KelleParameters(Sizes, Parameters):
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
    weight_memory : int
        Beats of weights that are held on chip before they are needed, 2 or more; 0 if they come
        from outside beat by beat.
    channel_bytes : int
        Octets of a word of `weights` where they are held: what off-chip memory gives a cycle.
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
    rotary : bool
        Whether queries and keys are rotated by their tokens' positions.
    base : int
        As in `RotaryEmbeddingParameters`.
    layer_norm : bool
        Whether norms take the mean off (layer norm), or not (RMSNorm). Their weights and biases
        belong into the matrices behind them.
    biases : bool
        Whether projections have biases; the vocabulary's has none.
    activation : Activation
        Between the feed-forward matrices.
    gated : bool
        Whether the activation's input is a matrix of its own, the gate, or what the first matrix
        makes; a gate's activation is no ReLU.
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
    weight_memory: Annotated[int, Range(0, 1 << 20, "beats")] = option(default=0)
    channel_bytes: Annotated[int, PowerOfTwo(1, 256, "octets")] = option(default=64)
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
    rotary: bool = option(default=True)
    base: Annotated[int, As(RotaryEmbeddingParameters)] = 100_000
    layer_norm: bool = option(default=False)
    biases: bool = option(default=False)
    activation: Activation = option(default=Activation.SILU)
    gated: bool = option(default=True)
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
        self._check_options()
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
        _ = self.array, self.selector, self.memory, self.softmax, self.embedding, self.norm
        row = self.memory.edram.row_channels
        require(
            row % self.rows == 0, f"rows must divide the {row} channels of an eDRAM row", self.rows
        )
        require(
            self.width // 2 % self.rows == 0,
            f"rows must divide half of the {self.width} elements of a hidden state",
            self.rows,
        )

    def _check_options(self) -> None:
        """Check the rules of what a layer has, and of the memory of weights."""
        require(
            not self.gated or self.activation is not Activation.RELU,
            "activation must be silu or gelu if the feed-forward block is gated",
            self.activation.name.lower(),
        )
        require(
            not self.vocabulary or not self.biases,
            "vocabulary must be 0 with biases",
            self.vocabulary,
        )
        held = self.weight_memory
        require(held != 1, "weight_memory must be 0, or 2 or more", held)
        require(
            not self.weight_memory or self.channel_bytes <= self.beat_bytes <= 256,
            f"channel_bytes must be at most a beat's, {self.beat_bytes}, and those at most 256",
            self.channel_bytes,
        )

    @property
    def block_cycles(self) -> int:
        """Cycles of the keys or values of `rows` slots: of their loads, or of their reads."""
        loads = 2 * self.slices * self.array.array.load_cycles
        return max(loads, self.rows * self.memory.edram.entry_words)

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
            biases=self.biases,
        )

    @property
    def weights_layout(self) -> data.ArrayLayout:
        """A beat of weights: a row of each band of the array, in as many bits as weights have."""
        row = data.ArrayLayout(self.weight_bits, self.rows)
        return data.ArrayLayout(row, self.array.bands)

    @property
    def channel_layout(self) -> data.ArrayLayout:
        """What `weights` brings at once: a word where they are held, or a beat."""
        if not self.weight_memory:
            return self.weights_layout
        return data.ArrayLayout(8, self.channel_bytes)

    @property
    def softmax(self) -> SoftmaxParameters:
        """The softmax: a row is the scores of all slots and of the arriving token."""
        return SoftmaxParameters(lanes=self.rows, scores=(self.tiles + 1) * self.rows)

    @property
    def norm(self) -> RmsNormParameters | LayerNormParameters:
        """The norms before either block, whose weights belong into the matrices behind them."""
        kind = LayerNormParameters if self.layer_norm else RmsNormParameters
        return kind(lanes=self.rows, width=self.width, rows=min(self.sequences, 4))

    @property
    def scaled_products(self) -> bool:
        """Whether what lies between the feed-forward matrices has a step of its own, or Q6.10."""
        return self.gated or self.activation is Activation.RELU

    @property
    def functions(self) -> ActivationFunctionsParameters:
        """The activation, where it is none that needs no table."""
        return ActivationFunctionsParameters(lanes=self.rows)

    @property
    def embedding(self) -> RotaryEmbeddingParameters:
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
