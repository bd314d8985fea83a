"""Dimensions of LAD's decoder layers, and payloads of slices and hidden states."""

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
    """First addresses of the areas of the on-chip memory.

    The memory's words are slices of `head_size` FP16 numbers. In each area the slices of all
    samples with one index are adjacent, so that one counter addresses all slices of all samples.

    Members
    -------
    state : int
        Hidden states.
    inputs : int
        Inputs of the next linear layer.
    attended : int
        Attention outputs of all heads, the inputs of the output projection.
    sums : int
        Outputs of the last linear layer.
    factors : int
        Weights of a norm, the same for all samples.
    angles : int
        Cosines of all samples, then their sines.
    end : int
        Number of slices of all areas.
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
        Dimensions of each tile; the width of its norms is the hidden size.
    tiles : int
        Number of tiles that share the memory.
    layers : int
        Number of decoder layers.
    heads : int
        Query heads per layer.
    kv_heads : int
        Key/value heads per layer, a divisor of `heads`.
    feed_forward : int
        The intermediate size: elements of the SwiGLU layer, a multiple of the head size.
    batch : int
        Number of samples that pass a layer together.
    periods : int
        Number of parts into which a layer's heads are divided; each part is projected, then
        attended. A divisor of `kv_heads`; the paper's Figure 6 has one part per head.
    epsilon : int
        FP16 code of the norms' epsilon; the default is 1e-5.
    vocabulary : int
        Number of tokens of the LM head after the last layer; 0 for none.

    Raises
    ------
    ValueError
        If a parameter breaks its rule, or the tile has too few heads or too small linear layers;
        the message contains the rule and the value.
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
        # All heads of a group are in one tile.
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
        """Dimensions of all tiles."""
        return LadTilesParameters(tile=self.tile, tiles=self.tiles)

    @property
    def head_size(self) -> int:
        """Elements per slice."""
        return self.tile.vector.head_size

    @property
    def shared(self) -> int:
        """Query heads per key/value head."""
        return self.heads // self.kv_heads

    @property
    def width(self) -> int:
        """Slices per hidden state."""
        return self.tile.sfm.slices

    @property
    def gated(self) -> int:
        """Slices of the SwiGLU layer."""
        return self.feed_forward // self.head_size

    @property
    def projected(self) -> int:
        """Slices of the queries, keys and values of a period."""
        return (self.heads + 2 * self.kv_heads) // self.periods

    @property
    def most_sums(self) -> int:
        """Largest number of slices of a linear layer's output."""
        return max(self.width, self.projected, 2 * self.gated)

    @property
    def most_groups(self) -> int:
        """Largest number of groups of outputs of a linear layer, all tiles together."""
        return -(-self.most_sums * self.head_size // self.tile.linear.units)

    @property
    def pieces(self) -> int:
        """Pieces of the LM head, none larger than the largest other linear layer."""
        return -(-self.vocabulary // (self.most_groups * self.tile.linear.units))

    @property
    def piece_groups(self) -> int:
        """Groups of outputs per piece; rows of the last piece can be no tokens."""
        return -(-self.vocabulary // (self.pieces * self.tile.linear.units))

    @property
    def argmax(self) -> LargestSumParameters:
        """Dimensions of the argmax over the LM head."""
        return LargestSumParameters(
            units=self.tile.linear.units,
            batch=self.batch,
            vocabulary=self.vocabulary,
            groups=self.pieces * self.piece_groups,
        )

    @property
    def sum_slices(self) -> SumSlicesParameters:
        """Dimensions of the conversion of sums into slices."""
        return SumSlicesParameters(
            units=self.tile.linear.units,
            head_size=self.head_size,
            batch=self.batch,
            groups=self.most_groups,
        )

    @property
    def areas(self) -> Areas:
        """Addresses of the areas of the on-chip memory."""
        inputs = self.width * self.batch
        attended = inputs + max(self.width, self.gated) * self.batch
        sums = attended + self.heads * self.batch
        factors = sums + self.most_sums * self.batch
        angles = factors + self.width
        return Areas(0, inputs, attended, sums, factors, angles, angles + 2 * self.batch)

    @property
    def place_shape(self) -> Any:
        """Shape of a slice's address, and of a number of slices."""
        return unsigned(self.areas.end.bit_length())

    @property
    def slice_layout(self) -> data.StructLayout:
        """Payload of `slices`."""
        values = self.tile.vector.vector_layout
        return data.StructLayout(
            {"values": values, "length": self.tile.length_shape}
            | ({"predicts": 1} if self.vocabulary else {})
        )

    @property
    def prediction_layout(self) -> data.StructLayout:
        """Payload of `predictions`."""
        return self.argmax.prediction_layout

    @property
    def state_layout(self) -> data.StructLayout:
        """Payload of `states`."""
        values = self.tile.vector.vector_layout
        return data.StructLayout({"values": values, "not_positive": 1})
