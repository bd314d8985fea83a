"""Data of LAD's heads in a memory, compared with a model's."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.lad.lad_tile import Head
from hdl.lad.parameters import LadParameters

ROWS = ("keys", "values", "centres", "norms", "ratios", "modes", "counts")
"""Data of each position except for its counters."""


class StoredHeads(ABC):
    """Rows of all heads of an accelerator.

    Parameters
    ----------
    p : LadParameters
        Dimensions of model and tiles.
    """

    def __init__(self, p: LadParameters) -> None:
        self.p = p
        self.heads = p.tile.stored_heads * p.tiles

    @abstractmethod
    def read(self, name: str, length: int) -> NDArray[Any]:
        """Return the first elements of each head in the layout of a model's `Head`."""

    def model_heads(self, length: int) -> list[Head]:
        """Return all heads in the model's form."""
        heads = [Head.empty(self.p.tile) for _ in range(self.heads)]
        found = {name: self.read(name, length) for name in (*ROWS, "counters")}
        caches = self.read("caches", self.p.tile.ac.columns)
        for number, head in enumerate(heads):
            head.length = length
            for name, rows in found.items():
                getattr(head, name)[:length] = rows[number]
            head.caches = caches[number].astype(np.uint64)
        return heads

    def difference(self, heads: list[Head], length: int) -> tuple[str, int, str] | None:
        """Return the first difference from a model's heads: name of the rows, head, and words."""
        own_mode = None
        for name in (*ROWS, "counters", "caches"):
            theirs = [getattr(head, name) for head in heads]
            if name == "caches":
                expected = np.stack(theirs).astype(np.int64)
                found = self.read(name, self.p.tile.ac.columns).astype(np.int64)
            else:
                expected = np.stack([rows[:length] for rows in theirs]).astype(np.int64)
                found = self.read(name, length).astype(np.int64)
            if name == "modes":
                own_mode = expected
            if name == "counters":
                # The mode's own counter is stale outside; its value is the count next to the mode.
                assert own_mode is not None
                stale = np.arange(expected.shape[-1]) == own_mode[..., np.newaxis]
                expected, found = (np.where(stale, 0, rows) for rows in (expected, found))
            places = np.argwhere(expected != found)
            if len(places):
                place = tuple(int(number) for number in places[0])
                words = f"{name} at {place[1:]}: {found[place]:#x} instead of {expected[place]:#x}"
                return name, place[0], words
        return None
