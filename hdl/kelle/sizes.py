"""Counts derived from the dimensions of the Kelle accelerator, and their bits."""

from typing import Any

from amaranth.hdl import Shape
from amaranth.utils import ceil_log2

from hdl.kelle.instructions import PROJECTIONS, Operation
from hdl.model_shape import ModelDimensions


class Sizes(ModelDimensions):
    """Derived counts of `KelleParameters`: elements, slices, tiles, heads, and words of scales."""

    rows: int
    bands: int
    weight_bits: int
    head_size: int
    layers: int
    batch: int
    heads: int
    kv_heads: int
    intermediate_size: int
    gated: bool
    vocabulary_size: int
    slots: int
    vectors: int

    @property
    def density(self) -> int:
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
    def inputs(self) -> int:
        """Slices of `rows` elements in a hidden state."""
        return self.hidden_size // self.rows

    @property
    def slices(self) -> int:
        """Slices of `rows` elements in a head."""
        return self.head_size // self.rows

    @property
    def feed_heads(self) -> int:
        """Operations for all channels of the feed-forward block, `head_size` channels each."""
        return self.intermediate_size // self.head_size

    @property
    def products(self) -> int:
        """Slices of the intermediate vector of the feed-forward block."""
        return self.intermediate_size // self.rows

    @property
    def vocabulary_heads(self) -> int:
        """Operations for all tokens of the vocabulary, `head_size` tokens each."""
        return -(-self.vocabulary_size // self.head_size)

    @property
    def tiles(self) -> int:
        """Tiles of `rows` slots in a head's cache."""
        return self.slots // self.rows

    @property
    def items(self) -> int:
        """Key/value heads of all sequences: the number of attentions of a layer."""
        return self.batch * self.kv_heads

    @property
    def caches(self) -> int:
        """Sets of slots, one for each layer and sequence."""
        return self.layers * self.batch

    @property
    def stored(self) -> int:
        """Maximum number of stored input vectors of a layer."""
        return self.batch * self.vectors

    @property
    def members(self) -> int:
        """Maximum number of rows of the combined matrix: arriving and recomputed tokens."""
        return self.batch + self.stored

    def item(self, sequence: Any, head: Any) -> Any:
        """Return the index of a sequence's head among the heads of all sequences."""
        return sequence * self.kv_heads + head if self.batch > 1 else head

    def cache(self, layer: Any, sequence: Any) -> Any:
        """Return the index of a set of slots; the eviction controller's `layer`."""
        return layer * self.batch + sequence if self.batch > 1 else layer

    @property
    def head_bits(self) -> int:
        """Bits of the number of an operation's head."""
        return ceil_log2(max(self.heads, self.feed_heads, self.vocabulary_heads))

    @property
    def layer_bits(self) -> int:
        """Bits of a layer's number."""
        return max(ceil_log2(self.layers), 1)

    @property
    def sequence_bits(self) -> int:
        """Bits of a sequence's number; 0 with one sequence."""
        return ceil_log2(self.batch)

    @property
    def count_shape(self) -> Shape:
        """Shape of a count of query heads, or of the key/value heads of all sequences."""
        return Shape.cast(range(max(self.heads, self.items) + 1))

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
            place += self.operations(projection) * self.slices
        # They are followed by one word for all scores and one for all of attention.
        return place + (operation is Operation.ATTEND)

    def operations(self, projection: Operation) -> int:
        """Return the number of operations of a projection per step, `head_size` channels each."""
        if projection in (Operation.KEY, Operation.VALUE):
            return self.kv_heads
        if projection is Operation.GATE and not self.gated:
            return 0
        return self.feed_heads if projection in (Operation.UP, Operation.GATE) else self.heads
