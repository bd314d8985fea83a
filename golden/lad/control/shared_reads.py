"""Reads that tiles share: what a memory answers, what each tile gets, and whose turn it is."""

from collections.abc import Iterator, Sequence
from hashlib import shake_128

Read = tuple[int, int]
"""An item, and the amount that is asked for."""


def answer(read: Read, tile: int, number: int, *, step: int, bits: int) -> list[int]:
    """Return the parts of an answer, of which no two are alike.

    Parameters
    ----------
    read : Read
        What is asked for.
    tile, number : int
        Who asks, and how often it has asked before.
    step : int
        What a part covers of the amount.
    bits : int
        Of a part.
    """
    item, amount = read
    count = sum(1 for _ in range(0, amount, step))
    octets = (bits + 7) // 8
    parts = []
    for part in range(count):
        told = f"{item} of {tile}: {number}, {part}"
        word = int.from_bytes(shake_128(told.encode()).digest(octets), "little")
        parts.append(word & ((1 << bits) - 1))
    return parts


def answers(reads: Sequence[Read], tile: int, *, step: int, bits: int) -> list[list[int]]:
    """Return a tile's answers in the order of its reads, whatever others ask in between."""
    return [answer(read, tile, number, step=step, bits=bits) for number, read in enumerate(reads)]


class Turns:
    """Round robin: from the tile behind the last one, and what is not taken stays on offer.

    Parameters
    ----------
    tiles : int
        How many; the last of them had the turn before the first cycle.
    """

    def __init__(self, tiles: int) -> None:
        self.tiles = tiles
        self.had = tiles - 1
        self.offered: int | None = None

    def _order(self) -> Iterator[int]:
        """Yield all tiles, the one that had the turn at the end."""
        for distance in range(1, self.tiles + 1):
            yield (self.had + distance) % self.tiles

    def cycle(self, asking: Sequence[bool], taken: bool) -> int | None:
        """Pass a cycle, and return who is served in it.

        Parameters
        ----------
        asking : Sequence[bool]
            Who asks and may.
        taken : bool
            Whether an offer is taken.
        """
        if self.offered is None:
            self.offered = next((tile for tile in self._order() if asking[tile]), None)
        if self.offered is None or not taken:
            return None
        self.had, self.offered = self.offered, None
        return self.had
