"""A whole model for MEADOW in one file: its integers, its memories, and where everything is."""

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golden.llm.language_model import LanguageModel
from golden.meadow.layer_quantisation import IntegerLayer
from golden.meadow.whole_model import IntegerModel, IntegerVocabulary, integer_model
from hdl.meadow.parameters import MeadowParameters
from hdl.paths import locked, replace_bytes
from testbenches.meadow.memory_images import LayerPlace, MemoryImages, Octets, VocabularyPlace

IMAGES = ("vectors", "cache", "tables", "packets")


@dataclass(frozen=True, eq=False)
class PackedModel:
    """A model as an accelerator has it.

    Members
    -------
    integers : IntegerModel
        Its weights.
    images : dict[str, numpy.ndarray]
        The memories, as of `MemoryImages`; behind the vectors there is room for a block's states.
    layers : list[LayerPlace]
        Where each layer is.
    vocabulary : VocabularyPlace
        Where the vocabulary is.
    states : int
        Address of the room for a block's states.
    """

    integers: IntegerModel
    images: dict[str, Octets]
    layers: list[LayerPlace]
    vocabulary: VocabularyPlace
    states: int


def packed_model(integers: IntegerModel, p: MeadowParameters) -> PackedModel:
    """Pack a model's matrices and lay everything out."""
    images = MemoryImages(p)
    layers = [images.add_layer(layer) for layer in integers.layers]
    vocabulary = images.add_vocabulary(integers.vocabulary)
    states = images.add_vector(np.zeros((p.tokens, p.hidden_size), np.int64))
    words = {name: getattr(images, name).words for name in IMAGES}
    return PackedModel(integers, words, layers, vocabulary, states)


def opened_model(
    file: Path,
    model: LanguageModel,
    text: Sequence[int],
    p: MeadowParameters,
    report: Callable[[str], None],
) -> PackedModel:
    """Return a packed model from a file, which is written if it is not there, or damaged.

    Parameters
    ----------
    file : Path
        The file, named by all that it depends on.
    model : LanguageModel
        The model.
    text : Sequence[int]
        Tokens on which the steps are found.
    p : MeadowParameters
        Dimensions.
    report : Callable[[str], None]
        Is told what goes on.
    """
    with locked(file.with_suffix(".lock")):
        if file.exists():
            report(f"checking {file.name}")
            content = file.read_bytes()
            if hashlib.sha256(content[32:]).digest() == content[:32]:
                return _loaded(content[32:])
            report(f"{file.name} is damaged, and is written again")

        def layer(number: int) -> None:
            report(f"bringing layer {number + 1} of {model.shape.layers} to INT8")

        integers = integer_model(model, text, p, layer)
        report("packing the weights")
        packed = packed_model(integers, p)
        content = _stored(packed)
        replace_bytes(file, hashlib.sha256(content).digest() + content)
    return packed


def _stored(packed: PackedModel) -> bytes:
    """Return a model as octets."""
    vocabulary = packed.integers.vocabulary
    arrays: dict[str, Any] = {f"image {name}": words for name, words in packed.images.items()}
    arrays |= {"vocabulary": vocabulary.matrix.astype(np.int8), "final norm": vocabulary.norm}
    numbers = []
    for place, layer in enumerate(packed.integers.layers):
        for name, matrix in layer.matrices.items():
            arrays[f"{place} matrix {name}"] = matrix.astype(np.int8)
        arrays[f"{place} norms"] = np.stack(layer.norms)
        arrays[f"{place} table"] = layer.table
        scales = {name: getattr(layer, name) for name in ("epsilon", "factors", "lifts", "steps")}
        numbers.append(scales)
    about = {
        "layers": numbers,
        "vocabulary": {"epsilon": vocabulary.epsilon, "step": vocabulary.step},
        "places": [asdict(place) for place in packed.layers],
        "pieces": asdict(packed.vocabulary),
        "states": packed.states,
    }
    arrays["about"] = np.frombuffer(
        json.dumps(about, default=lambda number: number.tolist()).encode(), np.uint8
    )
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _loaded(content: bytes) -> PackedModel:
    """Return the model that `_stored` wrote."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
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
        norms = arrays[f"{place} norms"]
        layers.append(
            IntegerLayer(
                **numbers | {"factors": factors},
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
    return PackedModel(
        IntegerModel(layers, vocabulary),
        {name: arrays[f"image {name}"] for name in IMAGES},
        [LayerPlace(**place) for place in about["places"]],
        VocabularyPlace(**about["pieces"]),
        about["states"],
    )
