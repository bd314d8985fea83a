"""Access to a decoder's tensors in a file, with a check of every name and shape."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from golden.llm.model_files import DataFileError
from hdl.model_shape import ModelShape

Singles = NDArray[np.float32]
Key = tuple[int | None, str]
"""Layer and name of a tensor; `embedding`, `final_norm` and `projection` belong to no layer."""


@dataclass(frozen=True)
class Stored:
    """One tensor of a file.

    Members
    -------
    shape : tuple of int
        Dimensions; a matrix has one row per output.
    read : Callable[[], numpy.ndarray]
        Function that reads the tensor as float32.
    """

    shape: tuple[int, ...]
    read: Callable[[], Singles]


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of a decoder's tensors in one file format.

    Members
    -------
    whole : dict
        Names of `embedding`, `final_norm` and `projection`.
    layer : str
        The prefix of a layer's tensors, with `{}` for the layer's number.
    parts : dict
        Names of the tensors in a layer.
    """

    whole: Mapping[str, str]
    layer: str
    parts: Mapping[str, str]

    def __getitem__(self, key: Key) -> str:
        """Return the name of a tensor in the file."""
        layer, name = key
        own = self.whole[name] if layer is None else self.layer.format(layer) + self.parts[name]
        return f"{own}.weight"


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """The contents of a model's files.

    Members
    -------
    shape : ModelShape
        Dimensions of the model.
    stop : frozenset of int
        Tokens that end a text.
    tensor : Callable
        See `LanguageModel.tensor`.
    """

    shape: ModelShape
    stop: frozenset[int]
    tensor: Callable[[int | None, str], Singles]


def tensor_shapes(s: ModelShape) -> Iterator[tuple[Key, tuple[int, ...]]]:
    """Yield each tensor of a decoder and its shape, the LM head included."""
    queries, keys = s.heads * s.head_size, s.kv_heads * s.head_size
    parts = {
        "query": (queries, s.hidden_size),
        "key": (keys, s.hidden_size),
        "value": (keys, s.hidden_size),
        "output": (s.hidden_size, queries),
        "gate": (s.intermediate_size, s.hidden_size),
        "up": (s.intermediate_size, s.hidden_size),
        "down": (s.hidden_size, s.intermediate_size),
        "input_norm": (s.hidden_size,),
        "feed_forward_norm": (s.hidden_size,),
    }
    yield (None, "embedding"), (s.vocabulary_size, s.hidden_size)
    yield (None, "final_norm"), (s.hidden_size,)
    yield (None, "projection"), (s.vocabulary_size, s.hidden_size)
    for layer in range(s.layers):
        yield from (((layer, name), shape) for name, shape in parts.items())


def reader_of(
    file: Path, shape: ModelShape, names: Names, stored: Mapping[str, Stored], *, tied: bool
) -> Callable[[int | None, str], Singles]:
    """Return the function that reads a decoder's tensors.

    Parameters
    ----------
    file : Path
        The file, for messages.
    shape : ModelShape
        The decoder's dimensions.
    names : Names
        The tensors' names in the file.
    stored : Mapping
        All tensors of the file.
    tied : bool
        Whether the LM head shares the embedding. A file may then contain either one, or both if
        they are equal.

    Raises
    ------
    DataFileError
        A tensor is missing, has another shape, or is not part of a decoder. The returned function
        raises it for values that are not finite.
    """
    known = {key: names[key] for key, _ in tensor_shapes(shape)}
    for name in stored:
        if name not in known.values():
            raise DataFileError(
                f"{file} has the tensor {name}, which the accelerators do not implement"
            )
    embedding, head = (None, "embedding"), (None, "projection")
    if tied and known[head] not in stored:
        known[head] = known[embedding]
    if tied and known[embedding] not in stored:
        known[embedding] = known[head]
    for key, wanted in tensor_shapes(shape):
        name = known[key]
        if name not in stored:
            raise DataFileError(f"{file} must contain the tensor {name}")
        if stored[name].shape != wanted:
            raise DataFileError(
                f"{name} in {file} must have the shape {wanted}, not {stored[name].shape}"
            )

    def tensor(layer: int | None, name: str) -> Singles:
        own = known[layer, name]
        values = stored[own].read()
        if not np.isfinite(values).all():
            place = np.argwhere(~np.isfinite(values))[0].tolist()
            raise DataFileError(
                f"{own} in {file} must be finite, not {values[tuple(place)]} at {place}"
            )
        return values

    if tied and known[head] != known[embedding]:
        if not np.array_equal(stored[known[head]].read(), stored[known[embedding]].read()):
            raise DataFileError(
                f"{known[head]} and {known[embedding]} in {file} must be equal, because "
                "tie_word_embeddings is true"
            )
    return tensor
