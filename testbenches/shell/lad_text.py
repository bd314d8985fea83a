"""A text in LAD with the AXI shell: words of a model and of its heads, and programs of tokens."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from amaranth.hdl import Shape
from numpy.typing import NDArray

from golden.lad.lad_tile import Head
from golden.lad.whole_model import HalfModel
from golden.shell.lad_axi import LadProgram
from golden.shell.shell_jobs import Bytes
from hdl.shell.lad_axi_parameters import POSITION_BYTES, LadAxiParameters
from testbenches.lad.weight_bytes import layer_matrices, matrix_bytes, vocabulary_pieces
from testbenches.packing import pack, unpack

Codes = NDArray[np.uint16]

ROW_REGIONS = ("positions", "keys", "values", "counters", "caches")
"""Regions of the rows of the heads."""

REGION_OF = {
    **dict.fromkeys(("centres", "ratios", "norms", "modes", "counts"), "positions"),
    **{name: name for name in ROW_REGIONS[1:]},
}
"""The region of each kind of data of a head."""


class LadText:
    """Words of a model, and programs of its tokens.

    Parameters
    ----------
    p : LadAxiParameters
        Dimensions of the accelerator.
    model : HalfModel
        The model.
    """

    def __init__(self, p: LadAxiParameters, model: HalfModel) -> None:
        self.p, self.model = p, model

    def weight_words(self) -> Iterable[tuple[int, Bytes]]:
        """Return the words of weights of each layer and of the LM head, unit by unit.

        Each item is the address of the first word, and consecutive words [words, bytes].
        """
        p, place = self.p, 0
        lad = p.lad
        parts = (layer_matrices(layer, lad) for layer in self.model.layers)
        head = [vocabulary_pieces(self.model.vocabulary, lad)] if lad.vocabulary_size else []
        units, size = lad.tile.linear.units, 2 * lad.head_size
        for matrices in chain(parts, head):
            packed = np.concatenate([matrix_bytes(matrix, lad) for matrix in matrices])
            words = packed[:, : units * size].reshape(len(packed), units, size)
            for unit in range(units):
                yield unit * p.unit_words + place, words[:, unit]
            place += len(packed)

    def norm_words(self) -> Bytes:
        """Return the words of the weights of all norms."""
        norms = [norm for own in self.model.layers for norm in (own.input_norm, own.post_norm)]
        return code_words(np.concatenate([*norms, self.model.final_norm]), self.p.lad.head_size)

    def add_token(
        self,
        program: LadProgram,
        lengths: Sequence[int],
        angles: tuple[Codes, Codes],
        states: Codes,
        *,
        predict: bool,
    ) -> None:
        """Append a token of each sample to a program.

        Parameters
        ----------
        program : LadProgram
            The program.
        lengths : Sequence[int]
            Positions of each sample, including this token.
        angles : tuple of arrays [batch, head_size]
            Cosines and sines of each sample's position.
        states : array [batch, hidden_size]
            Hidden states.
        predict : bool
            Whether the LM head follows.
        """
        size = self.p.lad.head_size
        rows = states.reshape(len(states), -1, size).swapaxes(0, 1)
        slices = np.concatenate([*angles, rows.reshape(-1, size)])
        words = code_words(slices, size)
        program.token(
            lengths, [int.from_bytes(word.tobytes(), "little") for word in words], predict=predict
        )

    def state_words(self, states: Codes, flags: NDArray[np.bool_]) -> Bytes:
        """Return states [times, batch, hidden_size], flagged [times], as words of memory."""
        lad = self.p.lad
        rows = states.reshape(len(states), lad.batch, -1, lad.head_size).swapaxes(1, 2)
        rows = rows.reshape(-1, lad.head_size)
        flagged = np.repeat(flags.astype(np.int64), len(rows) // len(flags))
        return _words(lad.state_layout, {"values": rows, "not_positive": flagged})

    def states_of(self, words: Bytes) -> tuple[Codes, NDArray[np.bool_]]:
        """Return states [times, batch, hidden_size] and flags [times]: the inverse."""
        lad = self.p.lad
        found = _fields(lad.state_layout, words)
        shape = (-1, lad.hidden_slices, lad.batch, lad.head_size)
        values = found["values"].astype(np.uint16).reshape(shape).swapaxes(1, 2)
        flags = found["not_positive"].reshape(len(values), -1).any(axis=1)
        return values.reshape(len(values), lad.batch, -1), flags


def code_words(codes: Codes, each: int) -> Bytes:
    """Return FP16 codes as words of `each` codes."""
    return np.ascontiguousarray(codes, "<u2").reshape(-1, each).view(np.uint8)


def head_words(p: LadAxiParameters, head: Head) -> dict[str, Bytes]:
    """Return the words of a head in each of `ROW_REGIONS`, from its first address."""
    tile, size = p.lad.tile, p.lad.head_size
    lanes, groups = tile.apid.lanes, tile.apid.groups

    def grouped(rows: Any) -> NDArray[Any]:
        return np.pad(rows, (0, groups * lanes - tile.slots)).reshape(groups, lanes)

    fields = {name: grouped(getattr(head, f"{name}s")) for name in p.position_layout.members}
    positions = _words(p.position_layout, fields)
    marks = _words(p.mark_layout, {name: grouped(getattr(head, name)) for name in MARKS})
    records = np.zeros((groups, p.record_bytes), np.uint8)
    own = records[:, : lanes * POSITION_BYTES].reshape(groups, lanes, POSITION_BYTES)
    own[..., : positions.shape[-1]] = positions
    records[:, : lanes * POSITION_BYTES] = own.reshape(groups, -1)
    first = p.record_bytes - p.mark_bytes
    records[:, first : first + marks.shape[-1]] = marks
    return {
        "positions": records,
        "keys": code_words(head.keys, size),
        "values": code_words(head.values, size),
        "counters": _words(tile.md.counters_layout, head.counters),
        "caches": _words(tile.ac.word_layout, head.caches),
    }


MARKS = ("modes", "counts")
"""Fields of the marks of a group."""


def head_field(p: LadAxiParameters, name: str, words: Bytes) -> NDArray[Any]:
    """Return data of a head in the layout of a model's `Head`, from the words of its region."""
    tile = p.lad.tile
    if name in ("keys", "values"):
        return np.ascontiguousarray(words[:, : 2 * p.lad.head_size]).view("<u2")
    if name == "counters":
        return _fields(tile.md.counters_layout, words)
    if name == "caches":
        return _fields(tile.ac.word_layout, words)
    if name in MARKS:
        return _fields(p.mark_layout, words[:, p.record_bytes - p.mark_bytes :])[name].reshape(-1)
    own = words[:, : tile.apid.lanes * POSITION_BYTES].reshape(-1, POSITION_BYTES)
    return _fields(p.position_layout, own)[name.removesuffix("s")]


def _words(layout: Any, fields: Mapping[str, Any] | NDArray[Any]) -> Bytes:
    """Return payloads as bytes, without padding."""
    return np.packbits(pack(layout, fields), axis=-1, bitorder="little")


def _fields(layout: Any, words: Bytes) -> Any:
    """Return the fields of payloads that words begin with."""
    bits = np.unpackbits(words, axis=-1, bitorder="little")
    return unpack(layout, bits[..., : Shape.cast(layout).width])
