"""Shared reads: answers of the memory, answers per tile, and arbitration."""

from collections.abc import Iterator, Sequence
from hashlib import shake_128

Read = tuple[int, int]
"""A request: item, and amount."""


def answer(read: Read, tile: int, number: int, *, step: int, bits: int) -> list[int]:
    """Return the parts of an answer, all different from each other.

    Parameters
    ----------
    read : Read
        The request.
    tile, number : int
        Requesting tile, and the number of its previous requests.
    step : int
        Amount that one part covers.
    bits : int
        Bits of a part.
    """
    item, amount = read
    count = sum(1 for _ in range(0, amount, step))
    size = (bits + 7) // 8
    parts = []
    for part in range(count):
        text = f"{item} of {tile}: {number}, {part}"
        word = int.from_bytes(shake_128(text.encode()).digest(size), "little")
        parts.append(word & ((1 << bits) - 1))
    return parts


def answers(reads: Sequence[Read], tile: int, *, step: int, bits: int) -> list[list[int]]:
    """Return a tile's answers in the order of its reads; they do not depend on other tiles."""
    return [answer(read, tile, number, step=step, bits=bits) for number, read in enumerate(reads)]


class Turns:
    """Round-robin arbitration between tiles; a grant is held until it is accepted.

    Parameters
    ----------
    tiles : int
        Number of tiles; the last one counts as granted before the first cycle.
    """

    def __init__(self, tiles: int) -> None:
        self.tiles = tiles
        self.had = tiles - 1
        self.offered: int | None = None

    def _order(self) -> Iterator[int]:
        """Yield all tiles, beginning after the last one granted."""
        for distance in range(1, self.tiles + 1):
            yield (self.had + distance) % self.tiles

    def cycle(self, asking: Sequence[bool], taken: bool) -> int | None:
        """Simulate one cycle, and return the tile that is served in it, if any.

        Parameters
        ----------
        asking : Sequence[bool]
            Tiles that request and have room.
        taken : bool
            The request is accepted.
        """
        if self.offered is None:
            self.offered = next((tile for tile in self._order() if asking[tile]), None)
        if self.offered is None or not taken:
            return None
        self.had, self.offered = self.offered, None
        return self.had
