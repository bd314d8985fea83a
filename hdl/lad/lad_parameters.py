"""What the parts of LAD share: layers, their dimensions, the payloads of hidden states."""

from dataclasses import dataclass
from typing import Annotated, Any

from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.lad.control.largest_sum import LargestSumParameters
from hdl.lad.control.sum_slices import SumSlicesParameters
from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.lad.lad_tiles_parameters import LadTilesParameters
from hdl.parameters import Parameters, Range, parameter_object, require


@dataclass(frozen=True)
class Areas:
    """First slices of the areas of the memory on chip.

    A slice is a head's size of FP16 numbers; in each area the slices of all samples stand side by
    side, so that a walk over all slices of all samples is one count.

    Members
    -------
    state : int
        The hidden states.
    inputs : int
        What the next linear layer multiplies.
    attended : int
        What the attention of all heads gives, which the output projection multiplies.
    sums : int
        What it gives.
    factors : int
        Weights of a norm, the same for all samples.
    angles : int
        Cosines of all samples, then sines.
    end : int
        Slices of all.
    """

    state: int
    inputs: int
    attended: int
    sums: int
    factors: int
    angles: int
    end: int


@parameter_object
class LadParameters(Parameters):
    """Dimensions of an accelerator for decoder layers.

    Parameters
    ----------
    tile : LadTileParameters
        Each tile; the hidden state's width is that of its norms.
    tiles : int
        How many share the memory.
    layers : int
        Decoder layers.
    heads : int
        Query heads of a layer.
    kv_heads : int
        Key/value heads of a layer, a divisor of the heads.
    feed_forward : int
        Elements of the gated layer, a multiple of the head size.
    batch : int
        Samples that pass a layer together.
    periods : int
        Parts of a layer's heads of which each is projected, then attended; a divisor of the
        key/value heads, which the paper's Figure 6 has as many of.
    epsilon : int
        FP16 code of what norms add to the mean square; the default is 1e-5.
    vocabulary : int
        Tokens of which one is predicted behind the last layer; 0: none.

    Raises
    ------
    ValueError
        If a rule above is broken, or the tile has too few head-samples or too small linear layers;
        with the rule and the value.
    """

    tile: LadTileParameters = LadTileParameters()
    tiles: Annotated[int, Range(1, 16, "tiles")] = 1
    layers: Annotated[int, Range(1, 128, "layers")] = 1
    heads: Annotated[int, Range(1, 256, "heads")] = 32
    kv_heads: Annotated[int, Range(1, "heads", "heads")] = 32
    feed_forward: Annotated[int, Range(2, 32768, "elements")] = 11008
    batch: Annotated[int, Range(1, "tile.linear.samples", "samples")] = 1
    periods: Annotated[int, Range(1, "kv_heads", "parts")] = 1
    epsilon: Annotated[int, Range(1, 0x7BFF, "FP16 code")] = 0x00A8
    vocabulary: Annotated[int, Range(0, 1 << 20, "tokens")] = 0

    def __post_init__(self) -> None:
        """Check the rules between the parameters."""
        super().__post_init__()
        require(
            self.heads % self.kv_heads == 0, "kv_heads must be a divisor of heads", self.kv_heads
        )
        parts = self.kv_heads % self.periods == 0
        require(parts, "periods must be a divisor of kv_heads", self.periods)
        whole = self.feed_forward % self.head_size == 0
        require(whole, "feed_forward must be a multiple of head_size", self.feed_forward)
        tile, linear = self.tile, self.tile.linear
        groups = tile.shared in (1, self.shared)
        rule = f"tile.shared must be 1 or heads / kv_heads, {self.shared}"
        require(groups, rule, tile.shared)
        # A group's heads are in one tile.
        samples = self.layers * self.heads * self.batch
        least = -(-samples // tile.shared // self.tiles) * tile.shared
        rule = f"tile.heads must be at least layers * heads * batch / tiles, {least}"
        require(tile.heads >= least, rule, tile.heads)
        slices = max(self.width, self.heads, self.gated)
        for name, least in (("slices", slices), ("groups", -(-self.most_groups // self.tiles))):
            there = getattr(linear, name)
            require(there >= least, f"tile.linear.{name} must be at least {least}", there)

    @property
    def shared_tiles(self) -> LadTilesParameters:
        """All tiles."""
        return LadTilesParameters(tile=self.tile, tiles=self.tiles)

    @property
    def head_size(self) -> int:
        """Elements of a slice."""
        return self.tile.vector.head_size

    @property
    def shared(self) -> int:
        """Query heads that share a key/value head."""
        return self.heads // self.kv_heads

    @property
    def width(self) -> int:
        """Slices of a hidden state."""
        return self.tile.sfm.slices

    @property
    def gated(self) -> int:
        """Slices of the gated layer."""
        return self.feed_forward // self.head_size

    @property
    def projected(self) -> int:
        """Slices of a period's queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) // self.periods

    @property
    def most_sums(self) -> int:
        """Slices of a linear layer's output at most."""
        return max(self.width, self.projected, 2 * self.gated)

    @property
    def most_groups(self) -> int:
        """Groups of outputs of a linear layer at most, of all tiles together."""
        return -(-self.most_sums * self.head_size // self.tile.linear.units)

    @property
    def pieces(self) -> int:
        """Parts of the vocabulary's matrix, each a linear layer as large as the others may be."""
        return -(-self.vocabulary // (self.most_groups * self.tile.linear.units))

    @property
    def piece_groups(self) -> int:
        """Groups of outputs of each piece; of the last one's some may be no tokens."""
        return -(-self.vocabulary // (self.pieces * self.tile.linear.units))

    @property
    def largest_sum(self) -> LargestSumParameters:
        """The choice of tokens, of a vocabulary."""
        return LargestSumParameters(
            units=self.tile.linear.units,
            batch=self.batch,
            vocabulary=self.vocabulary,
            groups=self.pieces * self.piece_groups,
        )

    @property
    def sum_slices(self) -> SumSlicesParameters:
        """The slices that a linear layer's sums become."""
        return SumSlicesParameters(
            units=self.tile.linear.units,
            head_size=self.head_size,
            batch=self.batch,
            groups=self.most_groups,
        )

    @property
    def areas(self) -> Areas:
        """Where everything stands on chip."""
        inputs = self.width * self.batch
        attended = inputs + max(self.width, self.gated) * self.batch
        sums = attended + self.heads * self.batch
        factors = sums + self.most_sums * self.batch
        angles = factors + self.width
        return Areas(0, inputs, attended, sums, factors, angles, angles + 2 * self.batch)

    @property
    def place_shape(self) -> Any:
        """Shape of a slice's place on chip, and of a number of slices."""
        return unsigned(self.areas.end.bit_length())

    @property
    def slice_layout(self) -> data.StructLayout:
        """Payload of the stream of slices from outside."""
        values = self.tile.vector.vector_layout
        return data.StructLayout(
            {"values": values, "length": self.tile.length_shape}
            | ({"predicts": 1} if self.vocabulary else {})
        )

    @property
    def prediction_layout(self) -> data.StructLayout:
        """Payload of the stream of predictions."""
        return self.largest_sum.prediction_layout

    @property
    def state_layout(self) -> data.StructLayout:
        """Payload of the stream of hidden states."""
        values = self.tile.vector.vector_layout
        return data.StructLayout({"values": values, "not_positive": 1})
