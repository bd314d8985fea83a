"""Dimensions of Kelle's prefill selector, and the layouts that its parts share."""

from dataclasses import field
from typing import Annotated

from amaranth.hdl import Value, signed
from amaranth.lib import data
from amaranth.utils import bits_for, ceil_log2

from hdl.kelle.eviction.eviction_parameters import EvictionParameters
from hdl.memory.threshold_search import up_to
from hdl.parameters import Parameters, Range, parameter_object, require


@parameter_object
class PrefillSelectorParameters(Parameters):
    """Dimensions of the selector; they also drive its golden model and its testbench.

    Parameters
    ----------
    eviction : EvictionParameters
        Parameters of the controller that takes the selected tokens: budget, window, sinks, heads,
        scores.
    prefill_tokens : int
        Tokens of the longest text: a multiple of the evictor's rows, at least the evictor's slots,
        at most 4096.

    Raises
    ------
    ValueError
        If a rule is broken, or the prefill's positions do not fit in `position_bits`.
    """

    eviction: EvictionParameters = field(default_factory=EvictionParameters)
    prefill_tokens: Annotated[int, Range(2, 4096, "tokens")] = 4096

    def __post_init__(self) -> None:
        """Check every rule."""
        super().__post_init__()
        rows, slots = self.rows, self.eviction.evictor.slots
        tokens, most = self.prefill_tokens, 1 << self.eviction.position_bits
        require(tokens >= slots, f"prefill_tokens must be at least slots = {slots}", tokens)
        rule = f"prefill_tokens must be a multiple of rows = {rows}"
        require(tokens % rows == 0, rule, tokens)
        rule = f"prefill_tokens must be at most 2**position_bits = {most}"
        require(tokens <= most, rule, tokens)

    @property
    def rows(self) -> int:
        """Tokens in a tile, and scores in a slice."""
        return self.eviction.evictor.rows

    @property
    def tiles(self) -> int:
        """Tiles of the longest text."""
        return self.prefill_tokens // self.rows

    @property
    def tile_bits(self) -> int:
        """Bits of a tile's number."""
        return max(ceil_log2(self.tiles), 1)

    @property
    def place_bits(self) -> int:
        """Bits of a position in the text."""
        return self.tile_bits + self.eviction.evictor.row_bits

    @property
    def places(self) -> int:
        """Tokens per head that are kept for their importance, in addition to sinks and window."""
        p = self.eviction
        return p.evictor.slots - p.sinks - p.window

    @property
    def scores_layout(self) -> data.StructLayout:
        """A slice of scores: those of one query for the tokens of a tile."""
        return data.StructLayout(
            {
                "tile": self.tile_bits,
                "query": self.place_bits,
                "load": 1,
                "last": 1,
                "scores": data.ArrayLayout(self.eviction.evictor.input_shape, self.rows),
            }
        )

    @property
    def word_layout(self) -> data.ArrayLayout:
        """The importances of a tile."""
        return data.ArrayLayout(signed(self.eviction.evictor.score_width), self.rows)

    @property
    def kept_layout(self) -> data.StructLayout:
        """Position and importance of a token that a head keeps."""
        width = self.eviction.evictor.score_width
        return data.StructLayout({"position": self.place_bits, "importance": signed(width)})

    @property
    def rank_layout(self) -> data.StructLayout:
        """Rank of a token: number of heads that keep it, and sum of its importances there."""
        p = self.eviction
        total = signed(p.evictor.score_width + ceil_log2(p.kv_heads))
        return data.StructLayout({"importance": total, "heads": bits_for(p.kv_heads)})

    def up_to(self, position: Value, tile: Value) -> Value:
        """Return a bit for each row of a tile: whether its position is at most the given one."""
        return up_to(position, tile, self.rows)
