"""Counts that follow from the dimensions of the Kelle accelerator, and their widths."""

from typing import Any

from amaranth.hdl import Shape
from amaranth.utils import ceil_log2

from hdl.kelle.operations import PROJECTIONS, Operation


class Sizes:
    """What `KelleParameters` counts: elements, slices, tiles, heads, and the words of scales."""

    rows: int
    bands: int
    weight_bits: int
    head_size: int
    layers: int
    sequences: int
    heads: int
    queries: int
    feed_forward: int
    gated: bool
    vocabulary: int
    slots: int
    vectors: int

    @property
    def density(self) -> int:
        """Weights in an octet."""
        return 8 // self.weight_bits

    @property
    def beat_bytes(self) -> int:
        """Octets of a beat of weights."""
        return self.bands * self.rows

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
        if projection is Operation.GATE and not self.gated:
            return 0
        return self.feed_heads if projection in (Operation.UP, Operation.GATE) else self.query_heads
