"""Dimensions, policy and payloads of Kelle's eviction controller and slot table."""

from dataclasses import field
from typing import Annotated

from amaranth.hdl import Const, Value, signed
from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from hdl.kelle.eviction.systolic_evictor import ScoreSource, SystolicEvictorParameters
from hdl.parameters import Parameters, Range, option, parameter_object, require


@parameter_object
class EvictionParameters(Parameters):
    """Dimensions and policy of the eviction controller and its slot table.

    Parameters
    ----------
    evictor : SystolicEvictorParameters
        Dimensions of the evictor; its slots are the token budget N' of a head.
    kv_heads : int
        Key/value heads of a layer.
    resident_heads : int, optional
        Heads of all layers whose slots have entries in the KV eDRAM, from head 0 on; by default
        all. The keys and values of the others are in off-chip memory, which is not refreshed.
    layers : int
        Layers whose slots and stored vectors are held; the unit processes one layer at a time.
    window : int
        Number of most recent tokens that are never evicted, the arriving one included (W).
    sinks : int
        Number of first tokens of the text that are never evicted.
    position_bits : int
        Bits of a token's position.
    score_bits : int
        Bits of a coarse score, which the refresh controllers use.
    vectors : int
        Maximum number of input vectors stored per layer, for recomputed tokens.
    vector_entries : int
        Entries of the KV eDRAM per stored input vector.
    popular_above : int, optional
        A token is popular if it is important to more than this many heads (theta * kv_heads); by
        default, half of the heads.
    evict_before : bool
        Whether the victim is chosen by the scores up to the previous step, so that it does not take
        part in the attention of the current step.
    centred : bool
        Whether an arriving token's importance starts at the tracked median of its head instead of
        zero. Sums of raw scores that start at zero depend on the age of a token: in a head whose
        scores are mostly positive, the youngest token has the least. Requires raw scores and
        victims of the current step.

    Raises
    ------
    ValueError
        If a value is out of range, or no slot could be evicted.
    """

    evictor: SystolicEvictorParameters = field(default_factory=SystolicEvictorParameters)
    kv_heads: Annotated[int, Range(1, 64, "heads")] = 32
    layers: Annotated[int, Range(1, 1024, "layers")] = 1
    window: Annotated[int, Range(2, 4096, "tokens")] = 1024
    sinks: Annotated[int, Range(0, 4096, "tokens")] = 10
    position_bits: Annotated[int, Range(4, 24, "bits")] = 16
    score_bits: Annotated[int, Range(1, 8, "bits")] = 4
    vectors: Annotated[int, Range(0, 64, "vectors")] = 16
    vector_entries: Annotated[int, Range(1, 64, "entries")] = 16
    popular_above: Annotated[int | None, Range(0, "kv_heads", "heads")] = None
    evict_before: bool = False
    centred: bool = option(default=False)
    resident_heads: Annotated[int | None, Range(1, "cached_heads", "heads")] = option(default=None)

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        rule = "layers * kv_heads must be at most 2048"
        require(self.cached_heads <= 2048, rule, self.cached_heads)
        least = self.sinks + self.window + 1
        require(
            self.evictor.slots >= least,
            f"slots must be at least sinks + window + 1 = {least}",
            self.evictor.slots,
        )
        require(
            not self.centred or not self.evict_before,
            "evict_before must be false with centred",
            self.evict_before,
        )
        require(
            not self.centred or self.evictor.source is ScoreSource.RAW,
            "evictor.source must be raw with centred",
            self.evictor.source.value,
        )

    @property
    def popular_heads(self) -> int:
        """Number of heads that the heads of a popular token must exceed."""
        return self.kv_heads // 2 if self.popular_above is None else self.popular_above

    def is_sink(self, position: Value) -> Value:
        """Return whether a position is that of a sink."""
        return position < self.sinks if self.sinks else Const(0)

    def is_popular(self, keepers: Value) -> Value:
        """Return whether a token is popular, by the number of heads that keep it."""
        return keepers > self.popular_heads if self.popular_heads < self.kv_heads else Const(0)

    @property
    def tiles(self) -> int:
        """Tiles of a head."""
        return self.evictor.slots // self.evictor.rows

    @property
    def address_bits(self) -> int:
        """Bits of an address in a row: head and tile."""
        return max(ceil_log2(self.cached_heads * self.tiles), 1)

    @property
    def head_bits(self) -> int:
        """Bits of a head's number."""
        return max(ceil_log2(self.kv_heads), 1)

    @property
    def layer_bits(self) -> int:
        """Bits of a layer's number."""
        return max(ceil_log2(self.layers), 1)

    @property
    def cached_heads(self) -> int:
        """Heads of all layers."""
        return self.layers * self.kv_heads

    @property
    def cached_head_bits(self) -> int:
        """Bits of a head's number among those of all layers."""
        return max(ceil_log2(self.cached_heads), 1)

    @property
    def stored_heads(self) -> int:
        """Heads of all layers whose slots have entries in the KV eDRAM."""
        return self.cached_heads if self.resident_heads is None else self.resident_heads

    def cached_head(self, layer: Value, head: Value) -> Value:
        """Return the number of a layer's head among those of all layers."""
        return layer * self.kv_heads + head if self.layers > 1 else head

    def cached_vector(self, layer: Value, vector: Value) -> Value:
        """Return the number of a layer's stored input vector among those of all layers."""
        return layer * self.vectors + vector if self.layers > 1 else vector

    @property
    def vector_bits(self) -> int:
        """Bits of a stored input vector's number."""
        return max(ceil_log2(self.vectors), 1) if self.vectors else 1

    @property
    def prefilled_vectors(self) -> int:
        """Input vectors for a prefill's popular tokens; the others are for later tokens."""
        return self.vectors // 2

    @property
    def entries(self) -> int:
        """Entries of the KV eDRAM: its slots, then all stored input vectors."""
        slots, vectors = self.stored_heads * self.evictor.slots, self.layers * self.vectors
        return slots + vectors * self.vector_entries

    @property
    def entry_bits(self) -> int:
        """Bits of an entry's number."""
        return ceil_log2(self.entries)

    @property
    def slot_bits(self) -> int:
        """Bits of a slot's number among those of all layers, or of an entry's."""
        return max(self.entry_bits, self.evictor.row_bits + self.address_bits)

    @property
    def token_layout(self) -> data.StructLayout:
        """Record of a slot: its token's position, whether it is recomputed, and its vector."""
        return data.StructLayout(
            {"position": self.position_bits, "recomputed": 1, "vector": self.vector_bits}
        )

    @property
    def state_layout(self) -> data.StructLayout:
        """State of a slot for its evictor row: importance, validity and protection."""
        return data.StructLayout(
            {"importance": signed(self.evictor.score_width), "valid": 1, "protect": 1}
        )

    @property
    def score_layout(self) -> data.StructLayout:
        """Score update for the refresh controllers."""
        return data.StructLayout({"entry": self.entry_bits, "score": self.score_bits, "valid": 1})

    @property
    def standing_layout(self) -> data.StructLayout:
        """Status of a score's token: it may be evicted; it has just left the recent window."""
        return data.StructLayout({"evictable": 1, "leaving": 1})

    @property
    def choice_layout(self) -> data.StructLayout:
        """Victim of a head: `index` of its slot, and `found`: 0 if no slot was a candidate."""
        return data.StructLayout({"index": self.evictor.index_width, "found": 1})

    @property
    def pass_layout(self) -> data.StructLayout:
        """Header of a wavefront in the slot table.

        `holds` and `arrives` are those of the row that the wavefront is at, derived one row before
        it: the slot holds a token; it receives the arriving token.
        """
        return data.StructLayout(
            {
                "address": self.address_bits,
                "head": self.head_bits,
                "resident": bits_for(self.evictor.rows),
                "row": self.evictor.row_bits,
                "fresh": 1,
                "holds": 1,
                "arrives": 1,
                "alone": 1,
                "compare": 1,
                "last": 1,
            }
        )

    @property
    def exported_layout(self) -> data.StructLayout:
        """A slot whose score changes.

        Its entry, its importance, whether it holds data, whether the score belongs to a search, and
        the status of its token in the head.
        """
        return data.StructLayout(
            {
                "valid": 1,
                "entry": self.entry_bits if self.resident_heads is None else self.slot_bits,
                "importance": signed(self.evictor.score_width),
                "holds": 1,
                "searched": 1,
                "standing": self.standing_layout,
            }
        )

    @property
    def placing_layout(self) -> data.StructLayout:
        """A write into a slot."""
        return data.StructLayout(
            {
                "address": self.address_bits,
                "token": self.token_layout,
                "importance": signed(self.evictor.score_width),
                "prefill": 1,
            }
        )

    @property
    def promoted_layout(self) -> data.StructLayout:
        """A token that became popular in the previous step."""
        return data.StructLayout(
            {"position": self.position_bits, "vector": self.vector_bits, "valid": 1}
        )


def wavefront_layout(p: EvictionParameters) -> data.StructLayout:
    """Return the layout of a wavefront's header: the tile that its scores belong to, and flags."""
    return data.StructLayout(
        {
            "head": p.head_bits,
            "tile": max(ceil_log2(p.tiles), 1),
            "load": 1,
            "compare": 1,
            "last": 1,
            "fresh": 1,
            "alone": 1,
            "row": p.evictor.row_bits,
        }
    )


def placement_layout(p: EvictionParameters) -> data.StructLayout:
    """Return the layout of a placement: slot of the arriving token, and the token evicted there."""
    return data.StructLayout(
        {
            "head": p.head_bits,
            "slot": p.evictor.index_width,
            "evicts": 1,
            "evicted": p.token_layout,
        }
    )


def value_layout(p: EvictionParameters) -> data.StructLayout:
    """Return the layout of the slot of a head's value."""
    return data.StructLayout({"head": p.head_bits, "slot": p.evictor.index_width})


def prefill_layout(p: EvictionParameters) -> data.StructLayout:
    """Return the layout of a token that the prefill keeps in a head."""
    return data.StructLayout(
        {
            "head": p.head_bits,
            "token": p.token_layout,
            "importance": signed(p.evictor.score_width),
        }
    )


def vector_layout(p: EvictionParameters) -> data.StructLayout:
    """Return the layout of a stored input vector's record: its token's position, and `valid`."""
    return data.StructLayout({"position": p.position_bits, "valid": 1})
