"""Dimensions of several tiles that share a memory, and payloads with the tile's number."""

from typing import Annotated, Any

from amaranth.hdl import unsigned
from amaranth.lib import data

from hdl.lad.lad_tile_parameters import LadTileParameters
from hdl.parameters import Parameters, Range, parameter_object


@parameter_object
class LadTilesParameters(Parameters):
    """Dimensions of several tiles that share a memory.

    Parameters
    ----------
    tile : LadTileParameters
        Dimensions of each tile; its `heads` are those of one tile.
    tiles : int
        Number of tiles.

    Raises
    ------
    ValueError
        If a parameter breaks its rule; the message contains the rule and the value.
    """

    tile: LadTileParameters = LadTileParameters()
    tiles: Annotated[int, Range(1, 16, "tiles")] = 6

    @property
    def tile_shape(self) -> Any:
        """Shape of a tile's number; it has no bits if there is one tile."""
        return unsigned((self.tiles - 1).bit_length())

    def named(self, layout: Any) -> data.StructLayout:
        """Return the layout of a tile's payload with the tile's number appended."""
        return data.StructLayout(dict(layout.members) | {"tile": self.tile_shape})

    @property
    def task_layout(self) -> data.StructLayout:
        """Payload of `tasks`: `groups` of the first tile; the next `more` tiles have as many."""
        return data.StructLayout(
            dict(self.tile.linear.task_layout.members) | {"more": self.tile_shape}
        )
