"""A whole model for MEADOW in one file: integers, memory images and addresses."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.packing.weight_packer import PackedMatrix
from golden.meadow.tile.requantisation import Integers
from golden.meadow.whole_model import IntegerModel, IntegerVocabulary
from hdl.meadow.control.program import LayerPlace, VocabularyPlace
from hdl.meadow.parameters import MeadowParameters
from testbenches.meadow.memory_images import Bytes, MemoryImages

Parts = list[PackedMatrix]
"""The parts of a packed matrix, one per unpacker."""

IMAGES = ("vectors", "cache", "tables", "packets", "scales")


@dataclass(frozen=True, eq=False)
class PackedParts:
    """The packed matrices of a model.

    Members
    -------
    layers : list[dict[str, Parts]]
        Those of each layer by name.
    vocabulary : list[Parts]
        Those of the slices of the LM head.
    """

    layers: list[dict[str, Parts]]
    vocabulary: list[Parts]


@dataclass(frozen=True, eq=False)
class PackedModel:
    """A model in the form that an accelerator reads.

    Members
    -------
    integers : IntegerModel
        The weights.
    images : dict[str, numpy.ndarray]
        The memories, as in `MemoryImages`; an area for the states of a block follows the vectors.
    layers : list[LayerPlace]
        Addresses of each layer.
    vocabulary : VocabularyPlace
        Addresses of the LM head.
    states : int
        Address of the area for the states of a block.
    """

    integers: IntegerModel
    images: dict[str, Bytes]
    layers: list[LayerPlace]
    vocabulary: VocabularyPlace
    states: int

    def arrays(self) -> dict[str, Any]:
        """Return all arrays by name, for a file."""
        arrays: dict[str, Any] = {f"image {name}": words for name, words in self.images.items()}
        arrays["vocabulary"] = self.integers.vocabulary.matrix.astype(np.int8)
        for place, layer in enumerate(self.integers.layers):
            for name, matrix in layer.matrices.items():
                arrays[f"{place} matrix {name}"] = matrix.astype(np.int8)
        about = {
            "numbers": numbers_of(self.integers),
            "places": [asdict(place) for place in self.layers],
            "pieces": asdict(self.vocabulary),
            "states": self.states,
        }
        arrays["about"] = np.frombuffer(json.dumps(about, default=_listed).encode(), np.uint8)
        return arrays

    @classmethod
    def of(cls, arrays: dict[str, Any]) -> "PackedModel":
        """Return the model that `arrays` describes."""
        about = json.loads(arrays["about"].tobytes())
        matrices: list[dict[str, Integers]] = [{} for _ in about["places"]]
        for key, matrix in arrays.items():
            place, kind, name = (*key.split(" "), "", "")[:3]
            if kind == "matrix":
                matrices[int(place)][name] = matrix.astype(np.int64)
        vocabulary = arrays["vocabulary"].astype(np.int64)
        return cls(
            integers_of(about["numbers"], matrices, vocabulary),
            {name: arrays[f"image {name}"] for name in IMAGES},
            [LayerPlace(**place) for place in about["places"]],
            VocabularyPlace(**about["pieces"]),
            about["states"],
        )


def numbers_of(integers: IntegerModel) -> dict[str, Any]:
    """Return all numbers of a model but its matrices, as JSON."""
    names = ("epsilon", "factors", "tile_factors", "lifts", "steps", "norms", "table")
    vocabulary = integers.vocabulary
    numbers = {
        "layers": [{name: getattr(layer, name) for name in names} for layer in integers.layers],
        "vocabulary": {name: getattr(vocabulary, name) for name in ("epsilon", "step", "norm")},
        "step": integers.step,
    }
    return json.loads(json.dumps(numbers, default=_listed))


def integers_of(
    numbers: dict[str, Any], matrices: Sequence[Mapping[str, Integers]], vocabulary: Integers
) -> IntegerModel:
    """Return a model of the numbers of `numbers_of`, and the matrices of layers and LM head."""
    layers = []
    for own, found in zip(numbers["layers"], matrices, strict=True):
        first, second = own["norms"]
        arrays = {
            "factors": {name: (scale, shift) for name, (scale, shift) in own["factors"].items()},
            "tile_factors": {name: np.array(tiles) for name, tiles in own["tile_factors"].items()},
            "norms": (np.array(first), np.array(second)),
            "table": np.array(own["table"]),
        }
        layers.append(IntegerLayer(**own | arrays, matrices=dict(found)))
    head = numbers["vocabulary"]
    return IntegerModel(
        layers,
        IntegerVocabulary(**head | {"norm": np.array(head["norm"])}, matrix=vocabulary),
        numbers["step"],
    )


def _listed(value: Any) -> Any:
    """Return an array or a number of numpy as JSON."""
    return value.tolist()


def packed_model(
    integers: IntegerModel, p: MeadowParameters, packed: PackedParts | None = None
) -> PackedModel:
    """Pack the matrices of a model unless they are packed, and assign all addresses."""
    images, packed = MemoryImages(p), packed or PackedParts([], [])
    none = [None] * len(integers.layers)
    layers = [
        images.add_layer(layer, parts)
        for layer, parts in zip(integers.layers, packed.layers or none, strict=True)
    ]
    vocabulary = images.add_vocabulary(integers.vocabulary, packed.vocabulary)
    states = images.add_vector(np.zeros((p.tokens, p.hidden_size), np.int64))
    words = {name: getattr(images, name).words for name in IMAGES}
    return PackedModel(integers, words, layers, vocabulary, states)
