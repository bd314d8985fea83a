"""VEDA's memory in files: a model's lines, and the cache."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from golden.llm.layers import LayerWeights
from golden.veda.functions.element_serial_rotary import angles
from golden.veda.veda import Codes
from hdl.veda.instructions import Space
from hdl.veda.parameters import VedaParameters
from testbenches.veda.layer_weights import vocabulary_lines, weight_lines


def bytes_of_line(p: VedaParameters) -> int:
    """Return the bytes of a memory line."""
    return p.array.plane_width * 2


def address(p: VedaParameters, space: Space, *, layer: int = 0, line: int = 0) -> int:
    """Return the address of a line of a space."""
    layout = p.address_layout
    fields = {"space": space.value, "layer": layer, "line": line}
    return sum(value << layout[name].offset for name, value in fields.items())


def fixed_space(p: VedaParameters) -> int:
    """Return the first address of the read-only lines."""
    return address(p, Space.WEIGHTS)


def model_pieces(
    p: VedaParameters,
    weights: Sequence[LayerWeights],
    vocabulary: Codes,
    rope_base: float,
    positions: int,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield addresses and contents of a model's lines, shape (lines, bytes)."""
    size = bytes_of_line(p)
    channel_step = 1 << p.weight_line["channel"].offset
    for layer, own in enumerate(weights):
        lines = weight_lines(p, own)
        for channel in range(p.channels):
            place = address(p, Space.WEIGHTS, layer=layer, line=channel * channel_step)
            yield place, _as_bytes(lines[:, channel], size)
    part_step = 1 << p.angle_line["part"].offset
    both = np.stack(angles(positions, p.head_size, rope_base), axis=-1)
    parts = both.reshape(positions, p.vector_lines, -1)
    for part in range(p.vector_lines):
        yield address(p, Space.ANGLES, line=part * part_step), _as_bytes(parts[:, part], size)

    step = 1 << p.vocabulary_line["channel"].offset
    lines = vocabulary_lines(p, vocabulary)
    for channel in range(p.channels):
        # The address continues from the field `line` into `layer`.
        place = address(p, Space.VOCABULARY) + channel * step
        yield place, _as_bytes(lines[:, channel], size)


class CacheLines(ABC):
    """The keys and values of all layers, as lines of memory.

    Parameters
    ----------
    p : VedaParameters
        Dimensions of the accelerator.
    """

    def __init__(self, p: VedaParameters) -> None:
        self.p = p

    @abstractmethod
    def layer_lines(self, layer: int) -> Codes:
        """Return all lines of a layer, shape (lines, elements)."""

    @abstractmethod
    def keep(self, layer: int, lines: Codes) -> None:
        """Write all lines of a layer, which `layer_lines` has returned."""

    def places(self, *, value: bool, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lines of slots within a layer, shape (kv_heads, slots, lines of a head)."""
        p, layout = self.p, self.p.cache_line
        kv_head = np.arange(p.kv_heads)[:, np.newaxis, np.newaxis]
        part = np.arange(p.vector_lines)
        return (
            (slots[:, np.newaxis] << layout["slot"].offset)
            + (part << layout["part"].offset)
            + (int(value) << layout["value"].offset)
            + (kv_head << layout["kv_head"].offset)
        )

    def heads(self, layer: int, *, value: bool, length: int) -> Codes:
        """Return keys or values, shape (kv_heads, length, head_size)."""
        places = self.places(value=value, slots=np.arange(length))
        return self.layer_lines(layer)[places].reshape(self.p.kv_heads, length, self.p.head_size)

    def store(self, heads: Codes, layer: int, *, value: bool) -> None:
        """Store keys or values from the first slot on, shape (kv_heads, tokens, head_size)."""
        places = self.places(value=value, slots=np.arange(heads.shape[1]))
        lines = self.layer_lines(layer)
        lines[places] = heads.reshape(*places.shape, -1)
        self.keep(layer, lines)


class CacheFile(CacheLines):
    """The cache in a file of lines, which a simulation writes and this process reads.

    Parameters
    ----------
    file : Path
        The file, which is created.
    p : VedaParameters
        Dimensions of the accelerator.
    layers : int
        Number of layers in use.

    Raises
    ------
    OSError
        If the disk has no room for all slots of those layers.
    """

    def __init__(self, file: Path, p: VedaParameters, layers: int) -> None:
        super().__init__(p)
        self.file = file
        size = bytes_of_line(p)
        stride = address(p, Space.CACHE, layer=1)
        used = 1 << p.cache_line.size
        with file.open("wb") as out:
            out.truncate(size * stride * (1 << p.layer_bits))
            # A write into a hole of a mapped file on a full disk would kill the process.
            for layer in range(layers):
                os.posix_fallocate(out.fileno(), layer * stride * size, used * size)
        shape = (1 << p.layer_bits, stride, size // 2)
        self.lines = np.memmap(file, "<u2", "r+", shape=shape)

    def layer_lines(self, layer: int) -> Codes:
        """Return a view of the lines in the file."""
        return self.lines[layer]

    def keep(self, layer: int, lines: Codes) -> None:
        """Do nothing: the lines are those of the file."""


def _as_bytes(lines: Codes, size: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(lines.astype("<u2")).view(np.uint8).reshape(-1, size)
