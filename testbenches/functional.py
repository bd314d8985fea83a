"""Functional coverage: handshakes, and values of short fields, that a stream had in the tests.

Line coverage shows which Verilog was executed; these bins show in which situations. They follow
from the ports and layouts, so that no testbench lists its own.
"""

from collections.abc import Iterator
from enum import EnumMeta
from typing import Any, cast

from amaranth.hdl import Const, Shape
from amaranth.lib import data

SHORT = 3
"""Bits of a field up to which each value is a bin; a wider field is data."""

HANDSHAKES = {
    (True, True): "transfer",
    (True, False): "offer without ready",
    (False, True): "ready without an offer",
    (False, False): "idle",
}
"""Bins by `valid` and `ready`."""
BACK_TO_BACK, RESET = "transfers in adjacent cycles", "reset during an offer"

Bins = dict[str, int]
"""Number of cycles by bin."""


def leaves(shape: Any, name: str = "", offset: int = 0) -> Iterator[tuple[str, int, Any]]:
    """Yield names, offsets and shapes of the fields of a layout; elements of an array share a name.

    Parameters
    ----------
    shape : ShapeLike
        A layout, or the shape of one field.
    name : str
        Name of what contains it.
    offset : int
        Its first bit.
    """
    layout = getattr(shape, "layout", shape) if not isinstance(shape, EnumMeta) else shape
    if isinstance(layout, data.ArrayLayout):
        for _key, field in layout:
            yield from leaves(field.shape, f"{name}[]", offset + field.offset)
    elif isinstance(layout, data.StructLayout):
        for key, field in layout:
            inner = f"{name}.{key}" if name else str(key)
            yield from leaves(field.shape, inner, offset + field.offset)
    else:
        yield name, offset, shape


def values_of(shape: Any) -> dict[int, str]:
    """Return the bins of a field by value; none if it is data."""
    width = Shape.cast(shape).width
    if isinstance(shape, EnumMeta):
        members = cast("Any", shape).__members__.items()
        return {Const.cast(member).value: name for name, member in members}
    return {value: str(value) for value in range(1 << width)} if 0 < width <= SHORT else {}


class StreamCoverage:
    """Counts the bins of one stream; a part of a `testbenches.bench.Bench`.

    Parameters
    ----------
    stream : Any
        The ports, `testbenches.streams.Stream`.
    layout : ShapeLike, optional
        Layout of the payload; without it only handshakes are counted.
    bins : Bins
        All bins of the run, to which those of the stream are added.
    """

    def __init__(self, stream: Any, layout: Any, bins: Bins) -> None:
        self._stream, self._bins = stream, bins
        self._fields = [
            (name, offset, Shape.cast(shape).width, values)
            for name, offset, shape in (leaves(layout) if layout is not None else ())
            if (values := values_of(shape))
        ]
        self._transferred = self._offered = False
        names = [*HANDSHAKES.values(), BACK_TO_BACK, RESET]
        names += [
            f"{name or 'payload'} = {value}"
            for name, _offset, _width, values in self._fields
            for value in values.values()
        ]
        for name in names:
            bins.setdefault(self._named(name), 0)

    def _named(self, name: str) -> str:
        return f"{self._stream.name}: {name}"

    def _hit(self, name: str) -> None:
        self._bins[self._named(name)] += 1

    def clear(self) -> None:
        """Count a reset during an offer."""
        if self._offered:
            self._hit(RESET)
        self._transferred = self._offered = False

    def drive(self) -> None:
        """Drive nothing."""

    def sample(self) -> None:
        """Count a cycle."""
        valid, ready = bool(self._stream.valid.value), bool(self._stream.ready.value)
        self._hit(HANDSHAKES[valid, ready])
        transfers = valid and ready
        if transfers:
            if self._transferred:
                self._hit(BACK_TO_BACK)
            self._count_fields()
        self._transferred, self._offered = transfers, valid and not ready

    def _count_fields(self) -> None:
        """Count the values of a payload; a value that no member of an enum has is not counted."""
        bits = self._stream.payload.bits
        for name, offset, width, values in self._fields:
            text = bits[len(bits) - offset - width : len(bits) - offset]
            if text.strip("01") == "" and (value := values.get(int(text, 2))):
                self._hit(f"{name or 'payload'} = {value}")
