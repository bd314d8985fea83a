"""Mending of routes: wires and vias that qrouter lost, and metal below the minimum area.

qrouter moves the vias of a stack apart by short wires, and vias to pins that are off the tracks. It
sometimes loses one of the wires or vias, and then reports no failed route. It also knows no minimum
area, so that the pad of a via that no wire continues can be too small. LVS and DRC check the
result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from synth.layout.design_exchange import Floorplan, Point, Route, distance, port_box
from synth.layout.extraction import Pin, lost_vias, on_die, open_ends, pin_boxes, touching
from synth.layout.lef import NM, Box, Layer, Lef
from synth.layout.netlist import LayoutNetlist
from synth.layout.placement import Placement
from synth.layout.power import PowerGrid

OSU018_UM2 = {"metal6": 0.56} | dict.fromkeys((f"metal{index}" for index in range(1, 6)), 0.2)
"""Minimum areas of Magic's technology of OSU018, whose LEF file states none."""

GRID, LONGEST = 100, 4000
"""Magic rounds edges to this grid; and the maximum length of an added wire, both in nm."""

TRACKS = 2
"""Maximum length of an added wire that connects, in pitches of its layer."""

Shape = tuple[str, Box]
"""Layer and box in nm."""

Wire = tuple[Point, Point]
"""Two ends of a wire."""


@dataclass(frozen=True, kw_only=True)
class Metal:
    """All metal of a layer: boxes of each net, and those of no signal."""

    nets: dict[str, list[Box]]
    others: list[Box]

    def near(self, box: Box, distance: int) -> Iterator[tuple[str, Box]]:
        """Yield the boxes less than `distance` from a box, and the net of each."""
        x0, y0, x1, y1 = box
        wide = x0 - distance, y0 - distance, x1 + distance, y1 + distance
        for net, boxes in (*self.nets.items(), ("", self.others)):
            yield from ((net, other) for other in boxes if _overlap(wide, other))


def minimum_area(layer: Layer, lef: Lef) -> int:
    """Return the minimum area of metal in nm2, 0 if unknown."""
    known = OSU018_UM2 if lef.path.name == "osu018_stdcells.lef" else {}
    return round((layer.area or known.get(layer.name, 0.0)) * NM**2)


def mend(
    design: LayoutNetlist,
    placement: Placement,
    plan: Floorplan,
    power: PowerGrid,
    lef: Lef,
    routes: dict[str, Route],
) -> set[str]:
    """Mend routes, and return the nets whose routes have changed.

    Metal without space for a wire stays too small, and DRC counts it. A net may stay open, and
    `synth.layout.extraction.extract` rejects it.
    """
    metal: dict[str, Metal] = {layer.name: Metal(nets={}, others=[]) for layer in lef.layers}
    routed: set[tuple[str, str, Box]] = set()
    for net in design.pins():
        for layer, box in _shapes(routes.get(net, Route()), lef):
            metal[layer].nets.setdefault(net, []).append(box)
            routed.add((net, layer, box))
    for layer, box, net in _cells(design, placement, plan, power, lef):
        if layer in metal:
            (metal[layer].nets.setdefault(net, []) if net else metal[layer].others).append(box)
    mended: set[str] = set()
    for net, pins in design.pins().items():
        if len(pins) > 1 and net in routes:
            boxes = {pin: pin_boxes(design, placement, plan, lef, pin) for pin in pins}
            if _Repair(net=net, route=routes[net], boxes=boxes, lef=lef, metal=metal).connect():
                mended.add(net)
    for layer in lef.layers:
        least = minimum_area(layer, lef)
        for net, shapes in metal[layer.name].nets.items():
            for small in _small(shapes, least):
                # A pin without a wire is the cell's own.
                if not any((net, layer.name, box) in routed for box in small):
                    continue
                if wire := _extension(small, least, layer, metal[layer.name], net):
                    routes[net].segments.append(wire)
                    shapes.append(_box(wire, layer))
                    mended.add(net)
    return mended


@dataclass(kw_only=True)
class _Repair:
    """The route of a net with its pins, among the metal of all nets."""

    net: str
    route: Route
    boxes: dict[Pin, list[Shape]]
    lef: Lef
    metal: dict[str, Metal]

    def connect(self) -> bool:
        """Add the wires and vias that the route lost; return whether there are any."""
        before = list(self.route.segments), list(self.route.vias)
        self._connect()
        return before != (self.route.segments, self.route.vias)

    def _connect(self) -> None:
        """Add what the route lost, as long as there is space for it."""
        points = self.route.points(self.lef)
        for shapes in self.boxes.values():
            if not touching(shapes, points, self.lef.reach):
                wire = self._first_free(_wires_to_pin(points, shapes))
                if not wire:
                    return
                self._add(Route(segments=[wire]))
        self._add(Route(vias=lost_vias(self.route, self.boxes, self.lef, self.net)))
        while wire := self._first_free(open_ends(self.route, self.boxes, self.lef, self.net)):
            if not self._move_via(wire):
                self._add(Route(segments=[wire]))

    def _move_via(self, gap: Wire) -> bool:
        """Move a via from one end of a gap on its upper layer to the other end; return success.

        The upper layer must have nothing else at the via, and the lower layer one wire, which moves
        with the via: qrouter moves both off the track by the offset that only the pin needs.
        """
        for old, (_, to_x, to_y) in (gap, gap[::-1]):
            used = self.route.points(self.lef).count(old)
            for via, x, y in self.route.vias:
                low, high = self.lef.vias[via]
                wires = [wire for wire in self.route.segments if (low, x, y) in wire]
                if (high, x, y) != old or used != 1 or len(wires) != 1:
                    continue
                (first,) = (point for point in wires[0] if point != (low, x, y))
                corner = (low, first[1] + to_x - x, first[2] + to_y - y)
                moved: list[Wire] = [(first, corner), (corner, (low, to_x, to_y))]
                if all(self._first_free([wire]) for wire in moved):
                    self._remove(wires[0], (via, x, y))
                    self._add(Route(segments=moved, vias=[(via, to_x, to_y)]))
                    return True
        return False

    def _remove(self, wire: Wire, via: tuple[str, int, int]) -> None:
        """Remove a wire and a via from the route and from the metal."""
        self.route.segments.remove(wire)
        self.route.vias.remove(via)
        for layer, box in _shapes(Route(segments=[wire], vias=[via]), self.lef):
            self.metal[layer].nets[self.net].remove(box)

    def _first_free(self, wires: Sequence[Wire]) -> Wire | None:
        """Return the first wire of at most `TRACKS` that keeps its distance; None without one."""
        for wire in wires:
            layer = self.lef.by_name[wire[0][0]]
            if distance(*wire) > TRACKS * layer.pitch * NM:
                continue
            near = self.metal[layer.name].near(_box(wire, layer), _spacing(layer))
            if all(own == self.net for own, _ in near):
                return wire
        return None

    def _add(self, found: Route) -> None:
        """Add wires and vias to the route and to the metal of their layers."""
        self.route.segments += found.segments
        self.route.vias += found.vias
        for layer, box in _shapes(found, self.lef):
            self.metal[layer].nets.setdefault(self.net, []).append(box)


def _wires_to_pin(points: Sequence[Point], shapes: Sequence[Shape]) -> list[Wire]:
    """Return the straight wires from points of a net to a pin, the shortest first."""
    wires: list[Wire] = []
    for name, (x0, y0, x1, y1) in shapes:
        for layer, x, y in points:
            if layer == name and y0 <= y <= y1:
                wires.append(((name, x, y), (name, (x0 + x1) // 2, y)))
            elif layer == name and x0 <= x <= x1:
                wires.append(((name, x, y), (name, x, (y0 + y1) // 2)))
    return sorted(wires, key=lambda wire: distance(*wire))


def _shapes(route: Route, lef: Lef) -> Iterator[Shape]:
    """Yield the boxes of the wires and vias of a route."""
    for wire in route.segments:
        yield wire[0][0], _box(wire, lef.by_name[wire[0][0]])
    for via, x, y in route.vias:
        for layer, (x0, y0, x1, y1) in lef.pads.get(via, ()):
            yield layer, (x + x0, y + y0, x + x1, y + y1)


def _cells(
    design: LayoutNetlist, placement: Placement, plan: Floorplan, power: PowerGrid, lef: Lef
) -> Iterator[tuple[str, Box, str]]:
    """Yield layer, box and signal of all metal of ports, cells and power nets; else ``""``."""
    for port, (_, net) in design.ports.items():
        yield *port_box(plan, port, lef), net
    kinds = {name: cell.kind for name, cell in design.cells.items()}
    kinds |= dict.fromkeys(power.fillers, power.filler)
    for name, at in (placement.cells | power.fillers).items():
        macro = lef.macro(kinds[name])
        nets = design.cells[name].nets if name in design.cells else {}
        for layer, box in on_die(macro.obstructions, macro, at, plan):
            yield layer, box, ""
        for pin, shape in macro.pins.items():
            for layer, box in on_die(shape.boxes, macro, at, plan):
                yield layer, box, nets.get(pin, "")
    for net in power.nets:
        for wire in (*net.straps, *net.stacks):
            (x0, y0), (x1, y1) = wire.start, wire.end
            half = wire.width // 2
            box = min(x0, x1) - half, min(y0, y1) - half, max(x0, x1) + half, max(y0, y1) + half
            yield wire.layer, box, ""
            for layer, (left, low, right, high) in lef.pads.get(wire.via, ()):
                yield layer, (x0 + left, y0 + low, x0 + right, y0 + high), ""


def _small(boxes: Sequence[Box], least: int) -> list[list[Box]]:
    """Return the groups of boxes that touch each other and are smaller together than `least`."""
    large = [box for box in boxes if _area([box]) >= least]
    waiting = [box for box in dict.fromkeys(boxes) if _area([box]) < least]
    groups: list[list[Box]] = []
    while waiting:
        group = [waiting.pop()]
        for box in group:
            added = [other for other in waiting if _touch(box, other)]
            waiting = [other for other in waiting if other not in added]
            group += added
        whole = any(_touch(box, other) for box in group for other in large)
        if not whole and _area(group) < least:
            groups.append(group)
    return groups


def _extension(group: list[Box], least: int, layer: Layer, metal: Metal, net: str) -> Wire | None:
    """Return the shortest wire that gives a group its minimum area; None without space."""
    half = round(layer.width * NM / 2)
    # The far edge of the wire, half a width beyond its end, is on the grid.
    for length in range(GRID - half % GRID, LONGEST, GRID):
        for x0, y0, x1, y1 in group:
            x, y = (x0 + x1) // 2, (y0 + y1) // 2
            for across, up in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                end = (layer.name, x + across * length, y + up * length)
                wire = ((layer.name, x, y), end)
                box = _box(wire, layer)
                if _area([*group, box]) < least:
                    continue
                near = metal.near(box, _spacing(layer))
                if all(own == net and other in group for own, other in near):
                    return wire
    return None


def _spacing(layer: Layer) -> int:
    """Return the distance in nm that added metal keeps from other metal."""
    return round(max(layer.spacing, layer.width) * NM)


def _box(wire: Wire, layer: Layer) -> Box:
    """Return the box of a wire, which extends by half its width beyond its ends."""
    (_, x0, y0), (_, x1, y1) = wire
    half = round(layer.width * NM / 2)
    return min(x0, x1) - half, min(y0, y1) - half, max(x0, x1) + half, max(y0, y1) + half


def _touch(one: Box, two: Box) -> bool:
    """Return whether two boxes overlap or share an edge or a corner."""
    return one[0] <= two[2] and two[0] <= one[2] and one[1] <= two[3] and two[1] <= one[3]


def _overlap(one: Box, two: Box) -> bool:
    """Return whether two boxes overlap, more than at their edges."""
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _area(boxes: Sequence[Box]) -> int:
    """Return the area that boxes cover together."""
    xs = sorted({x for box in boxes for x in (box[0], box[2])})
    ys = sorted({y for box in boxes for y in (box[1], box[3])})
    return sum(
        (right - left) * (high - low)
        for left, right in pairwise(xs)
        for low, high in pairwise(ys)
        if any(
            box[0] <= left and right <= box[2] and box[1] <= low and high <= box[3] for box in boxes
        )
    )
