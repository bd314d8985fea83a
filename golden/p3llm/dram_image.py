"""The bytes in the banks: weights, scales, keys and values at the positions of the system.

A position is one column of every unit. The positions of a row are followed by those of a row in the
banks of the other parity.
"""

import numpy as np

from golden.nonlinear.row_norm import quantise_weights
from golden.p3llm.dram_layout import PE_LANES, pack_columns, pack_nibbles, pack_selects
from golden.p3llm.p3llm import Bytes, Cache, Halves, Matrix, Vocabulary, Weights
from hdl.p3llm.matrix_place import LINEAR_SET, SCALE_SET, MatrixPlace
from hdl.p3llm.parameters import KEY_SET, P3llmParameters


def halves(p: P3llmParameters, numbers: Halves) -> Bytes:
    """Return positions of FP16 numbers, shape (positions, units, bytes)."""
    padded = np.pad(numbers.ravel(), (0, -numbers.size % p.round_outputs))
    return by_channel(p, bytes_of(padded).reshape(-1, 2 * p.elements))


def bytes_of(numbers: Halves) -> Bytes:
    """Return the bytes of FP16 numbers."""
    return numbers.astype("<u2").view(np.uint8)


def by_channel(p: P3llmParameters, tiles: np.ndarray) -> np.ndarray:
    """Arrange data of output tiles, shape (tiles, ...), as (rounds, units, ...).

    Tiles are distributed round-robin over the pseudo-channels, then over their units; the units of
    a pseudo-channel are adjacent.
    """
    spread = tiles.reshape(-1, p.units, p.pseudo_channels, *tiles.shape[1:]).swapaxes(1, 2)
    return spread.reshape(-1, p.pseudo_channels * p.units, *tiles.shape[1:])


def of_rounds(p: P3llmParameters, rounds: int, rows: np.ndarray) -> np.ndarray:
    """Arrange data of outputs as (rounds, units, elements, ...), padded with zeros."""
    padding = [(0, rounds * p.round_outputs - len(rows)), *[(0, 0)] * (rows.ndim - 1)]
    return by_channel(p, np.pad(rows, padding).reshape(-1, p.elements, *rows.shape[1:]))


def matrix_image(p: P3llmParameters, matrix: Matrix, place: MatrixPlace) -> Bytes:
    """Return a linear layer: row scales, then the groups of each round."""
    units = p.pseudo_channels * p.units
    selects = of_rounds(p, place.rounds, matrix.selects)
    steps = of_rounds(p, place.rounds, matrix.steps)
    size = 2 * p.elements
    columns = matrix.columns.reshape(len(matrix.columns), place.groups, place.steps, size)
    padding = [(0, place.rounds * units - len(columns)), (0, 0), (0, 0), (0, 0)]
    columns = by_channel(p, np.pad(columns, padding))
    whole = place.rounds - place.shared
    image = rounds_image(selects[:whole], steps[:whole], columns[:whole])
    if place.shared:
        image += rounds_image(
            shared_round(p, place, selects[-1:], axis=3),
            shared_round(p, place, steps[-1:], axis=3),
            shared_round(p, place, columns[-1:], axis=2),
        )
    return np.concatenate([halves(p, matrix.scales), *image])


def shared_round(p: P3llmParameters, place: MatrixPlace, tiles: Bytes, *, axis: int) -> Bytes:
    """Return the last round of a matrix, whose upper units store the second half of the groups.

    `tiles` has rounds, units and, at `axis`, the groups of each tile.
    """
    units = p.units // 2
    own = tiles.reshape(1, p.pseudo_channels, p.units, *tiles.shape[2:])[:, :, :units]
    first, second = np.split(own, [place.shared_groups], axis=axis + 1)
    padding = [(0, 0)] * second.ndim
    padding[axis + 1] = (0, first.shape[axis + 1] - second.shape[axis + 1])
    both = np.concatenate([first, np.pad(second, padding)], axis=2)
    return both.reshape(1, -1, *both.shape[3:])


def rounds_image(selects: Bytes, steps: Bytes, columns: Bytes) -> list[Bytes]:
    """Return the rounds of tiles, each with all its groups.

    The special values of eight groups precede these groups, the scales of two groups precede both.
    """
    image = []
    rounds, units, elements, groups = selects.shape
    beyond = [(0, 0)] * 3 + [(0, LINEAR_SET)]
    # A table contains its groups in order, each with all elements.
    special, scales = (np.pad(one, beyond).swapaxes(2, 3) for one in (selects, steps))
    for number in range(rounds):
        for group in range(groups):
            if group % LINEAR_SET == 0:
                bits = special[number, :, group : group + LINEAR_SET]
                image.append(np.stack([pack_selects(unit) for unit in bits])[np.newaxis])
            if group % SCALE_SET == 0:
                two = scales[number, :, group : group + SCALE_SET]
                image.append(two.reshape(1, units, SCALE_SET * elements))
            image.append(columns[number, :, group].swapaxes(0, 1))
    return image


def key_image(p: P3llmParameters, cache: Cache, head: int) -> Bytes:
    """Return a head's keys: sets of zero points, scales of keys and values, keys."""
    tokens = KEY_SET * p.block
    sets = -(-p.slots // tokens)
    behind = sets * tokens - cache.keys.shape[1]
    zeros = np.pad(cache.key_zeros[head], (0, behind))
    zeros = zeros.reshape(sets, KEY_SET, p.units, p.elements).swapaxes(1, 2)
    scales = [
        bytes_of(np.pad(one[head], (0, behind))).reshape(sets, KEY_SET, p.units, -1)
        for one in (cache.key_scales, cache.value_scales)
    ]
    columns = pack_columns(np.pad(cache.keys[head], [(0, behind), (0, 0)]), elements=p.elements)
    columns = columns.reshape(sets, KEY_SET, p.units, p.head_size // PE_LANES, -1).swapaxes(2, 3)
    parts = [pack_nibbles(zeros.reshape(sets, 1, p.units, -1)), *scales]
    parts.append(columns.reshape(sets, -1, p.units, 2 * p.elements))
    return np.concatenate(parts, axis=1).reshape(-1, p.units, 2 * p.elements)


def value_image(p: P3llmParameters, cache: Cache, head: int) -> Bytes:
    """Return a head's values: sets of zero points and values, in the units that store channels."""
    tokens = PE_LANES * p.elements
    sets = -(-p.slots // tokens)
    behind = sets * tokens - cache.values.shape[1]
    tiles = p.head_size // p.elements
    image = np.zeros((sets, 1 + p.elements, p.units, 2 * p.elements), np.uint8)
    zeros = np.pad(cache.value_zeros[head], (0, behind)).reshape(sets, -1)
    image[:, 0, :tiles] = pack_nibbles(zeros)[:, np.newaxis]
    vectors = np.pad(cache.values[head], [(0, behind), (0, 0)])
    columns = pack_columns(vectors.T, elements=p.elements)
    columns = columns.reshape(tiles, sets, p.elements, -1)
    image[:, 1:, :tiles] = columns.transpose(1, 2, 0, 3)
    return image.reshape(-1, p.units, 2 * p.elements)


def layer_image(p: P3llmParameters, weights: Weights, *caches: Cache) -> Bytes:
    """Return a layer and each request's cache, shape (positions, units, bytes).

    The units are those of all pseudo-channels, one pseudo-channel after the other.
    """
    parts = [norm_image(p, norm) for norm in weights.norms]
    parts += [halves(p, cache.factors) for cache in caches]
    for name, place in p.matrices.items():
        parts.append(matrix_image(p, getattr(weights, name), place))
    return np.concatenate([*parts, *(cache_image(p, cache) for cache in caches)])


def norm_image(p: P3llmParameters, weights: np.ndarray) -> Bytes:
    """Return the image of a norm's weights, which are given in float."""
    return halves(p, quantise_weights(weights, p.norm).astype(np.int16).view(np.uint16))


def cache_image(p: P3llmParameters, cache: Cache) -> Bytes:
    """Return a request's cache of a layer: the keys of all heads, then the values."""
    last, channels = p.kv_heads - 1, p.pseudo_channels
    return np.concatenate(
        [
            # Heads are distributed round-robin; pseudo-channels without a head store the last one.
            np.concatenate(
                [image(p, cache, min(first + own, last)) for own in range(channels)], axis=1
            )
            for image in (key_image, value_image)
            for first in range(0, p.kv_heads, channels)
        ]
    )


def vocabulary_image(p: P3llmParameters, vocabulary: Vocabulary) -> Bytes:
    """Return the image after all layers: the final norm's weights, the pieces of the LM head."""
    parts, first = [norm_image(p, vocabulary.norm)], 0
    for place in p.projection:
        rows = slice(first, first + place.outputs)
        tiles = slice(first // p.elements, -(-rows.stop // p.elements))
        whole = vocabulary.matrix
        piece = Matrix(
            columns=whole.columns[tiles],
            selects=whole.selects[rows],
            steps=whole.steps[rows],
            scales=whole.scales[rows],
        )
        parts.append(matrix_image(p, piece, place))
        first = rows.stop
    return np.concatenate(parts)
