"""A model's weights as the bytes of LAD's transfers, and their addresses in a file."""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from golden.lad.lad import LayerWeights
from golden.lad.linear.linear_module import sliced
from golden.lad.whole_model import HalfModel
from hdl.lad.parameters import LadParameters
from testbenches.harness_memory import FileItems

Codes = NDArray[np.uint16]


def matrix_bytes(matrix: Codes, p: LadParameters) -> NDArray[np.uint8]:
    """Return a matrix [rows, columns] as transfers [transfers, bytes]; missing rows are zeros."""
    units, size = p.tile.linear.units, p.head_size
    rows = sliced(np.pad(matrix, ((0, -len(matrix) % units), (0, 0))), size)
    # Slice by slice; within a slice one group of rows after another.
    transfers = rows.reshape(-1, units, *rows.shape[1:]).transpose(2, 0, 1, 3)
    packed = np.ascontiguousarray(transfers.reshape(-1, units * size)).view(np.uint8)
    # Wide ports are made of words of 32 bits.
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 4)))


def layer_matrices(layer: LayerWeights, p: LadParameters) -> list[Codes]:
    """Return a layer's matrices in the program's order."""
    parts = (np.split(one, p.periods) for one in (layer.query, layer.key, layer.value))
    return [
        *(np.concatenate(rows) for rows in zip(*parts, strict=True)),
        layer.output,
        np.concatenate([layer.gate, layer.up]),
        layer.down,
    ]


def vocabulary_pieces(matrix: Codes, p: LadParameters) -> list[Codes]:
    """Return the pieces of the LM head; rows that are no tokens are zeros."""
    rows = p.piece_row_groups * p.tile.linear.units
    filled = np.pad(matrix, ((0, p.pieces * rows - len(matrix)), (0, 0)))
    return np.split(filled, p.pieces)


def file_pieces(model: HalfModel, p: LadParameters) -> Iterable[tuple[int, NDArray[np.uint8]]]:
    """Return the file's data of each layer, and of the LM head."""
    place = 0
    layers = (layer_matrices(layer, p) for layer in model.layers)
    for parts in chain(layers, [vocabulary_pieces(model.vocabulary, p)]):
        packed = np.concatenate([matrix_bytes(matrix, p) for matrix in parts])
        yield place, packed
        place += packed.nbytes


def file_items(file: Path, p: LadParameters) -> Sequence[FileItems]:
    """Return the addresses of each layer's weights, followed by the LM head's."""
    counts = [p.layer_transfers] * p.layers + [p.vocabulary_transfers]
    each = 4 * -(-p.tile.linear.weights_layout.size // 32)
    ends = np.cumsum([0, *counts]) * each
    return [
        FileItems(file=file, first=int(first), size=int(end - first))
        for first, end in pairwise(ends)
    ]
