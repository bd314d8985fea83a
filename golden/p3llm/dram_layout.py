"""Packing and unpacking of weights, keys and values in DRAM columns.

A column has 16 elements of 4 lanes of 4 bits. Its nibble ``4 * element + lane`` is, in

- a linear layer, the weight of output ``16 * tile + element`` and input ``4 * column + lane``;
- keys, that of token ``16 * tile + element`` and channel ``4 * column + lane``;
- values, that of channel ``16 * tile + element`` and token ``4 * column + lane``.

All three are matrices of outputs by terms of a sum, so `pack_columns` packs all of them.
"""

import numpy as np

PE_LANES = 4


def nibbles(data_bytes: np.ndarray) -> np.ndarray:
    """Return the nibbles of bytes, lower nibble first; the last axis doubles."""
    data_bytes = np.asarray(data_bytes, np.uint8)
    both = np.stack([data_bytes & 15, data_bytes >> 4], axis=-1)
    return both.reshape(*data_bytes.shape[:-1], -1)


def pack_nibbles(values: np.ndarray) -> np.ndarray:
    """Return the bytes of nibbles: the inverse of `nibbles`."""
    pairs = np.asarray(values, np.uint8).reshape(*np.shape(values)[:-1], -1, 2)
    return pairs[..., 0] | pairs[..., 1] << 4


def pack_columns(codes: np.ndarray, *, elements: int = 16) -> np.ndarray:
    """Return the columns of a matrix of 4-bit codes.

    Parameters
    ----------
    codes : numpy.ndarray
        0 to 15, shape (outputs, terms): weights unchanged, keys by token and channel, values
        transposed, by channel and token.
    elements : int
        Outputs per column.

    Returns
    -------
    numpy.ndarray
        uint8, shape (tiles, columns, bytes): the columns of a tile in the order of its terms,
        padded with zeros.
    """
    outputs, terms = codes.shape
    padded = np.pad(codes, [(0, -outputs % elements), (0, -terms % PE_LANES)])
    tiles = padded.reshape(-1, elements, padded.shape[1] // PE_LANES, PE_LANES).swapaxes(1, 2)
    return pack_nibbles(tiles.reshape(*tiles.shape[:2], -1))


def unpack_columns(columns: np.ndarray, *, outputs: int, terms: int) -> np.ndarray:
    """Return the matrix from the columns of `pack_columns`."""
    tiles, count, size = columns.shape
    lanes = nibbles(columns).reshape(tiles, count, 2 * size // PE_LANES, PE_LANES)
    return lanes.swapaxes(1, 2).reshape(-1, count * PE_LANES)[:outputs, :terms]


def pack_selects(selects: np.ndarray) -> np.ndarray:
    """Return metadata of a linear layer: 2-bit special values, shape (8, elements), as bytes."""
    fours = np.asarray(selects, np.uint8).reshape(-1, 4)
    return (fours << np.arange(0, 8, 2, dtype=np.uint8)).sum(axis=1).astype(np.uint8)


def pack_zero_points(zero_points: np.ndarray) -> np.ndarray:
    """Return metadata of keys or values: zero points of tokens, in order, as bytes.

    Sixteen elements have 64 zero points: those of four tiles of keys, or of 16 columns of values.
    """
    return pack_nibbles(np.asarray(zero_points).ravel())


def key_append(token: int, codes: np.ndarray, *, elements: int = 16) -> list[tuple[int, int, int]]:
    """Return the masked writes that append a token's key: column, byte mask, and data.

    Parameters
    ----------
    token : int
        Index of the token in the head's cache.
    codes : numpy.ndarray
        One code per channel.
    elements : int
        Outputs per column.

    Returns
    -------
    list[tuple[int, int, int]]
        For every write: the column, counted over the head's tiles; the mask of bytes; all bytes as
        an integer. A key occupies two bytes of every column of its tile.
    """
    tile, element = divmod(token, elements)
    count = len(codes) // PE_LANES
    two = pack_nibbles(np.asarray(codes).reshape(count, PE_LANES)).astype(int)
    place = 2 * element
    return [
        (tile * count + column, 3 << place, int(low | high << 8) << 8 * place)
        for column, (low, high) in enumerate(two)
    ]


def row_number(row: int, side: int) -> int:
    """Return the index of a row in order of positions, from its number in banks of a parity.

    Consecutive rows alternate between even and odd banks: even first in rows 0 to 15, odd first in
    rows 16 to 31, and so on.
    """
    return 2 * row + (side if row // 8 % 2 == 0 else 1 - side)
