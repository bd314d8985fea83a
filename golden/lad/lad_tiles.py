"""LAD's tiles, bit for bit: no head knows in which tile it is, nor of any other."""

from dataclasses import dataclass
from typing import Any

from golden.lad.lad_tile import Head, LadTile
from hdl.lad.lad_tiles_parameters import LadTilesParameters


@dataclass(frozen=True)
class Place:
    """Where a head-sample is, or many are: the tile, and the number there."""

    tile: Any
    head: Any


def place(p: LadTilesParameters, number: Any) -> Place:
    """Return the place of a head-sample, or of an array of them: tiles have them in turns."""
    return Place(number % p.tiles, number // p.tiles)


def group_numbers(p: LadTilesParameters, group: int) -> list[int]:
    """Return the numbers of a group's heads: tiles have groups in turns, each in one tile."""
    first, tile = group // p.tiles * p.tile.shared, group % p.tiles
    return [(first + one) * p.tiles + tile for one in range(p.tile.shared)]


def lad_tiles(p: LadTilesParameters, heads: list[Head] | None = None) -> LadTile:
    """Return a model of all tiles, whose heads are numbered as `place` has them.

    Parameters
    ----------
    p : LadTilesParameters
        Dimensions.
    heads : list of Head, optional
        Those of all tiles; empty ones by themselves.
    """
    number = p.tile.heads * p.tiles
    heads = heads or [Head.empty(p.tile) for _ in range(number)]
    return LadTile(parameters=p.tile, heads=heads, tiles=p.tiles)
