"""Dimensions of the Kelle accelerator, and what its parts tell each other."""

from typing import Annotated

from amaranth.hdl import Shape, signed
from amaranth.lib import data, enum
from amaranth.utils import bits_for, ceil_log2

from hdl.kelle.array.matrix_unit import MatrixUnitParameters
from hdl.kelle.array.systolic_array import SystolicArrayParameters
from hdl.kelle.edram.kv_edram import KvEdramParameters
from hdl.kelle.edram.refresh_walker import RefreshParameters
from hdl.kelle.edram.refreshed_edram import RefreshedEdramParameters
from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from hdl.kelle.eviction.systolic_evictor import SystolicEvictorParameters
from hdl.nonlinear.rotary_embedding import RotaryEmbeddingParameters
from hdl.nonlinear.softmax import SoftmaxParameters
from hdl.parameters import As, Parameters, Range, parameter_object, require

SCORE_BITS = 16
"""Bits of a score."""


class Operation(enum.Enum, shape=3):
    """What the array works on, each for one head."""

    QUERY = 0
    """A query head of the arriving token: x W_Q, rotated."""

    KEY = 1
    """A key of the arriving and of all recomputed tokens: x W_K, rotated."""

    VALUE = 2
    """Their values: x W_V."""

    OUTPUT = 3
    """A head's worth of the block's output: y W_O."""

    SCORE = 4
    """Scores of the cached tokens, and the search for the victim."""

    OWN = 5
    """The arriving token's own scores."""

    ATTEND = 6
    """Probabilities times values, the arriving token's included."""


PROJECTIONS = (Operation.QUERY, Operation.KEY, Operation.VALUE, Operation.OUTPUT)
"""Operations whose weights come from outside; the others' come from the KV eDRAM."""


@parameter_object
class KelleParameters(Parameters):
    """Dimensions of the accelerator; they also drive its golden model and its testbench.

    Parameters
    ----------
    rows, bands : int
        As in `SystolicArrayParameters`.
    banks, word_bytes, words : int
        As in `KvEdramParameters`.
    head_size : int
        Channels of a head: a multiple of `rows`, and of `banks` * `word_bytes`.
    heads : int
        Key/value heads.
    queries : int
        Query heads that share a key/value head. Hidden states have
        ``heads * queries * head_size`` elements.
    slots : int
        Tokens cached a head (N').
    window, sinks : int
        As in `EvictionParameters`.
    context : int
        As in `PrefillSelectorParameters`.
    vectors : int
        Input vectors stored at most, for tokens that are recomputed.
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
    banks: Annotated[int, As(KvEdramParameters)] = 8
    word_bytes: Annotated[int, As(KvEdramParameters)] = 8
    words: Annotated[int, As(KvEdramParameters)] = 16384
    head_size: Annotated[int, Range(2, 256, "channels")] = 64
    heads: Annotated[int, Range(1, 64, "heads")] = 3
    queries: Annotated[int, Range(1, 16, "heads")] = 3
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
        most = min(self.rows // 2, 2 * self.head_size // self.rows)
        require(
            self.bands <= most,
            f"bands must be at most rows / 2 and 2 * head_size / rows, here {most}",
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
        _ = self.array, self.selector, self.memory, self.softmax, self.rotary
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
    def row_slices(self) -> int:
        """Slices in a row of the eDRAM."""
        return self.memory.edram.row_channels // self.rows

    @property
    def tiles(self) -> int:
        """Tiles of `rows` slots in a head."""
        return self.slots // self.rows

    @property
    def members(self) -> int:
        """Rows of the combined matrix at most: the arriving token and the recomputed ones."""
        return self.vectors + 1

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
                heads=self.heads,
                vector_size=self.width,
                vectors=self.vectors,
            ),
            tick_bits=self.tick_bits,
            interval_bits=self.interval_bits,
        )

    @property
    def array(self) -> MatrixUnitParameters:
        """The array."""
        return MatrixUnitParameters(
            rows=self.rows,
            bands=self.bands,
            vectors=max(self.members, self.queries * self.slices, 2),
            scales=2 * (self.query_heads + self.heads) * self.slices + 2,
            user_width=Shape.cast(header_layout(self)).width,
        )

    @property
    def softmax(self) -> SoftmaxParameters:
        """The softmax: a row is the scores of all slots and of the arriving token."""
        return SoftmaxParameters(lanes=self.rows, scores=(self.tiles + 1) * self.rows)

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
        """A slice of a vector: what meets a tile."""
        return data.ArrayLayout(signed(16), self.rows)

    @property
    def head_bits(self) -> int:
        """Bits of the number of a query head."""
        return ceil_log2(self.query_heads)

    @property
    def count_shape(self) -> Shape:
        """A number of heads."""
        return Shape.cast(range(self.query_heads + 1))

    def scale(self, operation: Operation) -> int:
        """Return where an operation's scales begin; a projection has one word a slice of a head."""
        heads = {
            Operation.QUERY: 0,
            Operation.KEY: self.query_heads,
            Operation.VALUE: self.query_heads + self.heads,
            Operation.OUTPUT: self.query_heads + 2 * self.heads,
        }
        if operation in heads:
            return heads[operation] * self.slices
        # Behind them, a word for all scores and one for all of attention.
        last = 2 * (self.query_heads + self.heads) * self.slices
        return last + (operation is Operation.ATTEND)


def operation_layout(p: KelleParameters) -> data.StructLayout:
    """Return an entry of the step's program."""
    return data.StructLayout({"operation": Operation, "head": p.head_bits})


def header_layout(p: KelleParameters) -> data.StructLayout:
    """Return what accompanies a result: whose it is, which slice or tile, whether it is the last.

    `index` is the member of the combined matrix, the query head among those that share a key, or
    with `ATTEND` that query head's slice.
    """
    return data.StructLayout(
        {
            "operation": Operation,
            "head": p.head_bits,
            "part": bits_for(max(p.slices - 1, p.tiles)),
            "index": ceil_log2(max(p.members, p.queries * p.slices, 2)),
            "ends": 1,
        }
    )


def member_layout(p: KelleParameters) -> data.StructLayout:
    """Return a row of the combined matrix: where its token's vector is, and its position.

    The arriving token's vector is behind all stored ones.
    """
    return data.StructLayout({"vector": bits_for(p.vectors), "position": p.position_bits})


def placement_record(p: KelleParameters) -> data.StructLayout:
    """Return what is kept of a head's placement: the slot, and how its victim was stored."""
    return data.StructLayout(
        {
            "slot": p.eviction.evictor.index_width,
            "recomputed": 1,
            "vector": p.eviction.vector_bits,
        }
    )


def slice_write(p: KelleParameters, depth: int) -> data.StructLayout:
    """Return a slice on its way into a memory."""
    return data.StructLayout(
        {"strobe": 1, "address": ceil_log2(max(depth, 2)), "values": p.slice_layout}
    )


def computed_layout(p: KelleParameters) -> data.StructLayout:
    """Return a slice of a key or value just computed; the last vector is the arriving token's."""
    return data.StructLayout(
        {
            "strobe": 1,
            "vector": bits_for(p.vectors),
            "head": p.head_bits,
            "part": bits_for(p.slices - 1),
            "values": p.slice_layout,
        }
    )


def row_write(p: KelleParameters) -> data.StructLayout:
    """Return a row of keys and a row of values on their way into the KV eDRAM."""
    row = p.memory.edram.row_layout
    return data.StructLayout({"address": p.memory.edram.address_bits, "keys": row, "values": row})
