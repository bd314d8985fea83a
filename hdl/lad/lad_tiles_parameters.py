"""What tiles at one memory share: how many there are, and the payloads that name them."""

from typing import Annotated, Any

from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.parameters import Parameters, Range, parameter_object


@parameter_object
class LadTilesParameters(Parameters):
    """Dimensions of tiles at one memory.

    Parameters
    ----------
    tile : LadTileParameters
        Each tile; its head-samples are those of one.
    tiles : int
        How many.

    Raises
    ------
    ValueError
        If a rule above is broken, with the rule and the value.
    """

    tile: LadTileParameters = LadTileParameters()
    tiles: Annotated[int, Range(1, 16, "tiles")] = 6

    @property
    def tile_shape(self) -> Any:
        """Shape of a tile's number, which one tile alone does not have."""
        return unsigned((self.tiles - 1).bit_length())

    def named(self, layout: Any) -> data.StructLayout:
        """Return a payload of a tile with the tile's number behind it."""
        return data.StructLayout(dict(layout.members) | {"tile": self.tile_shape})

    @property
    def task_layout(self) -> data.StructLayout:
        """Payload of the stream of tasks: groups of the first tile; `more` tiles have as many."""
        return data.StructLayout(
            dict(self.tile.linear.task_layout.members) | {"more": self.tile_shape}
        )
