"""Instructions of MEADOW: operations with their fields, and descriptions of matrices."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import SupportsInt

from amaranth.hdl import ShapeLike, unsigned
from amaranth.lib import data, enum

from hdl.meadow.parameters import MOST_LIFT, MeadowParameters
from hdl.meadow.tile.tile_parameters import HALVES
from hdl.nonlinear.row_norm import EPSILON_BITS


class Kind(enum.Enum, shape=unsigned(3)):
    """The operation of an instruction."""

    LOAD = 0
    """Read hidden states from external memory."""
    STORE = 1
    """Write hidden states to external memory."""
    NORM = 2
    """Normalise rows to INT8."""
    GEMM = 3
    """Compute a linear layer, tile by tile; or a product of attention, head by head."""
    TPHS = 4
    """Compute attention in the token-parallel head-sequential dataflow."""
    PREDICT = 5
    """Output the argmax and clear it."""
    SOFTMAX = 6
    """Read rows of scores from external memory and write probabilities."""


class Matrix(enum.Enum, shape=unsigned(2)):
    """The right-hand operand of a GEMM."""

    WEIGHTS = 0
    """The next matrix of the weight path."""
    KEYS = 1
    """The cached keys of each head: queries to scores."""
    VALUES = 2
    """The cached values of each head: probabilities to head outputs."""


class Combine(enum.Enum, shape=unsigned(2)):
    """How a result and the old word at its address are combined."""

    KEEP = 0
    """The result replaces the old word."""
    ADD = 1
    """The result is added to the old word, a hidden state."""
    ACTIVATE = 2
    """With a gate, the result times the activation of the old word; else its own activation."""
    COMPARE = 3
    """The result is discarded; its exact sum updates the argmax."""


def instruction_layout(parameters: MeadowParameters) -> data.StructLayout:
    """Return the fields of an instruction; `hdl.meadow.meadow` describes them."""
    p = parameters
    count, address = range(max(p.longest_loop, p.row_words) + 1), range(p.words)
    return data.StructLayout(
        {
            "kind": Kind,
            "matrix": Matrix,
            "block": p.tile.command_layout,
            "source": address,
            "words": count,
            "target": address,
            "stride": count,
            "combine": Combine,
            "lift": range(MOST_LIFT + 1),
            "cached": 1,
            "vector_address": p.address_bits,
            "key_address": p.address_bits,
            "value_address": p.address_bits,
            "spacing": p.address_bits,
            "shared": range(p.kv_heads + 1),
            "epsilon": EPSILON_BITS,
            **({"combined": 1} if p.token_exponents else {}),
        }
    )


def matrix_layout(parameters: MeadowParameters) -> data.StructLayout:
    """Return the description of a matrix: its packing, external addresses, and number of words."""
    p = parameters
    tiles: dict[str, ShapeLike] = {
        **({"bias_address": p.address_bits} if p.biases else {}),
        **({"scale_address": p.address_bits} if p.tile_scales else {}),
    }
    if tiles:
        tiles["tiles"] = range(p.tile.heads + 1)
    # Words of the longest tile that each unpacker outputs.
    tile_words = p.tile.gemm_steps * HALVES * p.slices // p.unpackers
    return data.StructLayout(
        {
            "packing": p.unpacker.matrix_layout,
            "table_address": p.address_bits,
            "table_words": range(p.unpacker.words + 1),
            "packet_address": data.ArrayLayout(unsigned(p.address_bits), p.unpackers),
            "packet_count": data.ArrayLayout(range(p.longest_burst + 1), p.unpackers),
            "words": range(p.tile.heads * tile_words + 1),
            "tile_words": range(tile_words + 1),
            **tiles,
        }
    )


def packed(layout: data.Layout, values: Mapping[str, object] | Iterable[object]) -> int:
    """Return a record as the integer of its bits; absent fields are 0.

    Parameters
    ----------
    layout : data.Layout
        Layout of a struct or of an array, whose fields are not negative.
    values : Mapping | Iterable
        Values by the names of the struct's fields, or in the order of the array's elements.

    Raises
    ------
    ValueError
        If a field is unknown, or a value does not fit its field.
    """
    given = list(values.items()) if isinstance(values, Mapping) else list(enumerate(values))
    fields: dict[object, data.Field] = dict(iter(layout))
    if unknown := [name for name, _value in given if name not in fields]:
        raise ValueError(f"fields must be among {list(fields)}, not {unknown}")
    bits = 0
    for name, value in given:
        field = fields[name]
        if isinstance(field.shape, data.Layout):
            if not isinstance(value, Iterable):
                raise ValueError(f"{name} must be a record, not {value!r}")
            number = packed(field.shape, value)
        else:
            plain = value.value if isinstance(value, Enum) else value
            if not isinstance(plain, SupportsInt):
                raise ValueError(f"{name} must be an integer, not {value!r}")
            number = int(plain)
            if not 0 <= number < 1 << field.width:
                raise ValueError(f"{name} must have {field.width} bits, not the value {number}")
        bits |= number << field.offset
    return bits
