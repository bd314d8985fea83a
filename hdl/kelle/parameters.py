"""Dimensions of the Kelle accelerator, counts derived from them, and payloads of its parts."""

from typing import Annotated

from amaranth.hdl import Shape, Value, signed
from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from hdl.kelle.array.matrix_parameters import MatrixUnitParameters
from hdl.kelle.array.systolic_array import SystolicArrayParameters
from hdl.kelle.edram.kv_edram import KvEdramParameters
from hdl.kelle.edram.refresh_walker import RefreshParameters
from hdl.kelle.edram.refreshed_edram import RefreshedEdramParameters
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters
from hdl.kelle.instructions import PROJECTIONS, Operation, operation_layout
from hdl.model_shape import ModelDimensions
from hdl.nonlinear.activation_functions import Activation, ActivationFunctionsParameters
from hdl.nonlinear.layer_norm import LayerNormParameters
from hdl.nonlinear.rms_norm import RmsNormParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.nonlinear.softmax import SoftmaxParameters
from hdl.parameters import As, Parameters, PowerOfTwo, Range, option, parameter_object, require

SCORE_BITS = 16
"""Bits of an attention score."""


@parameter_object
class KelleParameters(ModelDimensions, Parameters):
    """Dimensions of the accelerator; they also drive its golden model and its testbench.

    Parameters
    ----------
    rows, bands : int
        As in `SystolicArrayParameters`, for weights of 8 bits.
    weight_bits : int
        Bits of a weight, 8 or 4. A beat of weights has the same number of bytes in both cases: with
        4 bits the array has twice as many bands.
    activation_bits : int
        Bits of an element of the vectors that are multiplied by tiles, 16 or 8. Hidden states, keys
        and values always have 16.
    weight_memory : int
        Capacity of the weight memory in beats, 2 or more; 0 for no weight memory, so that
        `weights` delivers beats directly.
    channel_bytes : int
        Bytes of a word of `weights` with a weight memory: the off-chip memory's bytes per cycle.
    banks, word_bytes, words : int
        As in `KvEdramParameters`.
    access_ps, clock_mhz : int
        As in `KvEdramParameters`: the access time of the eDRAM, and the clock, which together
        decide the cycles of a read.
    overflow : bool
        Whether the keys and values of heads that do not fit into the eDRAM are in off-chip memory.
        All stored input vectors are in the eDRAM, and the heads from the first one on.
    head_size : int
        Channels of a head: a multiple of `rows`, and of `banks` * `word_bytes`.
    layers : int
        Layers whose keys, values, slots and scales are stored; a step computes one of them.
    batch : int
        Sequences (16 in the paper), each with keys, values and slots of its own.
    block : int, optional
        Maximum number of tokens of a step, which share each tile of weights: tokens of several
        sequences, consecutive tokens of one, or both. By default `batch`, which is the minimum.
    heads : int
        Query heads of a layer. Hidden states have ``heads * head_size`` elements.
    kv_heads : int
        Key/value heads of a layer; a divisor of `heads`, which are at most 16 times as many.
    intermediate_size : int
        Elements between the feed-forward matrices: a multiple of `head_size`.
    vocabulary_size : int
        Tokens of the LM head, which follows the last layer; 0 if it is computed elsewhere.
    slots : int
        Tokens that the cache of a key/value head holds (N').
    window, sinks : int
        As in `EvictionParameters`.
    prefill_tokens : int
        As in `PrefillSelectorParameters`.
    context_length : int
        Tokens of the longest text: positions are less than this number.
    vectors : int
        Maximum number of input vectors stored per layer and sequence, for recomputed tokens.
    popular_above : int, optional
        As in `EvictionParameters`.
    centred : bool
        Whether the importance of an arriving token starts at the median of its head, as in
        `EvictionParameters`, or at zero.
    score_shift : int
        Bits that are dropped from a score before it is added to a token's importance.
    score_width : int
        Bits of an importance. Scores have 16 bits, of which `score_shift` are dropped, and a
        prefill adds up to ``prefill_tokens * group_size`` scores. No sum may saturate, because
        saturated importances do not distinguish tokens.
    rotary : bool
        Whether queries and keys are rotated by the positions of their tokens.
    rope_base : int
        As in `RotaryEmbeddingParameters`.
    layer_norm : bool
        Whether norms subtract the mean (layer norm) or not (RMSNorm). Software folds their weights
        and biases into the matrices that follow.
    biases : bool
        Whether projections have biases; the LM head has none.
    activation : Activation
        Activation function between the feed-forward matrices.
    gated : bool
        Whether the activation is applied to the output of a matrix of its own (`gate_proj`, as in
        SwiGLU) or to the output of the first matrix. A gate's activation must not be ReLU.
    tick_bits, interval_bits : int
        As in `RefreshParameters`.

    Raises
    ------
    ValueError
        If a value breaks a rule above, or a rule of a part.
    """

    rows: Annotated[int, As(SystolicArrayParameters)] = 32
    bands: Annotated[int, As(SystolicArrayParameters)] = 4
    weight_bits: Annotated[int, PowerOfTwo(4, 8, "bits")] = 8
    activation_bits: Annotated[int, As(MatrixUnitParameters)] = 16
    weight_memory: Annotated[int, Range(0, 1 << 20, "beats")] = option(default=0)
    channel_bytes: Annotated[int, PowerOfTwo(1, 256, "bytes")] = option(default=64)
    banks: Annotated[int, As(KvEdramParameters)] = 8
    word_bytes: Annotated[int, As(KvEdramParameters)] = 8
    words: Annotated[int, As(KvEdramParameters)] = 16384
    overflow: bool = option(default=False)
    head_size: Annotated[int, Range(2, 256, "channels")] = 64
    layers: Annotated[int, Range(1, 32, "layers")] = 1
    batch: Annotated[int, Range(1, 64, "sequences")] = 1
    block: Annotated[int | None, Range("batch", 64, "tokens")] = option(default=None)
    heads: Annotated[int, Range(2, 1024, "heads")] = 9
    kv_heads: Annotated[int, Range(1, 64, "heads")] = 3
    intermediate_size: Annotated[int, Range(2, 65536, "elements")] = 1536
    vocabulary_size: Annotated[int, Range(0, 1 << 20, "tokens")] = 0
    slots: Annotated[int, As(SystolicEvictorParameters)] = 512
    window: Annotated[int, As(EvictionParameters)] = 256
    sinks: Annotated[int, As(EvictionParameters)] = 10
    prefill_tokens: Annotated[int, As(PrefillSelectorParameters)] = 2048
    context_length: Annotated[int, PowerOfTwo(16, 1 << 20, "tokens")] = 1 << 14
    vectors: Annotated[int, Range(1, 32, "vectors")] = 8
    popular_above: Annotated[int | None, As(EvictionParameters)] = None
    centred: bool = option(default=False)
    score_shift: Annotated[int, As(SystolicEvictorParameters, "shift")] = 2
    score_width: Annotated[int, As(SystolicEvictorParameters)] = 27
    rotary: bool = option(default=True)
    rope_base: Annotated[int, As(RotaryEmbeddingParameters, "base")] = 100_000
    layer_norm: bool = option(default=False)
    biases: bool = option(default=False)
    activation: Activation = option(default=Activation.SILU)
    gated: bool = option(default=True)
    tick_bits: Annotated[int, As(RefreshParameters)] = 20
    interval_bits: Annotated[int, As(RefreshParameters)] = 5
    access_ps: Annotated[int, As(KvEdramParameters)] = option(default=1900)
    clock_mhz: Annotated[int, As(KvEdramParameters)] = option(default=1000)

    def __post_init__(self) -> None:
        """Check the rules between the parts; the parts check their own."""
        super().__post_init__()
        require(
            self.head_size % self.rows == 0,
            f"head_size must be a multiple of rows = {self.rows}",
            self.head_size,
        )
        self.require_groups()
        rule = f"heads must be at most 16 * kv_heads = {16 * self.kv_heads}"
        require(self.group_size <= 16, rule, self.heads)
        require(
            self.intermediate_size % self.head_size == 0,
            f"intermediate_size must be a multiple of head_size = {self.head_size}",
            self.intermediate_size,
        )
        self._check_options()
        most = self.rows // (2 * self.weights_per_byte)
        require(
            self.bands <= most,
            f"bands must be at most rows * weight_bits / 16, here {most}",
            self.bands,
        )
        least = SCORE_BITS + ceil_log2(self.prefill_tokens * self.group_size)
        require(
            self.score_shift + self.score_width >= least,
            f"score_shift + score_width must be at least {SCORE_BITS} and the bits of"
            f" prefill_tokens * group_size, {least}",
            self.score_shift + self.score_width,
        )
        if self.overflow:
            self._check_overflow()
        # Building the parts' parameters checks them.
        _ = self.array, self.selector, self.memory, self.softmax, self.embedding, self.norm
        row = self.memory.edram.row_channels
        require(
            row % self.rows == 0, f"rows must divide the {row} channels of an eDRAM row", self.rows
        )
        require(
            self.hidden_size // 2 % self.rows == 0,
            f"rows must divide half of the {self.hidden_size} elements of a hidden state",
            self.rows,
        )

    def _check_overflow(self) -> None:
        """Check that some heads are in the eDRAM, and some in off-chip memory."""
        row = self.banks * self.word_bytes
        rule = f"head_size must be a multiple of banks * word_bytes = {row}"
        require(self.head_size % row == 0, rule, self.head_size)
        rule = "words must have room for the input vectors and one head, which take"
        least = self._vector_words + self._head_words
        require(self.words >= least, f"{rule} {least}", self.words)
        rule = f"overflow must be false if all {self.caches * self.kv_heads} heads fit"
        require(self.resident_heads < self.caches * self.kv_heads, rule, self.overflow)

    def _check_options(self) -> None:
        """Check the rules of the layer's options and of the weight memory."""
        require(
            not self.gated or self.activation is not Activation.RELU,
            "activation must be silu or gelu if the feed-forward block is gated",
            self.activation.name.lower(),
        )
        require(
            not self.vocabulary_size or not self.biases,
            "vocabulary_size must be 0 with biases",
            self.vocabulary_size,
        )
        held = self.weight_memory
        require(held != 1, "weight_memory must be 0, or 2 or more", held)
        require(
            not self.weight_memory or self.channel_bytes <= self.beat_bytes <= 256,
            f"channel_bytes must be at most beat_bytes = {self.beat_bytes}, and beat_bytes at most"
            " 256",
            self.channel_bytes,
        )

    @property
    def position_bits(self) -> int:
        """Bits of a position."""
        return ceil_log2(self.context_length)

    # Counts: elements, slices, tiles, heads, and words of scales.

    @property
    def weights_per_byte(self) -> int:
        """Weights per byte."""
        return 8 // self.weight_bits

    @property
    def beat_bytes(self) -> int:
        """Bytes of a beat of weights."""
        return self.bands * self.rows

    @property
    def hidden_size(self) -> int:
        """Elements of a hidden state: as many as the queries of all heads have."""
        return self.query_size

    @property
    def hidden_slices(self) -> int:
        """Slices of `rows` elements in a hidden state."""
        return self.hidden_size // self.rows

    @property
    def head_slices(self) -> int:
        """Slices of `rows` elements in a head."""
        return self.head_size // self.rows

    @property
    def feed_forward_operations(self) -> int:
        """Operations for all channels of the feed-forward block, `head_size` channels each."""
        return self.intermediate_size // self.head_size

    @property
    def intermediate_slices(self) -> int:
        """Slices of the intermediate vector of the feed-forward block."""
        return self.intermediate_size // self.rows

    @property
    def vocabulary_operations(self) -> int:
        """Operations for all tokens of the vocabulary, `head_size` tokens each."""
        return -(-self.vocabulary_size // self.head_size)

    @property
    def cache_tiles(self) -> int:
        """Tiles of `rows` slots in a head's cache."""
        return self.slots // self.rows

    @property
    def step_tokens(self) -> int:
        """Maximum number of tokens that arrive in a step."""
        return self.batch if self.block is None else self.block

    @property
    def token_heads(self) -> int:
        """Key/value heads for all tokens of a step: the number of attentions of a layer."""
        return self.step_tokens * self.kv_heads

    @property
    def caches(self) -> int:
        """Sets of slots, one for each layer and sequence."""
        return self.layers * self.batch

    @property
    def _head_words(self) -> int:
        """Words of a bank for the slots of a head."""
        return self.slots * self.entry_words

    @property
    def _vector_words(self) -> int:
        """Words of a bank for all stored input vectors."""
        entries = -(-self.hidden_size // (2 * self.head_size))
        return self.caches * self.vectors * entries * self.entry_words

    @property
    def entry_words(self) -> int:
        """Rows of the eDRAM per key, as in `KvEdramParameters`."""
        return self.head_size // (self.banks * self.word_bytes)

    @property
    def resident_heads(self) -> int:
        """Heads of all layers and sequences whose keys and values are in the eDRAM."""
        if not self.overflow:
            return self.caches * self.kv_heads
        return (self.words - self._vector_words) // self._head_words

    @property
    def overflow_layout(self) -> data.StructLayout:
        """Place of a row in off-chip memory: `side` as in `SIDES`, and its `address` there.

        The rows of the heads that are not in the eDRAM have consecutive addresses, head by head,
        slot by slot.
        """
        rows = (self.caches * self.kv_heads - self.resident_heads) * self._head_words
        return data.StructLayout({"side": 1, "address": max(ceil_log2(rows), 1)})

    @property
    def layer_vectors(self) -> int:
        """Maximum number of stored input vectors of a layer, those of all sequences."""
        return self.batch * self.vectors

    @property
    def members(self) -> int:
        """Maximum number of rows of the combined matrix: arriving and recomputed tokens."""
        return self.step_tokens + self.layer_vectors

    def of_tokens(self, last_token: Value, each: int) -> Value | int:
        """Return how many items the tokens of a step have, from the index of the last token."""
        return (last_token + 1) * each if self.step_tokens > 1 else each

    def token_item(self, token: Value, count: int, item: Value) -> Value:
        """Return the index of one of a token's `count` items among those of all tokens."""
        return token * count + item if self.step_tokens > 1 else item

    def token_head(self, token: Value, head: Value) -> Value:
        """Return the index of a head for a token among the heads for all tokens of a step."""
        return self.token_item(token, self.kv_heads, head)

    def item_of_tokens(self, item: Value, token: Value) -> Value:
        """Return the index of a token's item if the items with equal numbers are adjacent."""
        return item * self.step_tokens + token if self.step_tokens > 1 else item

    def cache(self, layer: Value, sequence: Value) -> Value:
        """Return the index of a set of slots; the eviction controller's `layer`."""
        return layer * self.batch + sequence if self.batch > 1 else layer

    @property
    def head_bits(self) -> int:
        """Bits of the number of an operation's head."""
        return ceil_log2(max(self.heads, self.feed_forward_operations, self.vocabulary_operations))

    @property
    def layer_bits(self) -> int:
        """Bits of a layer's number."""
        return max(ceil_log2(self.layers), 1)

    @property
    def sequence_bits(self) -> int:
        """Bits of a sequence's number; 0 with one sequence."""
        return ceil_log2(self.batch)

    @property
    def token_bits(self) -> int:
        """Bits of the index of a token of a step; 0 with one token."""
        return ceil_log2(self.step_tokens)

    @property
    def token_shape(self) -> Shape:
        """Shape of a signal with the index of a token of a step."""
        return Shape(max(self.token_bits, 1))

    @property
    def count_shape(self) -> Shape:
        """Shape of a count of query heads, or of the key/value heads for all tokens."""
        return Shape.cast(range(max(self.heads, self.token_heads) + 1))

    @property
    def scales(self) -> int:
        """Words of scales per layer."""
        return self.scale(Operation.ATTEND) + 1

    def scale(self, operation: Operation) -> int:
        """Return the index of an operation's first word of scales within its layer.

        A projection has one word per slice of a head.
        """
        place = 0
        for projection in PROJECTIONS:
            if projection is operation:
                return place
            place += self.operations(projection) * self.head_slices
        # They are followed by one word for all scores and one for all of attention.
        return place + (operation is Operation.ATTEND)

    def operations(self, projection: Operation) -> int:
        """Return the number of operations of a projection per step, `head_size` channels each."""
        if projection in (Operation.KEY, Operation.VALUE):
            return self.kv_heads
        if projection is Operation.GATE and not self.gated:
            return 0
        return (
            self.feed_forward_operations
            if projection in (Operation.UP, Operation.GATE)
            else self.heads
        )

    # Dimensions of the parts, and payloads of their streams.

    @property
    def block_cycles(self) -> int:
        """Cycles to load or to read the keys or values of `rows` slots, whichever is longer."""
        loads = 2 * self.head_slices * self.array.array.load_cycles
        return max(loads, self.rows * self.memory.edram.entry_words)

    @property
    def prediction_layout(self) -> data.StructLayout:
        """A prediction: the argmax `token`, and its `sum` before rounding."""
        layout = self.array.largest_layout
        return data.StructLayout({"token": layout["number"].shape, "sum": layout["total"].shape})

    @property
    def row_slices(self) -> int:
        """Slices of `rows` channels in a row of the eDRAM."""
        return self.memory.edram.row_channels // self.rows

    @property
    def eviction(self) -> EvictionParameters:
        """Dimensions of the eviction controller, which treats each sequence as a layer."""
        return EvictionParameters(
            evictor=SystolicEvictorParameters(
                rows=self.rows,
                slots=self.slots,
                index_width=ceil_log2(self.slots),
                shift=self.score_shift,
                score_width=self.score_width,
            ),
            kv_heads=self.kv_heads,
            layers=self.caches,
            window=self.window,
            sinks=self.sinks,
            position_bits=self.position_bits,
            vectors=self.vectors,
            vector_entries=self.memory.edram.vector_entries,
            popular_above=self.popular_above,
            centred=self.centred,
            resident_heads=self.resident_heads if self.overflow else None,
        )

    @property
    def selector(self) -> PrefillSelectorParameters:
        """Dimensions of the selector of the tokens that a prefill keeps."""
        return PrefillSelectorParameters(eviction=self.eviction, prefill_tokens=self.prefill_tokens)

    @property
    def memory(self) -> RefreshedEdramParameters:
        """Dimensions of the refreshed KV eDRAM."""
        return RefreshedEdramParameters(
            edram=KvEdramParameters(
                banks=self.banks,
                word_bytes=self.word_bytes,
                words=self.words,
                head_size=self.head_size,
                slots=self.slots,
                kv_heads=self.resident_heads,
                vector_size=self.hidden_size,
                vectors=self.caches * self.vectors,
                access_ps=self.access_ps,
                clock_mhz=self.clock_mhz,
            ),
            tick_bits=self.tick_bits,
            interval_bits=self.interval_bits,
        )

    @property
    def array(self) -> MatrixUnitParameters:
        """Dimensions of the array with its output stage.

        As many lanes share a requantiser as do not slow the array down: it completes one vector of
        a projection per pass over the input's slices, and a group's vectors of scores per tile. The
        evictor compares a tile's scores, those of a group's last query head, every `rows` cycles.
        """
        totals = self.vocabulary_operations * self.head_size if self.vocabulary_size else 0
        load_cycles = self.rows // (self.bands * self.weights_per_byte)
        scores = max(self.rows, 2 * self.head_slices * max(load_cycles, self.group_size))
        most = min(scores // self.group_size, self.hidden_slices, self.rows)
        shared = 1 << (most.bit_length() - 1)
        return MatrixUnitParameters(
            rows=self.rows,
            bands=self.bands * self.weights_per_byte,
            activation_bits=self.activation_bits,
            vectors=max(self.members, self.group_size * self.head_slices, 2),
            stages=6,
            shared=shared,
            spacing=max(shared, -(-self.rows // self.group_size)),
            scales=self.layers * self.scales,
            user_width=Shape.cast(self.header_layout).width,
            compared=totals,
            biases=self.biases,
        )

    @property
    def weights_layout(self) -> data.ArrayLayout:
        """A beat of weights: one row of each band of the array, `weight_bits` bits per weight."""
        row = data.ArrayLayout(self.weight_bits, self.rows)
        return data.ArrayLayout(row, self.array.bands)

    @property
    def channel_layout(self) -> data.ArrayLayout:
        """Payload of `weights`: a word with a weight memory, or else a beat."""
        if not self.weight_memory:
            return self.weights_layout
        return data.ArrayLayout(8, self.channel_bytes)

    @property
    def softmax(self) -> SoftmaxParameters:
        """Dimensions of the softmax; a row has the scores of all slots and the arriving token's."""
        return SoftmaxParameters(
            lanes=self.rows, scores=(self.cache_tiles + 1) * self.rows, divided=True
        )

    @property
    def norm(self) -> RmsNormParameters | LayerNormParameters:
        """Dimensions of the norms; the matrices that follow contain the norms' weights."""
        width, rows = self.hidden_size, min(self.step_tokens, 4)
        if self.layer_norm:
            return LayerNormParameters(lanes=self.rows, width=width, rows=rows, registered=True)
        return RmsNormParameters(lanes=self.rows, width=width, rows=rows, divided=True)

    @property
    def scaled_products(self) -> bool:
        """Whether the intermediate vector has a quantisation step of its own, rather than Q6.10."""
        return self.gated or self.activation is Activation.RELU

    @property
    def functions(self) -> ActivationFunctionsParameters:
        """Dimensions of the activation unit, for an activation with a table (not ReLU).

        A gate's activation and product have the fewest lanes with which a slice is complete while
        the array multiplies the slices of a hidden state.
        """
        fewest = 1 << ceil_log2(-(-self.rows // self.hidden_slices))
        return ActivationFunctionsParameters(lanes=fewest if self.gated else self.rows)

    @property
    def product_pieces(self) -> int:
        """Pieces in which a slice of gates is activated and multiplied."""
        return self.rows // self.functions.lanes

    @property
    def embedding(self) -> RotaryEmbeddingParameters:
        """Dimensions of the rotary embedding.

        Only queries and keys are rotated. The embedding has the fewest lanes with which a head is
        rotated while the array multiplies a slice of the next head.
        """
        fewest = -(-self.head_size // self.hidden_slices)
        return RotaryEmbeddingParameters(
            lanes=max(1 << ceil_log2(fewest), 2),
            head_size=self.head_size,
            base=self.rope_base,
            position_bits=self.position_bits,
            stages=7,
        )

    @property
    def rotary_pieces(self) -> int:
        """Pieces in which a slice passes the rotary embedding."""
        return self.rows // self.embedding.lanes

    @property
    def slice_layout(self) -> data.ArrayLayout:
        """A slice of a vector: `rows` elements of 16 bits."""
        return data.ArrayLayout(signed(16), self.rows)

    @property
    def operand_layout(self) -> data.ArrayLayout:
        """A slice as an operand of the array, `activation_bits` bits per element."""
        return data.ArrayLayout(signed(self.activation_bits), self.rows)

    @property
    def header_layout(self) -> data.StructLayout:
        """Header of a result: operation, token, head, slice or tile, and whether it is the last.

        `index` is the member of the combined matrix, or the query head within the group of its
        key/value head, with `ATTEND` that query head and slice. `token` is the arriving token that
        attends. `ends` is 1 for the last result of an operation.
        """
        return data.StructLayout(
            {
                "operation": Operation,
                "token": self.token_bits,
                "head": self.head_bits,
                "part": bits_for(max(self.head_slices - 1, self.cache_tiles)),
                "index": ceil_log2(max(self.members, self.group_size * self.head_slices, 2)),
                "ends": 1,
            }
        )

    @property
    def operation_layout(self) -> data.StructLayout:
        """One instruction of the step's program."""
        return operation_layout(token_bits=self.token_bits, head_bits=self.head_bits)

    @property
    def arriving_layout(self) -> data.StructLayout:
        """A token of a step: position, sequence, and whether it is the step's last one."""
        return data.StructLayout(
            {
                "position": self.position_bits,
                "sequence": self.sequence_bits,
                "last": int(self.step_tokens > 1),
            }
        )

    @property
    def sequences_layout(self) -> data.ArrayLayout:
        """Sequence of each token of a step."""
        return data.ArrayLayout(max(self.sequence_bits, 1), self.step_tokens)

    @property
    def member_layout(self) -> data.StructLayout:
        """A row of the combined matrix: index and position of its token's vector.

        The stored vectors of all sequences have the lowest indices, sequence by sequence; the
        vectors of the arriving tokens follow them.
        """
        return data.StructLayout(
            {"vector": bits_for(self.members - 1), "position": self.position_bits}
        )

    @property
    def store_layout(self) -> data.StructLayout:
        """A token that became popular, with its sequence."""
        members = self.eviction.promoted_layout.members
        return data.StructLayout(members | {"sequence": self.sequence_bits})

    @property
    def placement_layout(self) -> data.StructLayout:
        """The recorded placement in a head: slots in use before it, slot, and source of its victim.

        The victim is recomputed from a vector, or else read from the eDRAM.
        """
        return data.StructLayout(
            {
                "residents": bits_for(self.slots),
                "slot": self.eviction.evictor.index_width,
                "recomputed": 1,
                "vector": self.eviction.vector_bits,
            }
        )

    @property
    def format_layout(self) -> data.StructLayout:
        """How a slot's token is stored: as key and value, or `recomputed` from `vector`."""
        return data.StructLayout({"recomputed": 1, "vector": self.eviction.vector_bits})

    def slice_write(self, depth: int) -> data.StructLayout:
        """Return the layout of a write of a slice: `address` and `values`, valid while `strobe`."""
        return data.StructLayout(
            {"strobe": 1, "address": ceil_log2(max(depth, 2)), "values": self.slice_layout}
        )

    @property
    def computed_layout(self) -> data.StructLayout:
        """A slice of a computed key or value; `vector` as in `member_layout`."""
        return data.StructLayout(
            {
                "strobe": 1,
                "vector": bits_for(self.members - 1),
                "head": self.head_bits,
                "part": bits_for(self.head_slices - 1),
                "values": self.slice_layout,
            }
        )

    @property
    def row_write(self) -> data.StructLayout:
        """A row of keys and a row of values to write into the KV eDRAM."""
        edram = self.memory.edram
        return data.StructLayout(
            {"address": edram.address_bits, "keys": edram.row_layout, "values": edram.row_layout}
        )
