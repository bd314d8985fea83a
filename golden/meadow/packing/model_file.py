"""The matrices of a model's file: GGUF, safetensors or npy, as 8-bit integers and scales."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golden.meadow.packing.chunks import Weights, checked
from golden.meadow.packing.packed_file import Scales
from hdl.errors import UserError
from hdl.parameters import require_choice

SCALES = ("tensor", "channel")
"""What shares a scale: a whole matrix, or a row, whose products make one output channel."""

SUFFIX = ".scales"
"""Behind a matrix's name, in a safetensors file: the name of its scales."""


@dataclass(frozen=True, eq=False)
class ModelFile:
    """What there is to pack, read one by one.

    Members
    -------
    names : list[str]
        Of the matrices, in the order of the file.
    left_out : list[str]
        Of tensors that are no matrices.
    origin : str
        What the integers were made of, in words.
    read : Callable
        Returns integers and scales of a name.
    """

    names: list[str]
    left_out: list[str]
    origin: str
    read: Callable[[str], tuple[Weights, Scales]]

    def matrices(self) -> Iterator[tuple[str, Weights, Scales]]:
        """Read all matrices, one after the other."""
        for name in self.names:
            yield name, *self.read(name)


def quantised(weights: Any, scale: str) -> tuple[Weights, Scales]:
    """Round real weights to symmetric 8-bit integers, to nearest, ties to even.

    Parameters
    ----------
    weights : array
        [rows, columns].
    scale : str
        ``"tensor"`` or ``"channel"``: the largest magnitude of either becomes 127.
    """
    require_choice("scale", scale, SCALES)
    values = np.asarray(weights, np.float32)
    if not np.isfinite(values).all():
        raise ValueError("weights must be finite, not infinite or not a number")
    axis = None if scale == "tensor" else 1
    largest = np.abs(values).max(axis=axis, keepdims=True)
    scales = (np.where(largest > 0, largest, 1) / np.float32(127)).astype(np.float32)
    integers = np.clip(np.rint(values / scales), -127, 127).astype(np.int8)
    return integers, scales.reshape(-1)


def open_model(file: Path, scale: str) -> ModelFile:
    """Open a model's file by the ending of its name.

    Raises
    ------
    UserError
        If it cannot be read, or has nothing to pack.
    """
    readers = {".gguf": _gguf, ".safetensors": _safetensors, ".npy": _npy}
    if file.suffix not in readers:
        endings = ", ".join(readers)
        raise UserError(f"MODEL must be a file whose name ends with one of {endings}, not {file}")
    if not file.is_file():
        raise UserError(f"MODEL must be a file that exists, not {file}")
    try:
        model = readers[file.suffix](file, scale)
    except (UserError, MemoryError):
        raise
    except Exception as error:
        # Whatever a reader of somebody else's format finds wrong.
        raise UserError(f"MODEL cannot be read as {file.suffix[1:]}: {file}: {error}") from error
    if not model.names:
        raise UserError(f"MODEL must have a matrix, and {file} has none")
    return model


def _gguf(file: Path, scale: str) -> ModelFile:
    from gguf import GGUFReader, dequantize

    tensors = {tensor.name: tensor for tensor in GGUFReader(file).tensors}

    def read(name: str) -> tuple[Weights, Scales]:
        tensor = tensors[name]
        shape = tuple(int(side) for side in reversed(tensor.shape))
        return quantised(dequantize(tensor.data, tensor.tensor_type).reshape(shape), scale)

    names = [name for name, tensor in tensors.items() if len(tensor.shape) == 2]
    kinds = sorted({tensors[name].tensor_type.name for name in names})
    origin = f"{', '.join(kinds)} in the GGUF, dequantised, rounded to INT8 with a scale a {scale}"
    return ModelFile(names, [name for name in tensors if name not in names], origin, read)


def _safetensors(file: Path, scale: str) -> ModelFile:
    from safetensors import safe_open

    tensors: Any = safe_open(file, framework="numpy")
    names = list(tensors.keys())
    matrices = [name for name in names if len(tensors.get_slice(name).get_shape()) == 2]
    scales = {name + SUFFIX for name in matrices} & set(names)

    def read(name: str) -> tuple[Weights, Scales]:
        known = tensors.get_tensor(name + SUFFIX) if name + SUFFIX in scales else np.zeros(0)
        return _integers(name, tensors.get_tensor(name)), known.astype(np.float32)

    left_out = [name for name in names if name not in matrices and name not in scales]
    return ModelFile(matrices, left_out, "the file's integers", read)


def _npy(file: Path, scale: str) -> ModelFile:
    array = np.load(file, allow_pickle=False)
    return ModelFile(
        [file.stem],
        [],
        "the file's integers",
        lambda name: (_integers(name, array), np.zeros(0, np.float32)),
    )


def _integers(name: str, array: Any) -> Weights:
    try:
        return checked(array)
    except ValueError as error:
        raise UserError(f"MODEL cannot be packed: {name}: {error}") from error
