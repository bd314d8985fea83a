"""The matrices of a model file (GGUF, safetensors or npy) as 8-bit integers and scales."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golden.meadow.packing.chunks import Weights, checked
from golden.meadow.packing.packed_file import Scales
from hdl.errors import UserError
from hdl.parameters import require, require_choice

SCALES = ("tensor", "channel")
"""Weights that share a scale: a whole matrix, or a row, whose products make one output channel."""

SUFFIX = ".scales"
"""Suffix of a matrix's name in a safetensors file: the name of its scales."""

ZERO_POINTS = "_zero_point"
"""Suffix of a matrix's name in Hugging Face's files: the integers that represent zero."""

SCALE_BLOCK = 128
"""Rows and columns of a block that shares a scale, where a file has a matrix of scales."""

RESERVED = "__metadata__"
"""Name that no tensor of a safetensors file can have."""


@dataclass(frozen=True, eq=False)
class Unusable:
    """A matrix that cannot be packed.

    Members
    -------
    reason : str
        Rule and value.
    """

    reason: str


@dataclass(frozen=True, eq=False)
class ModelFile:
    """The matrices of a file, which are read one by one.

    Members
    -------
    names : list[str]
        Names of the matrices, in the order of the file.
    left_out : list[str]
        Names of tensors that are no matrices.
    origin : str
        Source of the integers, as a phrase for a report.
    read : Callable
        Returns integers and scales of a name.
    """

    names: list[str]
    left_out: list[str]
    origin: str
    read: Callable[[str], tuple[Weights, Scales]]

    def matrices(self) -> Iterator[tuple[str, tuple[Weights, Scales] | Unusable]]:
        """Read all matrices in the order of the file."""
        # `unpack` writes matrices and scales into one file, in which each needs its own name.
        taken = {RESERVED}
        for name in self.names:
            if name in taken:
                yield name, Unusable("its name must not be that of scales or metadata")
                continue
            try:
                integers, scales = self.read(name)
            except (MemoryError, OSError):
                raise
            except Exception as error:
                # Errors of the readers of foreign formats have many types.
                yield name, Unusable(" ".join(str(error).split()) or type(error).__name__)
                continue
            if len(scales) and name + SUFFIX in taken:
                rule = (
                    f"its scales must have a name of their own, not that of matrix {name}{SUFFIX}"
                )
                yield name, Unusable(rule)
                continue
            taken |= {name, name + SUFFIX} if len(scales) else {name}
            yield name, (integers, scales)


def quantised(weights: Any, scale: str) -> tuple[Weights, Scales]:
    """Round real weights to symmetric 8-bit integers, to nearest, ties to even.

    Parameters
    ----------
    weights : array
        [rows, columns].
    scale : str
        ``"tensor"`` or ``"channel"``: the largest magnitude of either becomes 127.

    Raises
    ------
    ValueError
        If a weight is infinite or not a number in float32.
    """
    require_choice("scale", scale, SCALES)
    with np.errstate(over="ignore"):
        values = np.asarray(weights).astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("weights must be finite, not infinite or not a number")
    axis = None if scale == "tensor" else 1
    largest = np.abs(values).max(axis=axis, keepdims=True)
    scales = (np.where(largest > 0, largest, 1) / np.float32(127)).astype(np.float32)
    # The quotient of subnormal weights may be zero.
    scales = np.maximum(scales, np.finfo(np.float32).smallest_subnormal)
    integers = np.clip(np.rint(values / scales), -127, 127).astype(np.int8)
    return integers, scales.reshape(-1)


def open_model(file: Path, scale: str) -> ModelFile:
    """Open a model's file by the ending of its name.

    Raises
    ------
    UserError
        If it cannot be read, or has no matrix.
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
        # Errors of the readers of foreign formats have many types.
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
        return _packable(dequantize(tensor.data, tensor.tensor_type).reshape(shape), None, scale)

    names = [name for name, tensor in tensors.items() if len(tensor.shape) == 2]
    kinds = {tensors[name].tensor_type.name for name in names}
    left_out = [name for name in tensors if name not in names]
    return ModelFile(names, left_out, _origin(kinds, scale), read)


def _safetensors(file: Path, scale: str) -> ModelFile:
    from safetensors import safe_open

    # numpy has no type for BF16 and FP8.
    tensors: Any = safe_open(file, framework="pt")
    names = list(tensors.keys())
    slices = {name: tensors.get_slice(name) for name in names}
    shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
    types = {name: str(part.get_dtype()) for name, part in slices.items()}
    scales = _scale_names(shapes, types)
    companions = {*scales.values(), *(name + ZERO_POINTS for name in scales)}

    def read(name: str) -> tuple[Weights, Scales]:
        known = _array(tensors.get_tensor(scales[name])) if name in scales else None
        if name in scales and (points := name + ZERO_POINTS) in shapes:
            offsets = _array(tensors.get_tensor(points))
            require(not offsets.any(), "zero points must be 0", offsets[offsets != 0].tolist()[:3])
        if name in scales and scales[name].endswith(".SCB"):
            known = np.asarray(known, np.float32) / np.float32(127)
        return _packable(_array(tensors.get_tensor(name)), known, scale)

    matrices = [name for name in names if len(shapes[name]) == 2 and name not in companions]
    left_out = [name for name in names if name not in matrices and name not in companions]
    kinds = {types[name] for name in matrices}
    return ModelFile(matrices, left_out, _origin(kinds, scale), read)


def _npy(file: Path, scale: str) -> ModelFile:
    array = np.load(file, allow_pickle=False)
    kinds = {str(array.dtype)}
    return ModelFile(
        [file.stem], [], _origin(kinds, scale), lambda name: _packable(array, None, scale)
    )


def _scale_names(shapes: dict[str, tuple[int, ...]], types: dict[str, str]) -> dict[str, str]:
    """Return the name of the scales of each matrix of integers or FP8 numbers that has some.

    The names are those of `unpack` (``w.scales``), of Hugging Face's FP8 and INT8 files
    (``w_scale``, ``w_scale_inv``), and of bitsandbytes' INT8 files (``SCB`` next to ``weight``).
    """
    found: dict[str, str] = {}
    for name, shape in shapes.items():
        if len(shape) != 2 or not types[name].startswith(("I", "U", "F8")):
            continue
        layer = name.removesuffix("weight")
        for scales in (name + SUFFIX, f"{name}_scale", f"{name}_scale_inv", f"{layer}SCB"):
            # A matrix of that name is one of its own, unless it has the shape of scales.
            vector = scales in shapes and len(shapes[scales]) < 2
            if vector or (scales != name + SUFFIX and scales in shapes):
                found[name] = scales
    return found


def _array(tensor: Any) -> Any:
    """Return a torch tensor as an array; real numbers as float32, except for float64."""
    import torch

    if tensor.is_floating_point() and tensor.dtype is not torch.float64:
        tensor = tensor.to(torch.float32)
    return tensor.numpy()


def _packable(array: Any, scales: Any, scale: str) -> tuple[Weights, Scales]:
    """Return integers and scales of a matrix: those of the file, or rounded.

    Parameters
    ----------
    array : array
        [rows, columns] of integers from -128 to 127, or of real numbers.
    scales : array or None
        Factors of the file: one, one for each row, or one for each block.
    scale : str
        One of `SCALES`, for rounded weights.

    Raises
    ------
    ValueError
        If the matrix or its scales break a rule.
    """
    array = np.asarray(array)
    require(array.ndim == 2 and array.size > 0, "a matrix must have rows and columns", array.shape)
    real = np.issubdtype(array.dtype, np.floating)
    number = real or np.issubdtype(array.dtype, np.integer)
    require(number, "a matrix must have integers or real numbers", str(array.dtype))
    if scales is None:
        return quantised(array, scale) if real else (checked(array), np.zeros(0, np.float32))
    known = np.asarray(scales).astype(np.float32)
    require(
        bool(np.isfinite(known).all()),
        "scales must be finite",
        known[~np.isfinite(known)].tolist()[:3],
    )
    rows, columns = array.shape
    if known.size == 1 or known.shape in ((rows,), (rows, 1)):
        if not real:
            return checked(array), known.reshape(-1)
        return quantised(array * known.reshape(-1, 1), scale)
    # A row of scales belongs to blocks, or to columns, which have no common scale here.
    blocks = (-(-rows // SCALE_BLOCK), -(-columns // SCALE_BLOCK))
    rule = (
        f"scales must be 1, {rows} (a factor for each row), or {blocks[0]} x {blocks[1]} of blocks "
        f"of {SCALE_BLOCK}"
    )
    require(known.shape == blocks, rule, known.shape)
    factors = known.repeat(SCALE_BLOCK, 0)[:rows].repeat(SCALE_BLOCK, 1)[:, :columns]
    return quantised(array * factors, scale)


def _origin(kinds: set[str], scale: str) -> str:
    """Return the number formats of a file, and the treatment of real numbers."""
    return f"{', '.join(sorted(kinds))}; real numbers rounded to INT8, one scale per {scale}"
