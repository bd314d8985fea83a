"""A packed model in the file of an accelerator: `make pack TOP=meadow` and the option PACKED.

The matrices have the order in which the tile reads words. The record of the accelerator holds the
model, the parameters, and all other numbers of the model.
"""

from pathlib import Path

import numpy as np

from golden.meadow.packing.packed_file import CorruptedFile, Item, read_contents, write_packed
from golden.meadow.packing.packets import CorruptedPackets
from golden.meadow.packing.weight_packer import Level, unpack_matrix
from golden.meadow.tile.hybrid_tile import tile_of
from golden.meadow.tile.requantisation import Integers
from golden.meadow.whole_model import IntegerModel
from hdl.errors import UserError
from hdl.meadow.parameters import MeadowParameters
from hdl.parameter_list import descriptions
from testbenches.meadow.memory_images import MemoryImages
from testbenches.meadow.packed_model import (
    PackedModel,
    PackedParts,
    Parts,
    integers_of,
    numbers_of,
    packed_model,
)

ORDER = "tile"
"""Order of the rows: as the tile reads words, round-robin over the unpackers."""

HEAD = "vocabulary"
"""First part of the names of the LM head's slices."""


def levels_of(p: MeadowParameters) -> list[str]:
    """Return the levels of packing that the unpackers of an accelerator can read."""
    classes = p.unpacker.unpacker.classes
    return [level.name.lower() for level in Level if classes or level is not Level.CLASSES]


def matrices_of(p: MeadowParameters) -> dict[str, tuple[int, int]]:
    """Return the tiles of each matrix of a layer, and the elements of their inner dimension."""
    state, inner = p.state_words, p.feed_forward_words
    tiles = {"query": p.heads, "key": p.kv_heads, "value": p.kv_heads, "output": state}
    tiles |= {"gate": inner} if p.gated else {}
    tiles |= {"up": inner, "down": state}
    return {
        name: (count, p.intermediate_size if name == "down" else p.hidden_size)
        for name, count in tiles.items()
    }


def write_model(
    file: Path, integers: IntegerModel, p: MeadowParameters, *, digest: str, level: str
) -> dict[str, Item]:
    """Pack a model for an accelerator, write its file, and return the packed matrices.

    Parameters
    ----------
    file : Path
        The file.
    integers : IntegerModel
        The model.
    p : MeadowParameters
        Parameters of the accelerator.
    digest : str
        The model's digest.
    level : str
        Level of packing, one of `levels_of`.
    """
    images = MemoryImages(p, Level[level.upper()])
    none = np.zeros(0, np.float32)
    items: dict[str, Item] = {}

    def add(name: str, tiles: Integers) -> None:
        for number, part in enumerate(images.packed(tiles)):
            items[f"{name}.{number}"] = Item(part, none)

    for number, layer in enumerate(integers.layers):
        for name, tiles in layer.matrices.items():
            add(f"{number}.{name}", tiles)
    tiles = integers.vocabulary.tiles(p.head_size)
    for number, first in enumerate(range(0, len(tiles), p.tile.heads)):
        add(f"{HEAD}.{number}", tiles[first : first + p.tile.heads])
    record = {
        "order": ORDER,
        "level": level,
        "model": digest,
        "parameters": _values(p),
        "numbers": numbers_of(integers),
    }
    write_packed(file, items, record)
    return items


class AcceleratorFile:
    """A file that `write_model` wrote, checked for an accelerator and a model.

    Parameters
    ----------
    file : Path
        The file.
    p : MeadowParameters
        Parameters of the accelerator.
    digest : str
        The model's digest.

    Members
    -------
    sha256 : str
        Digest of the file.

    Raises
    ------
    UserError
        If the file is corrupted, or is not for this accelerator and this model.
    """

    def __init__(self, file: Path, p: MeadowParameters, digest: str) -> None:
        if not file.is_file():
            raise UserError(f"PACKED must be a file that exists, not {file}")
        self.file, self.p = file, p
        data = file.read_bytes()
        try:
            items, record = read_contents(data)
        except CorruptedFile as error:
            raise self._corrupted(error) from error
        # The last bytes are the SHA-256 of all others.
        self.sha256 = data[-32:].hex()
        self.record = record
        self._require("order of rows", ORDER, record.get("order", "that of a model file"))
        self._require("SHA-256 of the model", digest, record.get("model"))
        found = record.get("parameters")
        found = found if isinstance(found, dict) else {}
        for name, value in _values(p).items():
            self._require(f"parameter {name}", value, found.get(name))
        levels = levels_of(p)
        if (level := record.get("level")) not in levels:
            raise UserError(f"the level of PACKED must be one of {', '.join(levels)}, not {level}")
        self._items = items
        try:
            layers = len(record["numbers"]["layers"])
        except (KeyError, TypeError) as error:
            raise self._corrupted("it must have the numbers of all layers") from error
        self._shapes = [
            {f"{number}.{name}": shape for name, shape in matrices_of(p).items()}
            for number in range(layers)
        ]
        tiles, most = p.vocabulary_tiles, p.tile.heads
        self._slices = {
            f"{HEAD}.{number}": (min(most, tiles - first), p.hidden_size)
            for number, first in enumerate(range(0, tiles, most))
        }
        self._check_matrices()

    def _require(self, what: str, wanted: str, found: object) -> None:
        if found != wanted:
            raise UserError(f"the {what} of PACKED must be {wanted}, not {found}: {self.file}")

    def _corrupted(self, problem: object) -> UserError:
        return UserError(f"PACKED must be an intact file of packed weights: {problem}: {self.file}")

    def _check_matrices(self) -> None:
        """Check names, and that the unpackers can read all matrices."""
        p, own = self.p, self.p.unpacker
        wanted = {
            f"{name}.{part}": (tiles * elements // p.unpackers, p.head_size)
            for shapes in (*self._shapes, self._slices)
            for name, (tiles, elements) in shapes.items()
            for part in range(p.unpackers)
        }
        if wrong := wanted.keys() ^ self._items.keys():
            raise self._corrupted(f"it must have the matrices of the model, unlike {min(wrong)!r}")
        for name, item in self._items.items():
            matrix = item.matrix
            first = self._items[name.rpartition(".")[0] + ".0"].matrix
            rules = (
                ("shape", matrix.shape, wanted[name]),
                ("chunk", matrix.chunk, own.chunk),
                ("packet_bits", matrix.packet_bits, own.unpacker.packet_bits),
                ("level", matrix.level.name.lower(), self._level_of(first.level)),
                ("unique chunks", len(matrix.unique), min(len(matrix.unique), own.entries)),
                ("widths", (matrix.widths, matrix.class_bits), (first.widths, first.class_bits)),
            )
            for what, value, rule in rules:
                if value != rule:
                    raise self._corrupted(f"{what} of {name!r} must be {rule}, not {value}")
            if not np.array_equal(matrix.unique, first.unique):
                raise self._corrupted(f"{name!r} must have the unique chunks of all unpackers")

    def _level_of(self, level: Level) -> str:
        """Return the level of all parts of a matrix: that of the file, or raw."""
        return "raw" if level is Level.RAW else self.record["level"]

    def model(self) -> PackedModel:
        """Unpack the weights, and place the packed ones in the accelerator's memory.

        Raises
        ------
        UserError
            If packets or numbers break the format.
        """
        p = self.p
        try:
            layers = [
                {name.partition(".")[2]: self._tiles(name, shape) for name, shape in own.items()}
                for own in self._shapes
            ]
            slices = [self._tiles(name, shape) for name, shape in self._slices.items()]
            head = np.concatenate(slices).swapaxes(0, 1).reshape(p.hidden_size, -1)
            packed = PackedParts(
                [
                    {name.partition(".")[2]: self._parts(name) for name in own}
                    for own in self._shapes
                ],
                [self._parts(name) for name in self._slices],
            )
            integers = integers_of(self.record["numbers"], layers, head[:, : p.vocabulary_size])
            return packed_model(integers, p, packed)
        except (CorruptedPackets, KeyError, TypeError, ValueError) as error:
            raise self._corrupted(error) from error

    def _parts(self, name: str) -> Parts:
        return [self._items[f"{name}.{part}"].matrix for part in range(self.p.unpackers)]

    def _tiles(self, name: str, shape: tuple[int, int]) -> Integers:
        """Return a matrix of weights, shape (tiles, elements, size)."""
        parts = np.stack([unpack_matrix(part) for part in self._parts(name)], axis=1)
        words = parts.astype(np.int64).reshape(*shape, -1)
        return np.stack([tile_of(tile, self.p.tile) for tile in words])


def _values(p: MeadowParameters) -> dict[str, str]:
    """Return all parameters by name, as the command line accepts them."""
    named = ((parameter.path, parameter.value(p)) for parameter in descriptions(type(p)))
    return {name: value for name, value in named if value}
