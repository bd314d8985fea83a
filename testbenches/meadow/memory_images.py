"""MEADOW's memories: packed matrices, unique matrices, vectors, and where the cache has room."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.meadow.attention_pipeline import weight_words
from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.packing.chunks import encode, reindexed
from golden.meadow.packing.weight_packer import Level, PackedMatrix, pack_encoded, pack_matrix
from golden.meadow.tile.requantisation import Integers
from golden.meadow.whole_model import IntegerVocabulary
from golden.meadow.wilu.weight_unpacker import of_weights
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.attention_parameters import HALVES

Octets = NDArray[np.uint8]
STATE_OCTETS, BIAS_OCTETS = 3, 3


def octets_of(values: Integers, octets: int) -> Octets:
    """Return the low octets of integers, side by side along the last axis."""
    low = values.astype("<i8")[..., np.newaxis].view(np.uint8)[..., :octets]
    return low.reshape(*values.shape[:-1], -1)


def states_of(rows: Octets) -> Integers:
    """Return the hidden states that octets hold, without a shape."""
    shown = rows.reshape(-1, STATE_OCTETS).astype(np.int64) @ (1 << 8 * np.arange(STATE_OCTETS))
    sign = 1 << 8 * STATE_OCTETS - 1
    return (shown ^ sign) - sign


class Image:
    """A memory that is filled from its start.

    Parameters
    ----------
    octets : int
        Of a word.
    start : int
        Address of its first word.
    """

    def __init__(self, octets: int, start: int = 0) -> None:
        self.parts: list[Octets] = []
        self.octets, self.start, self.end = octets, start, start

    def add(self, rows: Octets) -> int:
        """Add words; return the first one's address."""
        first, self.end = self.end, self.end + rows.size // self.octets
        self.parts.append(rows.reshape(-1, self.octets))
        return first

    @property
    def words(self) -> Octets:
        """The whole memory, of at least one word."""
        return np.concatenate([*self.parts, np.zeros((1, self.octets), np.uint8)])

    def place(self, address: int) -> int:
        """Return which word an address means."""
        return address - self.start


class CacheImage(Image):
    """The cache: rooms of heads at equal distances, then whatever else is added.

    Parameters
    ----------
    octets, start : int
        As of `Image`.
    features : int
        Words of a room.
    spacing : int
        From a room to the next, as addresses go; in between is nothing.
    """

    def __init__(self, octets: int, start: int, *, features: int, spacing: int) -> None:
        super().__init__(octets, start)
        self.features, self.spacing, self.rooms = features, spacing, 0

    def add_rooms(self, count: int) -> int:
        """Add empty rooms; return the first one's address."""
        self.parts.append(np.zeros((count * self.features, self.octets), np.uint8))
        self.rooms += count
        first, self.end = self.end, self.end + count * self.spacing
        return first

    def place(self, address: int) -> int:
        """Return which word an address means; none if it is between rooms."""
        room, word = divmod(super().place(address), self.spacing)
        if room >= self.rooms:
            return super().place(address) - self.rooms * (self.spacing - self.features)
        return room * self.features + word if word < self.features else -1


@dataclass(frozen=True, eq=False)
class LayerPlace:
    """Where a layer is.

    Members
    -------
    vectors : dict[str, int]
        Addresses of both norms' weights, of the exponentials, of keys and of values.
    matrices : dict[str, dict]
        What is told of each matrix.
    """

    vectors: dict[str, int]
    matrices: dict[str, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class RowsPlace:
    """Where scores and probabilities have room, of one layer at a time.

    Members
    -------
    scores, probabilities : int
        Addresses beside the cache.
    octets : int
        Of a probability: 1 or 2.
    """

    scores: int
    probabilities: int
    octets: int


@dataclass(frozen=True, eq=False)
class VocabularyPlace:
    """Where the vocabulary is.

    Members
    -------
    norm : int
        Address of the final norm's weights.
    pieces : list[dict]
        What is told of each matrix, as many tiles as an instruction takes.
    """

    norm: int
    pieces: list[dict[str, Any]]


class MemoryImages:
    """The four memories of an accelerator.

    Parameters
    ----------
    p : MeadowParameters
        Dimensions.
    level : Level
        How weights are packed.
    rng : numpy.random.Generator, optional
        Draws where each memory begins, and how far heads are from each other in the cache; without
        it all begins at address 0, and has no gaps.

    Members
    -------
    vectors, cache, tables, packets : Image
        Hidden states, norms and exponentials; keys and values; unique matrices; packets.
    biases : Image
        Biases of linear layers, by pairs.
    """

    def __init__(
        self,
        p: MeadowParameters,
        level: Level = Level.REINDEXED,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.p, self.level = p, level

        # Memories are small beside the half of all addresses that is left behind them.
        half = 1 << p.address_bits - 1
        starts = np.zeros(5, int) if rng is None else rng.integers(half, size=5)
        # Some layers' heads, as far from each other as that half allows.
        most = max(half // (16 * p.kv_heads) - p.features, 1)
        gap = 0 if rng is None else int(rng.integers(most))
        # A matrix of a few hundred weights would never be smaller packed.
        self.forced = p.head_size < 64
        octets = (
            STATE_OCTETS * p.head_size,
            p.unpacker.chunk,
            p.unpacker.unpacker.packet_bits // 8,
            HALVES * BIAS_OCTETS,
        )
        cache, *others = map(int, starts)
        self.vectors, self.tables, self.packets, self.biases = map(Image, octets, others)
        self.cache = CacheImage(p.head_size, cache, features=p.features, spacing=p.features + gap)

    def packed(self, tiles: Integers) -> PackedMatrix:
        """Pack tiles (tiles, elements, size), as the pipeline wants their words."""
        words = np.concatenate([weight_words(tile, self.p.attention) for tile in tiles])
        unpacker, level = self.p.unpacker, self.level
        how = {"chunk": unpacker.chunk, "packet_bits": unpacker.unpacker.packet_bits}
        encoded = encode(words, unpacker.chunk)
        if level in (Level.REINDEXED, Level.CLASSES):
            encoded = reindexed(encoded)
        if level is Level.RAW or len(encoded.unique) > unpacker.entries:
            return pack_matrix(words, Level.RAW, **how)
        if self.forced:
            return pack_encoded(encoded, words.shape, level, unpacker.unpacker.packet_bits)
        return pack_matrix(words, level, **how)

    def add_vector(self, vector: Integers) -> int:
        """Put words of hidden states' width into memory; return the first one's address."""
        size = self.p.head_size
        return self.vectors.add(octets_of(vector.reshape(-1, size), STATE_OCTETS))

    def add_matrix(self, tiles: Integers, bias: Integers | None = None) -> dict[str, Any]:
        """Put a matrix and its biases [tiles, size] into memory; return what is told of it."""
        told = self.describe(self.packed(tiles), tiles)
        if self.p.biases:
            bias = np.zeros((len(tiles), self.p.head_size), np.int64) if bias is None else bias
            rows = octets_of(bias.reshape(-1, HALVES), BIAS_OCTETS)
            told |= {"biases": self.biases.add(rows), "tiles": len(tiles)}
        return told

    def add_norm(self, weights: Integers, bias: Integers | None = None) -> int:
        """Put a norm's weights into memory, each word before that of its biases, if it has them."""
        if not self.p.layer_norm:
            return self.add_vector(weights)
        rows = (weights, np.zeros_like(weights) if bias is None else bias)
        words = np.stack([row.reshape(-1, self.p.head_size) for row in rows], axis=1)
        return self.add_vector(words)

    def describe(self, one: PackedMatrix, tiles: Integers) -> dict[str, Any]:
        """Put a packed matrix into memory; return what is told of it."""
        given = of_weights(one)
        rows = np.zeros((0, self.p.unpacker.chunk), np.int8) if given.table is None else given.table
        words = tiles.size // self.p.head_size
        return {
            "packing": {
                "packed": given.packed.description(self.p.unpacker.unpacker.id_bits),
                "bypass": int(given.table is None),
            },
            "table": self.tables.add(rows.view(np.uint8)),
            "rows": len(rows),
            "packets": self.packets.add(one.packets.astype("<u8").view(np.uint8)),
            "number": len(one.packets),
            "words": words,
            "tile": words // len(tiles),
        }

    def add_layer(self, layer: IntegerLayer) -> LayerPlace:
        """Put norms, exponentials, matrices and room for the cache into memory."""
        p = self.p
        biases = layer.norm_biases or (None, None)
        places = {
            name: self.add_norm(weights, bias)
            for name, weights, bias in zip(("first", "second"), layer.norms, biases, strict=True)
        }
        places["table"] = self.add_vector(layer.table)
        places |= {name: self.cache.add_rooms(p.kv_heads) for name in ("keys", "values")}
        return LayerPlace(
            places,
            {
                name: self.add_matrix(tiles, layer.biases.get(name))
                for name, tiles in layer.matrices.items()
            },
        )

    def add_rows(self, tokens: int, octets: int) -> RowsPlace:
        """Make room for the scores and probabilities of so many tokens."""
        p = self.p
        words = p.heads * tokens * p.attention.row_words
        scores, probabilities = (
            self.cache.add(np.zeros((count * words, p.head_size), np.uint8))
            for count in (1, octets)
        )
        return RowsPlace(scores, probabilities, octets)

    def add_vocabulary(self, vocabulary: IntegerVocabulary) -> VocabularyPlace:
        """Put the vocabulary's norm and its pieces into memory."""
        p = self.p
        tiles, most = vocabulary.tiles(p.head_size), p.attention.heads
        biases = vocabulary.bias_tiles(p.head_size)
        return VocabularyPlace(
            self.add_norm(vocabulary.norm, vocabulary.norm_bias),
            [
                self.add_matrix(
                    tiles[first : first + most],
                    None if biases is None else biases[first : first + most],
                )
                for first in range(0, len(tiles), most)
            ],
        )
