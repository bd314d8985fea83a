"""DEF files: the placed design that the router reads, and the routed design that it writes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hdl.errors import UserError
from synth.layout.lef import NM, Box, Lef
from synth.layout.netlist import LayoutNetlist
from synth.layout.placement import Placement
from synth.layout.power import PowerGrid

MARGIN = 10
"""Tracks between the core and the edge of the die."""

GRID = 10
"""Grid in nm to which positions of the routed DEF are rounded; qrouter writes -7999 for -8000."""

Point = tuple[str, int, int]
"""Layer, and position in nm."""


def distance(one: Point, two: Point) -> int:
    """Return the length in nm of a wire between two points of a layer."""
    return abs(one[1] - two[1]) + abs(one[2] - two[2])


@dataclass(kw_only=True)
class Route:
    """The wires of one net.

    Parameters
    ----------
    pins : list[tuple[str, str]]
        Cell and pin, or ``PIN`` and port.
    segments : list[tuple[Point, Point]]
        Straight wires on one layer.
    vias : list[tuple[str, int, int]]
        Name and position of each via.
    """

    pins: list[tuple[str, str]] = field(default_factory=list)
    segments: list[tuple[Point, Point]] = field(default_factory=list)
    vias: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def length_um(self) -> float:
        """Length of all wires."""
        return sum(distance(*wire) for wire in self.segments) / NM

    def points(self, lef: Lef) -> list[Point]:
        """Return the ends of all wires, and each via on both of its layers.

        Raises
        ------
        UserError
            If the LEF file does not define a via.
        """
        lost = [via for via, _, _ in self.vias if via not in lef.vias]
        if lost:
            raise UserError(f"LEF must define via {lost[0]}, but '{lef.path}' does not")
        ends = [point for wire in self.segments for point in wire]
        return ends + [(layer, x, y) for via, x, y in self.vias for layer in lef.vias[via]]


@dataclass(frozen=True, kw_only=True)
class Floorplan:
    """The die in nm, its outermost tracks, and the layer and place of each port.

    Cells are moved by `origin`, so that the tracks are at multiples of the pitches. The ports are
    on the outermost tracks, one pitch from the edge of the die.
    """

    die: tuple[int, int, int, int]
    tracks: tuple[int, int, int, int]
    origin: tuple[int, int]
    ports: dict[str, tuple[str, int, int]]


def make_floorplan(placement: Placement, lef: Lef) -> Floorplan:
    """Return the die around a placement, with each port at a free track of its side."""
    across, along = lef.layer("VERTICAL", lowest=1), lef.layer("HORIZONTAL", lowest=1)
    pitch_x, pitch_y = round(across.pitch * NM), round(along.pitch * NM)
    origin = round(across.offset * NM), round(along.offset * NM)
    right = -(-(placement.width + origin[0]) // pitch_x) * pitch_x + MARGIN * pitch_x
    top = -(-(placement.height + origin[1]) // pitch_y) * pitch_y + MARGIN * pitch_y
    left, bottom = -MARGIN * pitch_x, -MARGIN * pitch_y
    taken: set[tuple[int, int]] = set()
    ports: dict[str, tuple[str, int, int]] = {}
    for port, (x, y) in placement.ports.items():
        sides = {left: -x, right: x - placement.width, bottom: -y, top: y - placement.height}
        side = max(sides, key=lambda side: sides[side])
        horizontal = side in (left, right)
        layer = along if horizontal else across
        pitch, low, high = (
            (pitch_y, 0, placement.height) if horizontal else (pitch_x, 0, placement.width)
        )
        wanted = round(min(max(y if horizontal else x, low), high) / pitch)
        # The pins of neighbours are two tracks apart, so that a via fits on each.
        for distance in range(2 * (high // pitch) + 2):
            track = (wanted + (distance + 1) // 2 * (1 if distance % 2 else -1)) // 2 * 2
            free = (side, track) not in taken and low <= track * pitch <= high
            if free:
                break
        else:
            raise UserError(f"DENSITY must be lower: no side has a free track for port {port}")
        taken.add((side, track))
        place = (side, track * pitch) if horizontal else (track * pitch, side)
        ports[port] = (layer.name, *place)
    return Floorplan(
        die=(left - pitch_x, bottom - pitch_y, right + pitch_x, top + pitch_y),
        tracks=(left, bottom, right, top),
        origin=origin,
        ports=ports,
    )


def port_box(plan: Floorplan, port: str, lef: Lef) -> tuple[str, Box]:
    """Return layer and box in nm of a port's pin.

    The pin reaches from the outermost track to the edge of the die, so that it has its layer's
    minimum area even if the wire continues on another layer.
    """
    name, x, y = plan.ports[port]
    half = round(next(layer.width for layer in lef.layers if layer.name == name) * NM / 2)
    inner, outer = plan.tracks, plan.die
    return name, (
        outer[0] if x == inner[0] else x - half,
        outer[1] if y == inner[1] else y - half,
        outer[2] if x == inner[2] else x + half,
        outer[3] if y == inner[3] else y + half,
    )


def write_placed(
    design: LayoutNetlist, placement: Placement, plan: Floorplan, power: PowerGrid, lef: Lef
) -> str:
    """Return the DEF of a placed design with its power grid."""
    left, bottom, right, top = plan.tracks
    lines = [
        "VERSION 5.6 ;",
        "NAMESCASESENSITIVE ON ;",
        'DIVIDERCHAR "/" ;',
        'BUSBITCHARS "[]" ;',
        f"DESIGN {design.top} ;",
        f"UNITS DISTANCE MICRONS {NM} ;",
        "DIEAREA ( {} {} ) ( {} {} ) ;".format(*plan.die),
    ]
    for layer in lef.layers:
        pitch = round(layer.pitch * NM)
        vertical = layer.direction == "VERTICAL"
        axis, start, end = ("X", left, right) if vertical else ("Y", bottom, top)
        start = -(-start // pitch) * pitch
        count = (end - start) // pitch + 1
        lines.append(f"TRACKS {axis} {start} DO {count} STEP {pitch} LAYER {layer.name} ;")
    kinds = {name: cell.kind for name, cell in design.cells.items()}
    kinds |= dict.fromkeys(power.fillers, power.filler)
    lines.append(f"COMPONENTS {len(kinds)} ;")
    for name, at in (placement.cells | power.fillers).items():
        x, y = at.x + plan.origin[0], at.y + plan.origin[1]
        lines.append(f"- {name} {kinds[name]} + PLACED ( {x} {y} ) {at.orientation} ;")
    lines += ["END COMPONENTS", f"PINS {len(design.ports) + len(power.nets)} ;"]
    for port, (direction, net) in design.ports.items():
        _, x, y = plan.ports[port]
        layer, (x0, y0, x1, y1) = port_box(plan, port, lef)
        lines.append(
            f"- {port} + NET {net} + DIRECTION {direction.upper()} + USE SIGNAL\n"
            f"  + LAYER {layer} ( {x0 - x} {y0 - y} ) ( {x1 - x} {y1 - y} )\n"
            f"  + PLACED ( {x} {y} ) N ;"
        )
    for net in power.nets:
        strap = net.straps[0]
        half, (x, y) = strap.width // 2, strap.start
        lines.append(
            f"- {net.name} + NET {net.name} + SPECIAL + DIRECTION INOUT + USE {net.use}\n"
            f"  + LAYER {strap.layer} ( {-half} 0 ) ( {half} {strap.width} )\n"
            f"  + PLACED ( {x} {y} ) N ;"
        )
    # With its net, the router keeps other wires off the pin of a port that no cell uses.
    ported = {net for _, net in design.ports.values()}
    nets = {net: pins for net, pins in design.pins().items() if len(pins) > 1 or net in ported}
    lines += ["END PINS", f"NETS {len(nets)} ;"]
    for net, pins in nets.items():
        lines.append(f"- {net}")
        lines += [f"  ( {owner} {pin} )" for owner, pin in pins]
        lines[-1] += " ;"
    lines += ["END NETS", *power.special_nets(), "END DESIGN", ""]
    return "\n".join(lines)


def read_routes(path: Path) -> dict[str, Route]:
    """Return the routes of a DEF file by net, without power and ground.

    Raises
    ------
    UserError
        If the file ends early or contains a route that is not understood.
    """
    text = path.read_text()
    if "END DESIGN" not in text:
        raise UserError(f"the routed DEF must be complete, but '{path}' ends early")
    routes: dict[str, Route] = {}
    nets = re.search(r"^NETS\b[^;]*;(.*?)^END NETS", text, flags=re.M | re.S)
    for statement in re.split(r";\s*$", nets[1] if nets else "", flags=re.M):
        if statement.strip():
            _read_net(statement, routes)
    special = re.search(r"^SPECIALNETS\b[^;]*;(.*?)^END SPECIALNETS", text, flags=re.M | re.S)
    for statement in re.split(r";\s*$", special[1] if special else "", flags=re.M):
        if statement.strip():
            _read_net(statement, routes)
    return routes


def with_routes(text: str, changed: Mapping[str, Route], lef: Lef) -> str:
    """Return a routed DEF with other wires and vias of some nets, which it already routes."""
    head, start, rest = text.partition("\nNETS ")
    body, end, tail = rest.partition("\nEND NETS")
    for net, route in changed.items():
        wires = [
            f"{layer} ( {x0} {y0} ) ( {x1} {y1} )"
            for (layer, x0, y0), (_, x1, y1) in route.segments
        ]
        wires += [f"{lef.vias[via][0]} ( {x} {y} ) {via}" for via, x, y in route.vias]
        lines = "+ ROUTED " + "\n  NEW ".join(wires)
        statement = re.compile(rf"^(- {re.escape(net)}\s[^;+]*)[^;]*?(\s*;)", flags=re.M)
        body = statement.sub(lambda found, lines=lines: found[1] + lines + found[2], body, count=1)
    return head + start + body + end + tail


def _read_net(statement: str, routes: dict[str, Route]) -> None:
    """Add the route of one net, unless it is power or ground."""
    if re.search(r"\+ USE (?:POWER|GROUND)\b", statement):
        return
    tokens = iter(statement.split())
    if next(tokens) != "-":
        raise UserError(f"a net of the routed DEF must begin with '-', not {statement[:40]!r}")
    route = routes.setdefault(next(tokens), Route())
    head, _, wires = statement.partition("+ ROUTED")
    for owner, pin in re.findall(r"\(\s*(\S+)\s+(\S+)\s*\)", head):
        route.pins.append((owner, pin))
    for wire in re.split(r"\bNEW\b", wires):
        words = wire.split()
        if words:
            _read_wire(words, route)


def _read_wire(words: list[str], route: Route) -> None:
    """Add one wire: layer, points, and a via at the last point."""
    layer = words[0]
    last: Point | None = None
    for kind, values in _points(words[1:]):
        if kind == "via":
            if not last:
                raise UserError(f"a via of the routed DEF needs a point: {' '.join(words)}")
            route.vias.append((values[0], last[1], last[2]))
            continue
        x, y = (
            old if value == "*" else round(int(value) / GRID) * GRID
            for value, old in zip(values, (last[1], last[2]) if last else (0, 0), strict=True)
        )
        if last and (last[1], last[2]) != (x, y):
            route.segments.append((last, (layer, x, y)))
        last = (layer, x, y)


def _points(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the points and vias of a wire; a width, a taper and an extension are skipped."""
    index = 0
    while index < len(words):
        if words[index] == "(":
            end = words.index(")", index)
            yield "point", words[index + 1 : index + 3]
            index = end + 1
        else:
            if not re.fullmatch(r"\d+|TAPER", words[index]):
                yield "via", [words[index]]
            index += 1
