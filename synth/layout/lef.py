"""Routing layers, sites and cells of a LEF file. Lengths of cells are integers in nm."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hdl.errors import UserError

NM = 1000
"""One um in nm."""

_RECT = re.compile(r"\bRECT\s+([-\d.]+)\s+([-\d.]+)\s+([-\d.]+)\s+([-\d.]+)")
_MACRO = re.compile(r"^MACRO\s+(\S+)\s*\n(.*?)^END\s+\1\s*$", flags=re.M | re.S)
_PIN = re.compile(r"^\s*PIN\s+(\S+)\s*\n(.*?)^\s*END\s+\1\s*$", flags=re.M | re.S)
_OBS = re.compile(r"^\s*OBS\b(.*?)^\s*END\s*$", flags=re.M | re.S)
_VIA = re.compile(r"^VIA\s+(\S+).*?\n(.*?)^END\s+\1\s*$", flags=re.M | re.S)
_ON_LAYER = re.compile(r"\bLAYER\s+(\S+)\s*;(.*?)(?=\bLAYER\b|\Z)", flags=re.S)
_LAYER = re.compile(r"^LAYER\s+(\S+)\s*\n(.*?)^END\s+\1\s*$", flags=re.M | re.S)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A routing layer.

    Parameters
    ----------
    name : str
        Name of the layer.
    direction : str
        ``HORIZONTAL`` or ``VERTICAL``.
    pitch, offset, width : float
        Distance of tracks, position of the first track, and width of a wire, in um.
    ohm_per_square : float
        Resistance of a square.
    area_ff_per_um2, edge_ff_per_um : float
        Capacitance of an area and of each edge.
    spacing : float
        Minimum distance of two wires in um.
    area : float
        Minimum area of metal in um2, 0 if the file states none.
    """

    name: str
    direction: str
    pitch: float
    offset: float
    width: float
    ohm_per_square: float
    area_ff_per_um2: float
    edge_ff_per_um: float
    spacing: float
    area: float

    @property
    def ohm_per_um(self) -> float:
        """Resistance of one um of wire."""
        return self.ohm_per_square / self.width

    @property
    def ff_per_um(self) -> float:
        """Capacitance of one um of wire, with both edges."""
        return self.width * self.area_ff_per_um2 + 2 * self.edge_ff_per_um


Box = tuple[int, int, int, int]
"""Left, bottom, right and top in nm."""


@dataclass(frozen=True, kw_only=True)
class MacroPin:
    """A pin of a cell: its use, such as ``SIGNAL``, and its boxes with their layers."""

    use: str
    boxes: tuple[tuple[str, Box], ...]

    @property
    def center(self) -> tuple[int, int]:
        """Centre of the first box."""
        x0, y0, x1, y1 = self.boxes[0][1]
        return (x0 + x1) // 2, (y0 + y1) // 2


@dataclass(frozen=True, kw_only=True)
class Macro:
    """A cell: name, width and height, pins, and boxes that wires must not cross."""

    name: str
    width: int
    height: int
    pins: dict[str, MacroPin] = field(repr=False)
    obstructions: tuple[tuple[str, Box], ...] = field(repr=False)

    def pin(self, name: str) -> MacroPin:
        """Return a pin.

        Raises
        ------
        UserError
            If the cell has no such pin with a box.
        """
        if name not in self.pins or not self.pins[name].boxes:
            raise UserError(f"LEF must define pin {name} of cell {self.name}")
        return self.pins[name]


@dataclass(frozen=True, kw_only=True)
class Lef:
    """The contents of a LEF file.

    Parameters
    ----------
    path : Path
        The file.
    layers : tuple[Layer, ...]
        The routing layers, the lowest first.
    macros : dict[str, Macro]
        The cells.
    vias : dict[str, tuple[str, str]]
        Lower and upper routing layer of each via.
    pads : dict[str, tuple[tuple[str, Box], ...]]
        Boxes of each via on routing layers, relative to its position.
    reach : int
        Half the width of the smallest via in nm: a wire reaches at least so far beyond its end.
    site, row_height : int
        Width and height of a site in nm.
    """

    path: Path
    layers: tuple[Layer, ...]
    macros: dict[str, Macro] = field(repr=False)
    vias: dict[str, tuple[str, str]] = field(repr=False)
    pads: dict[str, tuple[tuple[str, Box], ...]] = field(repr=False)
    reach: int
    site: int
    row_height: int

    def has(self, cell: str) -> bool:
        """Return whether the file defines a cell."""
        return cell in self.macros

    def macro(self, cell: str) -> Macro:
        """Return a cell.

        Raises
        ------
        UserError
            If the file does not define it.
        """
        if cell not in self.macros:
            raise UserError(f"LEF must define cell {cell}, but '{self.path}' does not")
        return self.macros[cell]

    def rail(self, use: str) -> str:
        """Return the name of the cells' pin of use ``POWER`` or ``GROUND``.

        Raises
        ------
        UserError
            If no cell has one.
        """
        for macro in self.macros.values():
            for name, pin in macro.pins.items():
                if pin.use == use:
                    return name
        raise UserError(f"LEF must define a pin of use {use} in '{self.path}'")

    @cached_property
    def by_name(self) -> dict[str, Layer]:
        """The routing layers by name."""
        return {layer.name: layer for layer in self.layers}

    def layer(self, direction: str, *, lowest: int = 0) -> Layer:
        """Return the first layer of a direction, from the layer with index `lowest` on."""
        return next(layer for layer in self.layers[lowest:] if layer.direction == direction)


def read_lef(path: Path) -> Lef:
    """Return the contents of a LEF file.

    Raises
    ------
    UserError
        If the file does not exist, lacks layers of both directions, or has no core site.
    """
    if not path.is_file():
        raise UserError(f"LEF must be a file that exists, not '{path}'")
    layers = tuple(read_layers(path))
    text = re.sub(r"#[^\n]*", "", path.read_text(errors="replace"))
    for direction in ("HORIZONTAL", "VERTICAL"):
        if not any(layer.direction == direction for layer in layers[1:]):
            raise UserError(f"LEF must have a {direction} layer above the first in '{path}'")
    sites = re.findall(r"^SITE\s+(\S+)\s*\n(.*?)^END\s+\1", text, flags=re.M | re.S)
    sizes = [
        re.search(r"\bSIZE\s+([\d.]+)\s+BY\s+([\d.]+)", body)
        for _, body in sites
        if re.search(r"\bCLASS\s+CORE\b", body, flags=re.I)
    ]
    if not sizes or not sizes[0]:
        raise UserError(f"LEF must define a site of class CORE, but '{path}' does not")
    site, row_height = (round(float(value) * NM) for value in sizes[0].groups())
    names = {layer.name for layer in layers}
    pads = {
        name: tuple(box for box in _boxes(body) if box[0] in names)
        for name, body in _VIA.findall(text)
    }
    return Lef(
        path=path,
        layers=layers,
        macros={name: _macro(name, body) for name, body in _MACRO.findall(text)},
        vias=_vias(text, [layer.name for layer in layers]),
        pads=pads,
        reach=_reach(pads, layers),
        site=site,
        row_height=row_height,
    )


def _vias(text: str, layers: list[str]) -> dict[str, tuple[str, str]]:
    """Return the routing layers of each via."""
    vias: dict[str, tuple[str, str]] = {}
    for name, body in _VIA.findall(text):
        found = [layer for layer in re.findall(r"\bLAYER\s+(\S+)", body) if layer in layers]
        if len(found) == 2:
            low, high = sorted(found, key=layers.index)
            vias[name] = low, high
    return vias


def _reach(pads: dict[str, tuple[tuple[str, Box], ...]], layers: tuple[Layer, ...]) -> int:
    """Return half the width of the smallest via, or of the narrowest wire if no via has a box."""
    boxes = [box for shapes in pads.values() for _, box in shapes]
    widths = [min(x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes]
    return min(widths or [round(layer.width * NM) for layer in layers]) // 2


def _macro(name: str, body: str) -> Macro:
    """Return a cell of a LEF file."""
    size = re.search(r"\bSIZE\s+([\d.]+)\s+BY\s+([\d.]+)", body)
    if not size:
        raise UserError(f"LEF must state the size of cell {name}")
    pins: dict[str, MacroPin] = {}
    for pin, content in _PIN.findall(body):
        use = re.search(r"\bUSE\s+(\w+)", content)
        pins[pin] = MacroPin(use=use[1].upper() if use else "SIGNAL", boxes=tuple(_boxes(content)))
    width, height = (round(float(value) * NM) for value in size.groups())
    blocked = [box for content in _OBS.findall(body) for box in _boxes(content)]
    return Macro(name=name, width=width, height=height, pins=pins, obstructions=tuple(blocked))


def _boxes(text: str) -> list[tuple[str, Box]]:
    """Return the boxes of a group in nm, with their layers."""
    boxes: list[tuple[str, Box]] = []
    for layer, part in _ON_LAYER.findall(text):
        for corners in _RECT.findall(part):
            x0, y0, x1, y1 = (round(float(value) * NM) for value in corners)
            boxes.append((layer, (x0, y0, x1, y1)))
    return boxes


def read_layers(lef: Path) -> list[Layer]:
    """Return the routing layers of a LEF file in the order of the file.

    Raises
    ------
    UserError
        If the file has no routing layer, or a layer without width, pitch or direction.
    """
    layers: list[Layer] = []
    for name, body in _LAYER.findall(re.sub(r"#[^\n]*", "", lef.read_text(errors="replace"))):
        if not re.search(r"\bTYPE\s+ROUTING\b", body):
            continue
        direction = re.search(r"\bDIRECTION\s+(HORIZONTAL|VERTICAL)\b", body)
        width, pitch = _value(body, "WIDTH"), _value(body, "PITCH")
        if not direction or not width or not pitch:
            raise UserError(f"LEF must state direction, width and pitch of layer {name} in '{lef}'")
        layers.append(
            Layer(
                name=name,
                direction=direction[1],
                pitch=pitch,
                offset=_value(body, "OFFSET"),
                width=width,
                ohm_per_square=_value(body, r"RESISTANCE\s+RPERSQ"),
                area_ff_per_um2=1e3 * _value(body, r"CAPACITANCE\s+CPERSQDIST"),
                edge_ff_per_um=1e3 * _value(body, "EDGECAPACITANCE"),
                spacing=_value(body, "SPACING"),
                area=_value(body, "AREA"),
            )
        )
    if not layers:
        raise UserError(f"LEF must be a LEF file with routing layers, not '{lef}'")
    return layers


def _value(body: str, key: str) -> float:
    """Return a number of a layer, 0 if absent."""
    found = re.search(rf"(?<!\w){key}\s+([-+.\deE]+)", body)
    return float(found[1]) if found else 0.0
