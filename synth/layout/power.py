"""Power rails and straps of a placed design.

Filler cells close the gaps of the rows, so that the rails of neighbouring cells abut along the
whole row. Vertical straps on the highest layer cross all rows, power and ground in turn, and a
stack of vias connects each strap to each rail of its net.
"""

from dataclasses import dataclass
from itertools import pairwise

from hdl.errors import UserError
from synth.layout.lef import NM, Layer, Lef, Macro
from synth.layout.netlist import LayoutNetlist
from synth.layout.placement import Place, Placement

STRAP_DISTANCE = 50_000
"""Maximum distance in nm between neighbouring straps, which are of different nets."""

STRAP_WIDTHS = 4
"""Width of a strap, in widths of a wire on its layer."""

Point = tuple[int, int]
"""Position in nm."""


@dataclass(frozen=True, kw_only=True)
class PowerWire:
    """A wire of a power net or, with `via`, a via at its start; width and ends in nm."""

    layer: str
    width: int
    start: Point
    end: Point
    via: str = ""

    @property
    def text(self) -> str:
        """The wire in a DEF file."""
        (x0, y0), (x1, y1) = self.start, self.end
        return f"{self.layer} {self.width} ( {x0} {y0} ) {self.via or f'( {x1} {y1} )'}"


@dataclass(frozen=True, kw_only=True)
class PowerNet:
    """A power net.

    Parameters
    ----------
    name, use : str
        Its name, and its use ``POWER`` or ``GROUND``.
    straps : tuple[PowerWire, ...]
        Wires from the lower to the upper edge of the die.
    stacks : tuple[PowerWire, ...]
        Vias between straps and rails, and a short wire on each layer between two vias, which gives
        the layer its minimum area.
    """

    name: str
    use: str
    straps: tuple[PowerWire, ...]
    stacks: tuple[PowerWire, ...]


@dataclass(frozen=True, kw_only=True)
class PowerGrid:
    """The power nets of a die, and the fillers that complete the rails.

    Parameters
    ----------
    filler : str
        The library's filler cell.
    fillers : dict[str, Place]
        Places of the fillers.
    nets : tuple[PowerNet, ...]
        Power and ground.
    """

    filler: str
    fillers: dict[str, Place]
    nets: tuple[PowerNet, ...]

    def special_nets(self) -> list[str]:
        """Return the lines of the power nets in a DEF file."""
        lines = [f"SPECIALNETS {len(self.nets)} ;"]
        for net in self.nets:
            lines.append(f"- {net.name} ( * {net.name} ) + USE {net.use}")
            for index, wire in enumerate((*net.straps, *net.stacks)):
                lines.append(f"  {'NEW' if index else '+ ROUTED'} {wire.text}")
            lines[-1] += " ;"
        return [*lines, "END SPECIALNETS"]


def plan_power(
    design: LayoutNetlist,
    placement: Placement,
    origin: Point,
    die: tuple[int, int, int, int],
    lef: Lef,
) -> PowerGrid:
    """Return the power grid of a die in nm, whose core has its lower left corner at `origin`.

    Raises
    ------
    UserError
        If the LEF file has no filler cell of one site.
    """
    filler = _filler(lef)
    top = max(index for index, layer in enumerate(lef.layers) if layer.direction == "VERTICAL")
    layers = lef.layers[: top + 1]
    pitch = round(layers[-1].pitch * NM)
    count = max(2, -(-placement.width // STRAP_DISTANCE))
    centers = [
        round((origin[0] + (2 * index + 1) * placement.width / (2 * count)) / pitch) * pitch
        for index in range(count)
    ]
    # The lower rail of a row, and in the end the upper rail of the last row.
    lower, upper = sorted(filler.pins, key=lambda name: filler.pins[name].center[1])
    rails = [
        (origin[1] + row * placement.row_height, upper if flipped else lower)
        for row, flipped in enumerate([*placement.flipped, not placement.flipped[-1]])
    ]
    nets: list[PowerNet] = []
    for first, use in enumerate(("POWER", "GROUND")):
        name, own = lef.rail(use), centers[first::2]
        crossings = [(x, y) for x in own for y, rail in rails if rail == name]
        nets.append(
            PowerNet(
                name=name,
                use=use,
                straps=tuple(_strap(layers[-1], x, die) for x in own),
                stacks=tuple(wire for place in crossings for wire in _stack(layers, place, lef)),
            )
        )
    return PowerGrid(filler=filler.name, fillers=_fillers(design, placement, lef), nets=tuple(nets))


def _filler(lef: Lef) -> Macro:
    """Return the filler cell that is as wide as one site."""
    for macro in lef.macros.values():
        uses = sorted(pin.use for pin in macro.pins.values())
        if macro.width == lef.site and uses == ["GROUND", "POWER"]:
            return macro
    raise UserError(
        f"LEF must define a filler cell with a pin for power, a pin for ground and a width of "
        f"{lef.site / NM:g} um, that of a site, but '{lef.path}' does not"
    )


def _fillers(design: LayoutNetlist, placement: Placement, lef: Lef) -> dict[str, Place]:
    """Return the places of the fillers that close the gaps of all rows."""
    rows: list[list[tuple[int, int]]] = [[(0, 0)] for _ in range(placement.rows)]
    for name, cell in placement.cells.items():
        rows[cell.row].append((cell.x, cell.x + lef.macro(design.cells[name].kind).width))
    return {
        f"filler_{row}_{x // lef.site}": Place(
            x=x,
            y=row * placement.row_height,
            orientation="FS" if placement.flipped[row] else "N",
            row=row,
        )
        for row, spans in enumerate(rows)
        for (_, left), (right, _) in pairwise([*sorted(spans), (placement.width, 0)])
        for x in range(left, right, lef.site)
    }


def _strap(layer: Layer, x: int, die: tuple[int, int, int, int]) -> PowerWire:
    """Return a vertical strap across the die."""
    width = round(layer.width * NM)
    return PowerWire(
        layer=layer.name, width=STRAP_WIDTHS * width, start=(x, die[1]), end=(x, die[3])
    )


def _stack(layers: tuple[Layer, ...], place: Point, lef: Lef) -> list[PowerWire]:
    """Return the vias from a rail to a strap, and the wires between the vias."""
    x, y = place
    wires: list[PowerWire] = []
    for low, high in pairwise(layers):
        via = next(name for name, ends in lef.vias.items() if ends == (low.name, high.name))
        width = round(low.width * NM)
        if low is not layers[0]:
            half = round(low.pitch * NM / 2)
            across, up = (half, 0) if low.direction == "HORIZONTAL" else (0, half)
            start, end = (x - across, y - up), (x + across, y + up)
            wires.append(PowerWire(layer=low.name, width=width, start=start, end=end))
        wires.append(PowerWire(layer=low.name, width=width, start=place, end=place, via=via))
    return wires
