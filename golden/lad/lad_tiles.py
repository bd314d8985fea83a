"""LAD's tiles, bit-exact: the result of a head does not depend on its tile."""

from dataclasses import dataclass
from typing import Any

from golden.lad.lad_tile import Head, LadTile
from hdl.lad.parameters import LadTilesParameters


@dataclass(frozen=True)
class Place:
    """Tile of one or several heads, and their index in it."""

    tile: Any
    head: Any


def place(p: LadTilesParameters, number: Any) -> Place:
    """Return the tile and index of a head, or of an array of heads: assigned round-robin."""
    return Place(number % p.tiles, number // p.tiles)


def group_numbers(p: LadTilesParameters, group: int) -> list[int]:
    """Return the heads of a group: groups are assigned to the tiles round-robin."""
    first, tile = group // p.tiles * p.tile.shared, group % p.tiles
    return [(first + one) * p.tiles + tile for one in range(p.tile.shared)]


def lad_tiles(p: LadTilesParameters, heads: list[Head] | None = None) -> LadTile:
    """Return a model of all tiles, whose heads are numbered as in `place`.

    Parameters
    ----------
    p : LadTilesParameters
        Number and dimensions of the tiles.
    heads : list of Head, optional
        Heads of all tiles; empty ones by default.
    """
    number = p.tile.stored_heads * p.tiles
    heads = heads or [Head.empty(p.tile) for _ in range(number)]
    return LadTile(parameters=p.tile, heads=heads, tiles=p.tiles)
