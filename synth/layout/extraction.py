"""Resistances and capacitances of routed nets, and the SPEF file of them.

A wire of a layer has the resistance and the capacitance per um of the LEF file; half of the
capacitance is at each end. Ends on one layer that overlap are one node. Vias have no resistance,
and there is no capacitance between nets.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from hdl.errors import UserError
from synth.layout.design_exchange import Floorplan, Point, Route, distance, port_box
from synth.layout.lef import NM, Box, Lef, Macro
from synth.layout.netlist import LayoutNetlist
from synth.layout.placement import Place, Placement

SHORT_OHM = 0.001
"""Resistance between two pins at one node."""

Pin = tuple[str, str]
"""Cell and pin, or ``PIN`` and port."""


@dataclass(kw_only=True)
class Parasitics:
    """The RC network of a net.

    Parameters
    ----------
    pins : dict[Pin, int]
        The node of each pin.
    capacitance_ff : dict[int, float]
        Capacitance to ground of each node.
    resistances : list[tuple[int, int, float]]
        Two nodes and the resistance between them, in ohm.
    """

    pins: dict[Pin, int] = field(default_factory=dict)
    capacitance_ff: dict[int, float] = field(default_factory=dict)
    resistances: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def total_ff(self) -> float:
        """Capacitance of the whole net, without the cells' pins."""
        return sum(self.capacitance_ff.values())


class _Nodes:
    """Points of a net that are united to nodes."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._number = {point: index for index, point in enumerate(dict.fromkeys(points))}
        self._parent = list(range(len(self._number)))

    def __iter__(self) -> Iterator[Point]:
        return iter(self._number)

    def node(self, point: Point) -> int:
        """Return the node of a point."""
        return self._root(self._number[point])

    def _root(self, index: int) -> int:
        while self._parent[index] != index:
            self._parent[index] = self._parent[self._parent[index]]
            index = self._parent[index]
        return index

    def unite(self, first: Point, second: Point) -> None:
        """Make two points one node."""
        low, high = sorted((self.node(first), self.node(second)))
        self._parent[high] = low


def pin_boxes(
    design: LayoutNetlist, placement: Placement, plan: Floorplan, lef: Lef, pin: Pin
) -> list[tuple[str, Box]]:
    """Return the boxes of a pin or port on the die, with their layers."""
    owner, name = pin
    if owner == "PIN":
        return [port_box(plan, name, lef)]
    macro = lef.macro(design.cells[owner].kind)
    return on_die(macro.pin(name).boxes, macro, placement.cells[owner], plan)


def on_die(
    boxes: Iterable[tuple[str, Box]], macro: Macro, at: Place, plan: Floorplan
) -> list[tuple[str, Box]]:
    """Return boxes of a cell at their places on the die."""
    left, bottom = at.x + plan.origin[0], at.y + plan.origin[1]
    found: list[tuple[str, Box]] = []
    for layer, (x0, y0, x1, y1) in boxes:
        if at.orientation in ("FN", "S"):
            x0, x1 = macro.width - x1, macro.width - x0
        if at.orientation in ("FS", "S"):
            y0, y1 = macro.height - y1, macro.height - y0
        found.append((layer, (left + x0, bottom + y0, left + x1, bottom + y1)))
    return found


def extract(
    route: Route, boxes: dict[Pin, list[tuple[str, Box]]], lef: Lef, net: str
) -> Parasitics:
    """Return the RC network of a route.

    Raises
    ------
    UserError
        If the route does not connect all pins of the net.
    """
    nodes, ordered, touched = _joined(route, boxes, lef, net)
    result = Parasitics()
    for start, end in route.segments:
        stops = [start, *_between(start, end, ordered), end]
        for first, second in pairwise(stops):
            length = distance(first, second) / NM
            layer = lef.by_name[first[0]]
            one, two = nodes.node(first), nodes.node(second)
            for node in (one, two):
                half = length * layer.ff_per_um / 2
                result.capacitance_ff[node] = result.capacitance_ff.get(node, 0.0) + half
            if one != two:
                result.resistances.append((one, two, length * layer.ohm_per_um))
    result.pins = {pin: nodes.node(found[0]) for pin, found in touched.items()}
    _check_connected(result, net)
    return result


def lost_vias(
    route: Route, boxes: dict[Pin, list[tuple[str, Box]]], lef: Lef, net: str
) -> list[tuple[str, int, int]]:
    """Return the vias, with name and position, that an open route lacks.

    When qrouter moves the vias of a stack apart, it can omit one of them. Two wires then end at one
    place on neighbouring layers, and nothing else connects them.

    Raises
    ------
    UserError
        If no wire touches a pin of the net.
    """
    nodes, ordered, is_open = _wired(route, boxes, lef, net)
    if not is_open:
        return []
    known, found = set(ordered), []
    for layer, x, y in ordered:
        for via, (low, high) in lef.vias.items():
            above = (high, x, y)
            if layer == low and above in known and nodes.node((low, x, y)) != nodes.node(above):
                nodes.unite((low, x, y), above)
                found.append((via, x, y))
    return found


def open_ends(
    route: Route, boxes: dict[Pin, list[tuple[str, Box]]], lef: Lef, net: str
) -> list[tuple[Point, Point]]:
    """Return the pairs of points of an open net that nothing connects, the nearest pair first.

    The points of a pair are on one layer, and one is above or next to the other.

    Raises
    ------
    UserError
        If no wire touches a pin of the net.
    """
    nodes, ordered, is_open = _wired(route, boxes, lef, net)
    if not is_open:
        return []
    pairs = [
        (one, two)
        for one, two in combinations(ordered, 2)
        if one[0] == two[0]
        and (one[1] == two[1] or one[2] == two[2])
        and nodes.node(one) != nodes.node(two)
    ]
    return sorted(pairs, key=lambda pair: distance(*pair))


def _wired(
    route: Route, boxes: dict[Pin, list[tuple[str, Box]]], lef: Lef, net: str
) -> tuple[_Nodes, list[Point], bool]:
    """Return the nodes of a route, its points in order, and whether its pins are not connected.

    Vias, ends that overlap, pins and wires unite points.
    """
    nodes, ordered, touched = _joined(route, boxes, lef, net)
    for start, end in route.segments:
        for first, second in pairwise([start, *_between(start, end, ordered), end]):
            nodes.unite(first, second)
    return nodes, ordered, len({nodes.node(points[0]) for points in touched.values()}) > 1


def _joined(
    route: Route, boxes: dict[Pin, list[tuple[str, Box]]], lef: Lef, net: str
) -> tuple[_Nodes, list[Point], dict[Pin, list[Point]]]:
    """Return the nodes of a route, its points in order, and the points that touch each pin.

    Vias, ends that overlap, and pins unite points; wires do not.
    """
    points = route.points(lef)
    if not points:
        # Two pins that abut, or a pin and a port at one place.
        points = [(layer, box[0], box[1]) for shapes in boxes.values() for layer, box in shapes[:1]]
    nodes = _Nodes(points)
    for via, x, y in route.vias:
        low, high = lef.vias[via]
        nodes.unite((low, x, y), (high, x, y))
    ordered = sorted(nodes)
    for index, (layer, x, y) in enumerate(ordered):
        for other in ordered[index + 1 :]:
            if other[0] != layer or other[1] - x > lef.reach:
                break
            if abs(other[2] - y) <= lef.reach:
                nodes.unite((layer, x, y), other)
    touched = {pin: touching(shapes, ordered, lef.reach) for pin, shapes in boxes.items()}
    for pin, found in touched.items():
        if not found:
            raise UserError(f"the router must connect {' '.join(pin)} to net {net}")
        # All wires that end on one pin are connected by the pin.
        for point in found[1:]:
            nodes.unite(found[0], point)
    return nodes, ordered, touched


def write_spef(design: LayoutNetlist, parasitics: dict[str, Parasitics]) -> str:
    """Return the SPEF file of the nets."""
    lines = [
        '*SPEF "IEEE 1481-1998"',
        f'*DESIGN "{design.top}"',
        '*DATE "none"',
        '*VENDOR "Systola"',
        '*PROGRAM "synth.layout"',
        '*VERSION "1"',
        '*DESIGN_FLOW "PIN_CAP NONE"',
        "*DIVIDER /",
        "*DELIMITER :",
        "*BUS_DELIMITER [ ]",
        "*T_UNIT 1 PS",
        "*C_UNIT 1 FF",
        "*R_UNIT 1 OHM",
        "*L_UNIT 1 HENRY",
        "",
        "*PORTS",
        *(f"{port} {way[0].upper()}" for port, (way, _) in design.ports.items()),
        "",
    ]
    for net, found in parasitics.items():
        lines += _net_lines(design, net, found)
    return "\n".join([*lines, ""])


def _net_lines(design: LayoutNetlist, net: str, found: Parasitics) -> list[str]:
    """Return the SPEF lines of one net."""
    names: dict[int, str] = {}
    connections: list[str] = []
    shorts: list[tuple[str, str]] = []
    for (owner, pin), node in found.pins.items():
        name = pin if owner == "PIN" else f"{owner}:{pin}"
        # The direction of a port is that of the design, the direction of a pin that of the cell.
        way = design.ports[pin][0][0].upper() if owner == "PIN" else ""
        way = way or ("O" if design.drives(owner, pin) else "I")
        connections.append(f"*{'P' if owner == 'PIN' else 'I'} {name} {way}")
        if node in names:
            shorts.append((names[node], name))
        names.setdefault(node, name)

    def name_of(node: int) -> str:
        return names.setdefault(node, f"{net}:{node}")

    capacitances = [
        f"{index} {name_of(node)} {value:.6g}"
        for index, (node, value) in enumerate(found.capacitance_ff.items(), 1)
    ]
    resistances = [(name_of(a), name_of(b), ohm) for a, b, ohm in found.resistances]
    resistances += [(a, b, SHORT_OHM) for a, b in shorts]
    return [
        f"*D_NET {net} {found.total_ff:.6g}",
        "*CONN",
        *connections,
        "*CAP",
        *capacitances,
        "*RES",
        *(f"{index} {a} {b} {ohm:.6g}" for index, (a, b, ohm) in enumerate(resistances, 1)),
        "*END",
        "",
    ]


def touching(shapes: list[tuple[str, Box]], points: list[Point], reach: int) -> list[Point]:
    """Return the points that are at most `reach` nm from a pin."""
    return [
        (layer, x, y)
        for layer, x, y in points
        if any(
            layer == on and x0 - reach <= x <= x1 + reach and y0 - reach <= y <= y1 + reach
            for on, (x0, y0, x1, y1) in shapes
        )
    ]


def _between(start: Point, end: Point, points: list[Point]) -> list[Point]:
    """Return the points inside a wire, in the order from its start to its end."""
    (x0, x1), (y0, y1) = sorted((start[1], end[1])), sorted((start[2], end[2]))
    inside = [
        point
        for point in points
        if point[0] == start[0]
        and x0 <= point[1] <= x1
        and y0 <= point[2] <= y1
        and point not in (start, end)
    ]
    return sorted(inside, key=lambda p: abs(p[1] - start[1]) + abs(p[2] - start[2]))


def _check_connected(found: Parasitics, net: str) -> None:
    """Check that resistances connect all pins."""
    neighbours: dict[int, list[int]] = {}
    for one, two, _ in found.resistances:
        neighbours.setdefault(one, []).append(two)
        neighbours.setdefault(two, []).append(one)
    first = next(iter(found.pins.values()))
    reached, open_ = {first}, [first]
    while open_:
        for node in neighbours.get(open_.pop(), []):
            if node not in reached:
                reached.add(node)
                open_.append(node)
    lost = [pin for pin, node in found.pins.items() if node not in reached]
    if lost:
        raise UserError(f"the router must connect {' '.join(lost[0])} to net {net}")
