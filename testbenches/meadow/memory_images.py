"""Images of MEADOW's memories: packets, unique matrices, vectors, and the key/value cache."""

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.packing.chunks import encode, reindexed
from golden.meadow.packing.weight_packer import Level, PackedMatrix, pack_encoded, pack_matrix
from golden.meadow.tile.hybrid_tile import weight_words
from golden.meadow.tile.requantisation import Integers
from golden.meadow.whole_model import IntegerVocabulary
from golden.meadow.wilu.weight_unpacker import of_weights, table_words
from hdl.meadow.control.program import (
    LayerPlace,
    MatrixDescription,
    RowsPlace,
    VocabularyPlace,
)
from hdl.meadow.parameters import MeadowParameters
from hdl.meadow.tile.tile_parameters import HALVES

Bytes = NDArray[np.uint8]
STATE_BYTES, BIAS_BYTES, FACTOR_BYTES = 3, 3, 3


def bytes_of(values: Integers, count: int) -> Bytes:
    """Return the lowest `count` bytes of each integer, consecutively along the last axis."""
    low = values.astype("<i8")[..., np.newaxis].view(np.uint8)[..., :count]
    return low.reshape(*values.shape[:-1], -1)


def states_of(rows: Bytes) -> Integers:
    """Return the hidden states that bytes encode, as a flat array."""
    shown = rows.reshape(-1, STATE_BYTES).astype(np.int64) @ (1 << 8 * np.arange(STATE_BYTES))
    sign = 1 << 8 * STATE_BYTES - 1
    return (shown ^ sign) - sign


class Image:
    """A memory that is filled from its start.

    Parameters
    ----------
    word_bytes : int
        Bytes per word.
    start : int
        Address of its first word.
    """

    def __init__(self, word_bytes: int, start: int = 0) -> None:
        self.parts: list[Bytes] = []
        self.word_bytes, self.start, self.end = word_bytes, start, start

    def add(self, rows: Bytes) -> int:
        """Append words; return the address of the first one."""
        first, self.end = self.end, self.end + rows.size // self.word_bytes
        self.parts.append(rows.reshape(-1, self.word_bytes))
        return first

    @property
    def words(self) -> Bytes:
        """Content of the whole memory, at least one word."""
        return np.concatenate([*self.parts, np.zeros((1, self.word_bytes), np.uint8)])

    def index(self, address: int) -> int:
        """Return the index of the word at an address."""
        return address - self.start


class CacheImage(Image):
    """The cache: areas of heads at equal distances, then other data.

    The distance may be so large that later areas wrap around to lower addresses.

    Parameters
    ----------
    word_bytes, start : int
        As in `Image`.
    features : int
        Words of an area, the capacity of a head.
    spacing : int
        Distance of consecutive areas in addresses; the gaps have no words.
    addresses : int
        Number of addresses.
    """

    def __init__(
        self, word_bytes: int, start: int, *, features: int, spacing: int, addresses: int
    ) -> None:
        super().__init__(word_bytes, start)
        self.features, self.spacing, self.addresses = features, spacing, addresses
        # Address, number of words, and place in `words` of each area and of other data, sorted.
        self.blocks: list[tuple[int, int, int]] = []

    def add_heads(self, count: int) -> int:
        """Append empty areas of heads; return the address of the first one."""
        first = self.end
        for _ in range(count):
            area = self.add(np.zeros((self.features, self.word_bytes), np.uint8))
            self.end = (area + self.spacing) % self.addresses
        return first

    def add(self, rows: Bytes) -> int:
        """Append words; return the address of the first one."""
        words, place = rows.size // self.word_bytes, sum(map(len, self.parts))
        insort(self.blocks, (self.end, words, place))
        first = super().add(rows)
        self.end %= self.addresses
        return first

    def index(self, address: int) -> int:
        """Return the index of the word at an address, -1 in a gap."""
        block = bisect_right(self.blocks, (address, self.addresses)) - 1
        first, words, place = self.blocks[block]
        word = (address - first) % self.addresses
        return place + word if word < words else -1


def distance_of_heads(slots: int, addresses: int, most: int, rng: np.random.Generator) -> int:
    """Return a random distance at which up to `most` areas of `slots` words do not overlap."""
    # Other data follow the last area, and are at most as long.
    apart = max(slots, addresses // (8 * most))
    for _ in range(1000):
        distance = int(rng.integers(addresses))
        places = distance * np.arange(1, most + 1, dtype=object) % addresses
        if all(apart <= place <= addresses - apart for place in places):
            return distance
    raise ValueError(f"address_bits must allow {most} areas of {slots} words")


class MemoryImages:
    """The memories of an accelerator.

    Parameters
    ----------
    p : MeadowParameters
        Dimensions of the accelerator.
    level : Level
        Level of packing of the weights.
    rng : numpy.random.Generator, optional
        Generator of the base address of each memory and of the distance of the heads in the cache;
        without it, each memory begins at address 0, and the heads are contiguous.

    Members
    -------
    vectors, cache, tables, packets : Image
        Hidden states, norms and exponentials; keys and values; unique matrices; packets.
    biases : Image
        Biases of linear layers, in pairs.
    scales : Image
        Scale and shift of each output tile.
    """

    def __init__(
        self,
        p: MeadowParameters,
        level: Level = Level.REINDEXED,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.p, self.level = p, level

        # Base addresses are in the lower half of all addresses; the memories fit above them.
        addresses = 1 << p.address_bits
        starts = np.zeros(6, int) if rng is None else rng.integers(addresses // 2, size=6)
        # The heads of some layers, in any order of addresses.
        most = 16 * p.kv_heads
        spacing = p.slots if rng is None else distance_of_heads(p.slots, addresses, most, rng)
        # Packing never reduces a matrix of a few hundred weights, so it is forced.
        self.forced = p.head_size < 64
        sizes = (
            STATE_BYTES * p.head_size,
            p.unpacker.rows * p.unpacker.chunk,
            p.unpacker.unpacker.packet_bits // 8,
            HALVES * BIAS_BYTES,
            FACTOR_BYTES,
        )
        cache, *others = map(int, starts)
        images = map(Image, sizes, others)
        self.vectors, self.tables, self.packets, self.biases, self.scales = images
        self.cache = CacheImage(
            p.head_size, cache, features=p.slots, spacing=spacing, addresses=addresses
        )

    def packed(self, tiles: Integers) -> list[PackedMatrix]:
        """Pack tiles [tiles, elements, size] in the order in which the tile reads words.

        Each unpacker has a part of the words, in round-robin order; all parts have the same unique
        matrix.
        """
        words = np.concatenate([weight_words(tile, self.p.tile) for tile in tiles])
        unpacker, level = self.p.unpacker, self.level
        how = {"chunk": unpacker.chunk, "packet_bits": unpacker.unpacker.packet_bits}
        encoded = encode(words, unpacker.chunk)
        if level in (Level.REINDEXED, Level.CLASSES):
            encoded = reindexed(encoded)
        parts = range(self.p.unpackers)
        raw = [pack_matrix(words[part :: len(parts)], Level.RAW, **how) for part in parts]
        if level is Level.RAW or len(encoded.unique) > unpacker.entries:
            return raw
        ids = encoded.ids.reshape(len(words), -1)
        shape = (len(words) // len(parts), words.shape[1])
        packed = [
            pack_encoded(
                replace(encoded, ids=ids[part :: len(parts)].reshape(-1)),
                shape,
                level,
                how["packet_bits"],
            )
            for part in parts
        ]
        fetched = packed[0].unique.size + sum(one.packet_bytes for one in packed)
        return packed if self.forced or fetched < words.size else raw

    def add_vector(self, vector: Integers) -> int:
        """Append words of 24-bit elements; return the address of the first one."""
        size = self.p.head_size
        return self.vectors.add(bytes_of(vector.reshape(-1, size), STATE_BYTES))

    def add_matrix(
        self,
        tiles: Integers,
        bias: Integers | None = None,
        factors: Integers | None = None,
        parts: list[PackedMatrix] | None = None,
    ) -> MatrixDescription:
        """Append a matrix, its biases [tiles, size] and factors [tiles, 2]; describe it.

        Its packed `parts` are computed if absent.
        """
        description = self.describe(parts or self.packed(tiles), tiles)
        if self.p.tile_scales:
            # The LM head has no scales, since the argmax compares its sums.
            factors = np.zeros((len(tiles), 2), np.int64) if factors is None else factors
            words = np.concatenate(
                [bytes_of(factors[:, :1], FACTOR_BYTES - 1), bytes_of(factors[:, 1:], 1)], axis=1
            )
            description["scale_address"], description["tiles"] = self.scales.add(words), len(tiles)
        if self.p.biases:
            bias = np.zeros((len(tiles), self.p.head_size), np.int64) if bias is None else bias
            rows = bytes_of(bias.reshape(-1, HALVES), BIAS_BYTES)
            description["bias_address"], description["tiles"] = self.biases.add(rows), len(tiles)
        return description

    def add_norm(self, weights: Integers, bias: Integers | None = None) -> int:
        """Append the weights of a norm; with biases, each word precedes the word of its biases."""
        if not self.p.layer_norm:
            return self.add_vector(weights)
        rows = (weights, np.zeros_like(weights) if bias is None else bias)
        words = np.stack([row.reshape(-1, self.p.head_size) for row in rows], axis=1)
        return self.add_vector(words)

    def describe(self, parts: list[PackedMatrix], tiles: Integers) -> MatrixDescription:
        """Append the parts of a packed matrix; return its description."""
        given = of_weights(parts[0])
        unpacker = self.p.unpacker
        none = np.zeros((0, unpacker.rows, unpacker.chunk), np.int8)
        table = none if given.table is None else table_words(given.table, unpacker)
        words = tiles.size // self.p.head_size // len(parts)
        return {
            "packing": {
                "packed": given.packed.description(self.p.unpacker.unpacker.id_bits),
                "bypass": int(given.table is None),
            },
            "table_address": self.tables.add(table.view(np.uint8)),
            "table_words": len(table),
            "packet_address": [
                self.packets.add(part.packets.astype("<u8").view(np.uint8)) for part in parts
            ],
            "packet_count": [len(part.packets) for part in parts],
            "words": words,
            "tile_words": words // len(tiles),
        }

    def add_layer(
        self, layer: IntegerLayer, packed: Mapping[str, list[PackedMatrix]] | None = None
    ) -> LayerPlace:
        """Append norms, exponentials, matrices and an empty cache of a layer.

        The `packed` parts of its matrices are computed if absent.
        """
        p, packed = self.p, packed or {}
        biases = layer.norm_biases or (None, None)
        places = {
            name: self.add_norm(weights, bias)
            for name, weights, bias in zip(("first", "second"), layer.norms, biases, strict=True)
        }
        places["table"] = self.add_vector(layer.table)
        places |= {name: self.cache.add_heads(p.kv_heads) for name in ("keys", "values")}
        return LayerPlace(
            places,
            {
                name: self.add_matrix(
                    tiles, layer.biases.get(name), layer.tile_factors.get(name), packed.get(name)
                )
                for name, tiles in layer.matrices.items()
            },
        )

    def add_rows(self, tokens: int, probability_bytes: int) -> RowsPlace:
        """Reserve memory for the scores and probabilities of so many tokens."""
        p = self.p
        words = p.heads * tokens * p.tile.row_words
        scores, probabilities = (
            self.cache.add(np.zeros((count * words, p.head_size), np.uint8))
            for count in (1, probability_bytes)
        )
        return RowsPlace(scores, probabilities, probability_bytes)

    def add_vocabulary(
        self, vocabulary: IntegerVocabulary, packed: Sequence[list[PackedMatrix]] = ()
    ) -> VocabularyPlace:
        """Append the norm and the pieces of the LM head.

        The `packed` parts of the pieces are computed if absent.
        """
        p = self.p
        tiles, most = vocabulary.tiles(p.head_size), p.tile.heads
        biases = vocabulary.bias_tiles(p.head_size)
        return VocabularyPlace(
            self.add_norm(vocabulary.norm, vocabulary.norm_bias),
            [
                self.add_matrix(
                    tiles[first : first + most],
                    None if biases is None else biases[first : first + most],
                    parts=packed[number] if packed else None,
                )
                for number, first in enumerate(range(0, len(tiles), most))
            ],
        )
