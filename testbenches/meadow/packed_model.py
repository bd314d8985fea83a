"""A whole model for MEADOW in one file: integers, memory images and addresses."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.whole_model import IntegerModel, IntegerVocabulary
from hdl.meadow.control.program import LayerPlace, VocabularyPlace
from hdl.meadow.parameters import MeadowParameters
from testbenches.meadow.memory_images import Bytes, MemoryImages

IMAGES = ("vectors", "cache", "tables", "packets", "scales")


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
        vocabulary = self.integers.vocabulary
        arrays: dict[str, Any] = {f"image {name}": words for name, words in self.images.items()}
        arrays |= {"vocabulary": vocabulary.matrix.astype(np.int8), "final norm": vocabulary.norm}
        numbers = []
        for place, layer in enumerate(self.integers.layers):
            for name, matrix in layer.matrices.items():
                arrays[f"{place} matrix {name}"] = matrix.astype(np.int8)
            arrays[f"{place} norms"] = np.stack(layer.norms)
            arrays[f"{place} table"] = layer.table
            scales = {
                name: getattr(layer, name)
                for name in ("epsilon", "factors", "tile_factors", "lifts", "steps")
            }
            numbers.append(scales)
        about = {
            "layers": numbers,
            "vocabulary": {"epsilon": vocabulary.epsilon, "step": vocabulary.step},
            "places": [asdict(place) for place in self.layers],
            "pieces": asdict(self.vocabulary),
            "states": self.states,
            "step": self.integers.step,
        }
        arrays["about"] = np.frombuffer(
            json.dumps(about, default=lambda number: number.tolist()).encode(), np.uint8
        )
        return arrays

    @classmethod
    def of(cls, arrays: dict[str, Any]) -> "PackedModel":
        """Return the model that `arrays` describes."""
        about = json.loads(arrays["about"].tobytes())
        layers = []
        for place, numbers in enumerate(about["layers"]):
            prefix = f"{place} matrix "
            matrices = {
                name.removeprefix(prefix): matrix.astype(np.int64)
                for name, matrix in arrays.items()
                if name.startswith(prefix)
            }
            factors = {name: (scale, shift) for name, (scale, shift) in numbers["factors"].items()}
            tiles = {name: np.array(found) for name, found in numbers["tile_factors"].items()}
            norms = arrays[f"{place} norms"]
            layers.append(
                IntegerLayer(
                    **numbers | {"factors": factors, "tile_factors": tiles},
                    matrices=matrices,
                    norms=(norms[0], norms[1]),
                    table=arrays[f"{place} table"],
                )
            )
        vocabulary = IntegerVocabulary(
            matrix=arrays["vocabulary"].astype(np.int64),
            norm=arrays["final norm"],
            **about["vocabulary"],
        )
        return cls(
            IntegerModel(layers, vocabulary, about["step"]),
            {name: arrays[f"image {name}"] for name in IMAGES},
            [LayerPlace(**place) for place in about["places"]],
            VocabularyPlace(**about["pieces"]),
            about["states"],
        )


def packed_model(integers: IntegerModel, p: MeadowParameters) -> PackedModel:
    """Pack the matrices of a model, and assign all addresses."""
    images = MemoryImages(p)
    layers = [images.add_layer(layer) for layer in integers.layers]
    vocabulary = images.add_vocabulary(integers.vocabulary)
    states = images.add_vector(np.zeros((p.tokens, p.hidden_size), np.int64))
    words = {name: getattr(images, name).words for name in IMAGES}
    return PackedModel(integers, words, layers, vocabulary, states)
