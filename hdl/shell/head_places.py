"""Places of the rows of LAD's heads in memory."""

from typing import Any

from amaranth.hdl import Cat, Signal, Value
from amaranth.lib import data

from hdl.shell.lad_axi_parameters import POSITION_BYTES, LadAxiParameters


def quotient(value: Value, divisor: int) -> Value:
    """Return ``value // divisor`` as the product with a rounded reciprocal, which is exact.

    The reciprocal exceeds that of `divisor` by less than ``2**-bits`` of the value's range, so that
    the product reaches the next integer for no value.
    """
    shift = len(value) + (divisor - 1).bit_length()
    found = value * -(-(1 << shift) // divisor) >> shift
    return found[: len(value)]


def place_of(layout: data.StructLayout, owner: Any, index: Value) -> Value:
    """Return the address of an item of the head of a payload, in a `place_layout`."""
    fields = {"index": index, "tile": owner.tile, "head": owner.head}
    # A tile's number has no bits if there is one tile.
    widths = {name: layout[name].width for name in fields if layout[name].width}
    return Cat(_resized(fields[name], width) for name, width in widths.items())


def position_place(p: LadAxiParameters, owner: Any) -> Value:
    """Return the address of a position's word in the records of G."""
    lanes = p.lad.tile.apid.lanes
    group = quotient(owner.position, lanes)
    lane = (owner.position - group * lanes)[: max((lanes - 1).bit_length(), 1)]
    record = place_of(p.record_layout, owner, group)
    return record * (p.record_bytes // POSITION_BYTES) + lane


def mark_place(p: LadAxiParameters, owner: Any) -> Value:
    """Return the address of the marks of a group of positions: the end of its record."""
    marks = p.record_bytes // p.mark_bytes
    return place_of(p.record_layout, owner, owner.group) * marks + (marks - 1)


def _resized(value: Value, width: int) -> Value:
    """Return a value with a number of bits."""
    value = Value.cast(value)
    return value[:width] if len(value) >= width else Cat(value, Signal(width - len(value)))
