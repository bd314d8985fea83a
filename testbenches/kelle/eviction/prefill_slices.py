"""A prefill's scores as slices for the prefill selector, in the possible orders of an array."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdl.kelle.eviction.prefill_parameters import PrefillSelectorParameters
from testbenches.packing import pack, to_integers

Integers = NDArray[np.int64]
ORDERS = ("queries", "tiles", "chunks", "all")
"""All tiles of a query; all queries of a tile; tiles of some queries; masked tiles as well."""


def pack_slices(
    p: PrefillSelectorParameters, scores: Integers, order: str, rng: np.random.Generator
) -> list[int]:
    """Return the payloads of a head's slices.

    Parameters
    ----------
    p : PrefillSelectorParameters
        Dimensions of the selector.
    scores : numpy.ndarray
        int64 [query heads, queries, tokens].
    order : str
        One of `ORDERS`.
    rng : numpy.random.Generator
        Generates chunks, and scores of masked tokens.
    """
    heads, tokens, _ = scores.shape
    tiles = -(-tokens // p.rows)
    chunk = {"queries": 1, "tiles": tokens}.get(order) or int(rng.integers(1, tokens + 1))
    chosen = [
        (tile, query, head)
        for first in range(0, tokens, chunk)
        for tile in range(tiles)
        for query in range(first, min(first + chunk, tokens))
        for head in range(heads)
        if order == "all" or query // p.rows >= tile
    ]
    tile, query, head = np.array(chosen).T
    first = np.unique(tile, return_index=True)[1]
    shape = p.eviction.evictor.input_shape
    low, high = (
        (-(1 << shape.width - 1), 1 << shape.width - 1) if shape.signed else (0, 1 << shape.width)
    )
    position = tile[:, np.newaxis] * p.rows + np.arange(p.rows)
    given = rng.integers(low, high, position.shape)
    seen = position <= query[:, np.newaxis]
    places = np.broadcast_to(query[:, np.newaxis], seen.shape)
    whose = np.broadcast_to(head[:, np.newaxis], seen.shape)
    given[seen] = scores[whose[seen], places[seen], position[seen]]
    number = np.arange(len(tile))
    fields: dict[str, Any] = {
        "tile": tile,
        "query": query,
        "load": np.isin(number, first).astype(np.int64),
        "last": (number == len(tile) - 1).astype(np.int64),
        "scores": given,
    }
    return to_integers(pack(p.scores_layout, fields))
