"""Conversion between numpy arrays and the packed values of wide ports.

A struct is a dictionary of arrays; an array layout adds one trailing axis. All leading axes are
items: packing converts thousands of them at once.
"""

from typing import Any

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data
from numpy.typing import NDArray

Bits = NDArray[np.uint8]


def pack(layout: Any, value: Any) -> Bits:
    """Convert values to bits, least significant first.

    Parameters
    ----------
    layout : ShapeLike
        Struct layout, array layout, or shape of at most 64 bits.
    value : dict | numpy.ndarray
        For a struct one entry per field; for an array layout its elements along the last axis; for
        a shape an integer array.

    Returns
    -------
    numpy.ndarray
        uint8 of zeros and ones, shape `items + (width,)`.

    Raises
    ------
    ValueError
        If an integer does not fit its shape, or a field is missing or unknown.
    """
    if isinstance(layout, data.StructLayout):
        names = [name for name, _field in layout]
        if set(names) != set(value):
            raise ValueError(f"fields must be {names}, not {sorted(value)}")
        return np.concatenate([pack(field.shape, value[name]) for name, field in layout], axis=-1)
    if isinstance(layout, data.ArrayLayout):
        bits = pack(layout.elem_shape, value)
        return bits.reshape(*bits.shape[:-2], -1)
    shape = Shape.cast(layout)
    integers = np.asarray(value)
    low, high = _limits(shape)
    if integers.size:
        least, most = integers.min(), integers.max()
        if least < low or most > high:
            worst = least if least < low else most
            raise ValueError(f"a value of {shape!r} must be from {low} to {high}, not {worst}")
    words = integers.astype("<i8" if shape.signed else "<u8")
    low_bytes = words[..., np.newaxis].view(np.uint8)[..., : -(-shape.width // 8)]
    return np.unpackbits(low_bytes, axis=-1, count=shape.width, bitorder="little")


def unpack(layout: Any, bits: Bits) -> Any:
    """Convert bits to values: the inverse of `pack`, with int64 arrays.

    Parameters
    ----------
    layout : ShapeLike
        As for `pack`.
    bits : numpy.ndarray
        uint8 of zeros and ones, shape `items + (width,)`.

    Returns
    -------
    dict | numpy.ndarray
        As for `pack`.
    """
    if isinstance(layout, data.StructLayout):
        return {
            name: unpack(field.shape, bits[..., field.offset : field.offset + field.width])
            for name, field in layout
        }
    if isinstance(layout, data.ArrayLayout):
        element = Shape.cast(layout.elem_shape).width
        return unpack(layout.elem_shape, bits.reshape(*bits.shape[:-1], layout.length, element))
    shape = Shape.cast(layout)
    packed = np.packbits(bits, axis=-1, bitorder="little")
    words = np.zeros((*packed.shape[:-1], 8), np.uint8)
    words[..., : packed.shape[-1]] = packed
    # A left shift followed by an arithmetic right shift extends the sign.
    unused = 64 - shape.width
    return (
        words.view("<i8")[..., 0] << unused >> unused if shape.signed else words.view("<i8")[..., 0]
    )


def to_integers(bits: Bits) -> list[int]:
    """Convert rows of bits to Python integers, one per row."""
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def to_integer(bits: Bits) -> int:
    """Convert one row of bits to a Python integer."""
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def from_integers(integers: list[int], width: int) -> Bits:
    """Convert Python integers to rows of bits: the inverse of `to_integers`."""
    row_bytes = (width + 7) // 8
    joined = b"".join(integer.to_bytes(row_bytes, "little") for integer in integers)
    rows = np.frombuffer(joined, np.uint8).reshape(len(integers), row_bytes)
    return np.unpackbits(rows, axis=-1, bitorder="little")[:, :width]


def from_digits(texts: list[str]) -> Bits:
    """Convert strings of binary digits, most significant first, to rows of bits.

    Digits that are unknown in a four-state simulator become random.
    """
    digits = np.frombuffer("".join(texts).encode(), np.uint8).reshape(len(texts), -1)[:, ::-1]
    bits = digits - ord("0")
    if (unknown := bits > 1).any():
        bits = np.where(unknown, np.random.default_rng(len(texts)).integers(0, 2, bits.shape), bits)
    return bits.astype(np.uint8, copy=False)


def code_fields(codes: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    """Return FP16 codes as the fields of their layout."""
    codes = np.asarray(codes).astype(np.int64)
    return {"mantissa": codes & 1023, "exponent": codes >> 10 & 31, "sign": codes >> 15}


def _limits(shape: Shape) -> tuple[int, int]:
    if shape.signed:
        return -(1 << shape.width - 1), (1 << shape.width - 1) - 1
    return 0, (1 << shape.width) - 1
