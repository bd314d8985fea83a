"""The interface of a unit as data: streams, plain ports, and the fields of their bits.

The description is derived from the unit's Amaranth signature. The manifest, the C header, the
SystemVerilog package and the table in the Verilog's header comment are written from it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, EnumType
from itertools import product
from typing import Any, Protocol, cast, runtime_checkable

from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib import data, stream, wiring

from hdl.fixed_shape import FixedShape
from hdl.parameters import require


@dataclass(frozen=True)
class Integer:
    """An integer.

    Parameters
    ----------
    width : int
        Bits.
    signed : bool
        Two's complement if true, unsigned otherwise.
    values : tuple[tuple[str, int], ...]
        Named codes of an enumeration.
    fraction_bits : int, optional
        Bits below the binary point of a fixed-point number; None if the shape does not specify it.
    """

    width: int
    signed: bool
    values: tuple[tuple[str, int], ...] = ()
    fraction_bits: int | None = None


@dataclass(frozen=True)
class Array:
    """`count` elements of one type; element 0 is in the least significant bits."""

    count: int
    element: "Type"

    @property
    def width(self) -> int:
        """Width in bits."""
        return self.count * self.element.width


@dataclass(frozen=True)
class Struct:
    """Fields by name, the first in the least significant bits, without gaps."""

    fields: tuple[tuple[str, "Type"], ...]

    @property
    def width(self) -> int:
        """Width in bits."""
        return sum(kind.width for _name, kind in self.fields)

    @property
    def offsets(self) -> Iterator[tuple[str, int, "Type"]]:
        """Name, bit offset and type of each field."""
        offset = 0
        for name, kind in self.fields:
            yield name, offset, kind
            offset += kind.width


Type = Integer | Array | Struct


@dataclass(frozen=True)
class Leaf:
    """An integer inside a type.

    Parameters
    ----------
    path : tuple[str, ...]
        Names of the fields that contain it; empty if the whole type is an integer.
    offset : int
        Bit offset; in an array, that of element 0.
    integer : Integer
        Width, signedness and named codes.
    arrays : tuple[tuple[int, int], ...]
        Count and stride in bits of each array that contains it, the outermost first.
    """

    path: tuple[str, ...]
    offset: int
    integer: Integer
    arrays: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class StreamInterface:
    """A stream: direction of the payload, its type, and the ports that the module has."""

    name: str
    direction: str
    kind: Type
    payload: str | None
    valid: str | None
    ready: str | None


@dataclass(frozen=True)
class PortInterface:
    """A port that belongs to no stream."""

    name: str
    direction: str
    kind: Type


@runtime_checkable
class BurstSignature(Protocol):
    """Signature of a burst port: its dimensions, as in `hdl.memory.burst_port`."""

    address_bits: int
    longest: int
    writes: bool
    word_layout: data.StructLayout


@dataclass(frozen=True)
class BurstInterface:
    """A burst port of words, see `hdl.memory.burst_port`.

    Parameters
    ----------
    name : str
        Name of the port; its streams are ``<name>_requests`` and ``<name>_words``.
    writes : bool
        Whether it is a port of writes.
    address_bits : int
        Bits of an address, which counts words.
    word_bits : int
        Bits of a word.
    longest : int
        Words of the longest burst.
    """

    name: str
    writes: bool
    address_bits: int
    word_bits: int
    longest: int


@dataclass(frozen=True)
class Interface:
    """Streams, other ports and burst ports of a module, without clock and reset."""

    streams: tuple[StreamInterface, ...] = ()
    ports: tuple[PortInterface, ...] = ()
    bursts: tuple[BurstInterface, ...] = ()

    @property
    def typed(self) -> Iterator[tuple[str, str, Type]]:
        """Name, direction and type of each stream and port that has bits."""
        for one in (*self.streams, *self.ports):
            if one.kind.width:
                yield one.name, one.direction, one.kind


def describe_shape(shape: Any) -> Type:
    """Return the type of an Amaranth shape.

    Raises
    ------
    ValueError
        If a layout has overlapping fields or gaps.
    """
    while isinstance(shape, ShapeCastable) and not isinstance(shape, data.Layout | EnumType):
        shape = shape.as_shape()
    if isinstance(shape, data.ArrayLayout):
        return Array(shape.length, describe_shape(shape.elem_shape))
    if isinstance(shape, data.StructLayout):
        return Struct(tuple((str(n), describe_shape(field.shape)) for n, field in shape))
    require(
        not isinstance(shape, data.Layout),
        "a port's layout must be a struct or an array",
        shape,
    )
    plain = Shape.cast(shape)
    members = cast("Iterable[Enum]", shape if isinstance(shape, EnumType) else ())
    values = tuple((one.name, int(one.value)) for one in members)
    point = plain.fraction_bits if isinstance(plain, FixedShape) else None
    return Integer(plain.width, plain.signed, values, point)


def describe(
    signature: wiring.Signature | wiring.FlippedSignature, ports: Mapping[tuple[str, ...], str]
) -> Interface:
    """Return the interface of a unit.

    Parameters
    ----------
    signature : Signature
        The unit's signature.
    ports : Mapping[tuple[str, ...], str]
        Verilog names of the ports that the module has, by their paths in the signature.

    Raises
    ------
    ValueError
        If the layout of a port has overlapping fields or gaps.
    """
    streams, others = list[StreamInterface](), list[PortInterface]()
    for path, member in _members(signature, ()):
        if member.is_port:
            if path in ports:
                kind = describe_shape(member.shape)
                others.append(PortInterface(ports[path], _direction(member), kind))
            continue
        payload = member.signature.members["payload"]
        kind = describe_shape(payload.shape)
        names = [ports.get((*path, name)) for name in ("payload", "valid", "ready")]
        streams.append(StreamInterface("_".join(path), _direction(payload), kind, *names))
    return Interface(tuple(streams), tuple(others), tuple(_bursts(signature, ())))


def leaves(kind: Type, leaf: Leaf | None = None) -> Iterator[Leaf]:
    """Yield the integers of a type that have bits; all elements of an array are one leaf."""
    here = leaf or Leaf((), 0, Integer(0, False))
    if isinstance(kind, Struct):
        for name, offset, field in kind.offsets:
            inner = Leaf((*here.path, name), here.offset + offset, here.integer, here.arrays)
            yield from leaves(field, inner)
    elif isinstance(kind, Array):
        arrays = (*here.arrays, (kind.count, kind.element.width))
        yield from leaves(kind.element, Leaf(here.path, here.offset, here.integer, arrays))
    elif kind.width:
        yield Leaf(here.path, here.offset, kind, here.arrays)


def bit_table(interface: Interface) -> Iterator[str]:
    """Yield a line per field of each port or stream that is more than one integer."""
    for name, _direction, kind in interface.typed:
        if isinstance(kind, Integer):
            continue
        yield f"{name}: {kind.width} bits"
        for leaf in leaves(kind):
            sign = "signed" if leaf.integer.signed else "unsigned"
            first, last = leaf.offset, leaf.offset + leaf.integer.width - 1
            repeated = "".join(f", {count} times every {step}" for count, step in leaf.arrays)
            yield f"  [{last}:{first}] {'.'.join(leaf.path) or 'element'}: {sign}{repeated}"


def _members(
    signature: wiring.Signature | wiring.FlippedSignature, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], wiring.Member]]:
    """Yield the ports and streams of a signature, each element of an array separately."""
    for name, member in signature.members.items():
        for index in product(*map(range, member.dimensions)):
            inner = (*path, name, *map(str, index))
            # The type of Amaranth's stubs is wider than that of its signatures.
            own = None if member.is_port else cast("wiring.Signature", member.signature)
            if own is None or _is_stream(own):
                yield inner, member
            else:
                yield from _members(own, inner)


def _bursts(
    signature: wiring.Signature | wiring.FlippedSignature, path: tuple[str, ...]
) -> Iterator[BurstInterface]:
    """Yield the burst ports of a signature, each element of an array separately."""
    for name, member in signature.members.items():
        if member.is_port:
            continue
        own = _plain(cast("wiring.Signature", member.signature))
        for index in product(*map(range, member.dimensions)):
            inner = (*path, name, *map(str, index))
            if isinstance(own, BurstSignature):
                yield BurstInterface(
                    "_".join(inner),
                    own.writes,
                    own.address_bits,
                    own.word_layout["word"].width,
                    own.longest,
                )
            elif not isinstance(own, stream.Signature):
                yield from _bursts(own, inner)


def _is_stream(signature: wiring.Signature | wiring.FlippedSignature) -> bool:
    return isinstance(_plain(signature), stream.Signature)


def _plain(signature: wiring.Signature | wiring.FlippedSignature) -> wiring.Signature:
    """Return a signature that may be flipped, not flipped."""
    return signature.flip() if isinstance(signature, wiring.FlippedSignature) else signature


def _direction(member: wiring.Member) -> str:
    return "input" if member.flow is wiring.In else "output"
