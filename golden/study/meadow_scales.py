"""Bytes of SmolLM2's packed layers with a scale per matrix and a scale per output tile.

``python -m golden.study.meadow_scales`` quantises all layers as `make generate TOP=meadow` does,
and prints a row for each form of scales and each form of packing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from golden.llm.language_model import open_language_model
from golden.meadow.packing.weight_packer import Level, pack_matrix
from golden.meadow.tile.hybrid_tile import weight_words
from golden.meadow.tile.requantisation import Integers
from golden.meadow.whole_model import integer_model
from hdl.catalog import entry_named
from hdl.meadow.parameters import MeadowParameters

FORMS = ((Level.REINDEXED, 2), (Level.CLASSES, 1))
"""Level of packing, and weights per chunk."""

FACTOR_BYTES = 3
"""Bytes of the scale and shift of a tile."""


@dataclass(frozen=True)
class Packed:
    """The bytes of matrices in one form of packing.

    Members
    -------
    weights : int
        Bytes before packing.
    packets, tables : int
        Bytes of packets, and of unique matrices.
    scales : int
        Bytes of the scales of tiles.
    """

    weights: int
    packets: int
    tables: int
    scales: int

    @property
    def ratio(self) -> float:
        """Bytes before packing over all bytes after it."""
        return self.weights / (self.packets + self.tables + self.scales)


def packed(matrices: Iterable[Integers], p: MeadowParameters, level: Level, chunk: int) -> Packed:
    """Pack matrices [tiles, elements, size] in the order in which the tile reads them."""
    found = np.zeros(4, np.int64)
    bits = p.unpacker.unpacker.packet_bits
    for tiles in matrices:
        words = np.concatenate([weight_words(tile, p.tile) for tile in tiles])
        one = pack_matrix(words, level, chunk=chunk, packet_bits=bits)
        scales = FACTOR_BYTES * len(tiles) * p.tile_scales
        found += tiles.size, one.packet_bytes, one.unique.size, scales
    return Packed(*found.tolist())


def rows(p: MeadowParameters) -> Iterator[tuple[str, str, Packed]]:
    """Return the form of scales, the form of packing, and the bytes, for each pair of both."""
    language = open_language_model(None)
    tokens = language.calibration(p.slots)
    for tile_scales in (False, True):
        own = replace(p, tile_scales=tile_scales)
        layers = integer_model(language, tokens, own).layers
        matrices = [tiles for layer in layers for tiles in layer.matrices.values()]
        for level, chunk in FORMS:
            name = f"{level.name.lower()}, C = {chunk}"
            yield "tile" if tile_scales else "tensor", name, packed(matrices, own, level, chunk)


def main() -> None:
    """Print a row for each form."""
    p: MeadowParameters = entry_named("meadow").parameters("smollm2")
    print("scales; packing; weights, packets, tables, scales in bytes; ratio")
    for scales, form, sizes in rows(replace(p, token_exponents=True)):
        counts = sizes.weights, sizes.packets, sizes.tables, sizes.scales
        print(
            f"{scales}; {form}; {', '.join(f'{n:,}' for n in counts)}; {sizes.ratio:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
