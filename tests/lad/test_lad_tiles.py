"""Several tiles: their parameters, and the number of a tile in payloads."""

import re
from dataclasses import replace

import pytest
from amaranth.hdl import Shape

from golden.lad.lad_tiles import lad_tiles, place
from hdl.catalog import entry_named
from hdl.lad.lad_tile import LadTile
from hdl.lad.lad_tiles import LadTiles
from hdl.lad.parameters import LadTilesParameters


def parameters(tiles: int) -> LadTilesParameters:
    return replace(entry_named("lad_tiles").parameters("tiny"), tiles=tiles)


@pytest.mark.parametrize("tiles", [0, 17])
def test_illegal_numbers_of_tiles_are_rejected(tiles: int) -> None:
    message = f"tiles must be an integer from 1 to 16, not {tiles}"
    with pytest.raises(ValueError, match=re.escape(message)):
        parameters(tiles)


def test_one_tile_has_a_tile_s_ports() -> None:
    p = parameters(1)
    alone, shared = LadTile(parameters=p.tile), LadTiles(parameters=p)
    assert alone.signature.members.keys() == shared.signature.members.keys()
    for name, member in alone.signature.members.items():
        if member.is_signature:
            ours, theirs = (getattr(unit, name).payload.shape() for unit in (shared, alone))
            assert Shape.cast(ours).width == Shape.cast(theirs).width, name


def test_heads_are_assigned_to_tiles_round_robin() -> None:
    """Each head has an index of its own, and neighbours are in different tiles."""
    p = parameters(3)
    places = [place(p, number) for number in range(p.tile.stored_heads * p.tiles)]
    assert len(set(places)) == len(places) == len(lad_tiles(p).heads)
    assert {one.head for one in places} == set(range(p.tile.stored_heads))
    assert [one.tile for one in places[:6]] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(("tiles", "bits"), [(1, 0), (2, 1), (3, 2), (6, 3), (16, 4)])
def test_a_tile_s_number_has_as_many_bits_as_it_needs(tiles: int, bits: int) -> None:
    p = parameters(tiles)
    widths = [
        Shape.cast(layout).width for layout in (p.named(p.tile.head_layout), p.tile.head_layout)
    ]
    assert widths[0] - widths[1] == bits
