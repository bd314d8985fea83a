"""Rows of FP16 numbers and their pairs."""

from amaranth.lib import data

from hdl.arith.float_format import BINARY16


def pair_layout() -> data.StructLayout:
    """Return two neighbours of a row; `tag` is the row's, `last` with the last row's last pair."""
    fp16 = BINARY16.layout
    return data.StructLayout({"x": fp16, "y": fp16, "tag": 1, "last": 1})


def pair_row_layout(pairs: int) -> data.StructLayout:
    """Return a row of pairs."""
    values = data.ArrayLayout(BINARY16.layout, 2 * pairs)
    return data.StructLayout({"values": values, "tag": 1, "last": 1})
