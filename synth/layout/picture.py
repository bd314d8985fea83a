"""Pictures of dies: cells in the colours of their source files, wires, straps and clock tree."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from synth.layout.design_exchange import Floorplan, Route, port_box
from synth.layout.lef import NM, Lef
from synth.layout.netlist import LayoutNetlist
from synth.layout.placement import Placement
from synth.layout.power import PowerGrid
from synth.svg import INK, MUTED, SHEET

COLORS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#b07aa1",
    "#edc948",
    "#76b7b2",
    "#e15759",
    "#9c755f",
)
"""Colours of source files, the one with the largest area first."""

OTHERS, FILLER, CLOCK, POWER, GROUND = "#bab0ac", "#f1efec", "#111111", "#c23b22", "#2b5c8a"

LAYERS = ("#7d8b99", "#3d6fb4", "#b0413e", "#3a8a4d", "#8a5ca8", "#a07a2c")
"""Colours of wires, the lowest layer first."""

INCHES, LEGEND = 6.4, 1.0
"""Width of a picture, and height of its legend."""

DOTS = 200
"""Resolution of a picture per inch."""

COLUMNS, TILE, FONT = 3, 3.1, 9
"""Dies in a row of `draw_dies`, width of one in inches, and size of its text in points."""

NAMED = 4
"""Source files of a die that have colours of their own in `draw_dies`."""


@dataclass(frozen=True, kw_only=True)
class Die:
    """What a picture shows: netlist, places, power grid and routes."""

    design: LayoutNetlist
    placement: Placement
    plan: Floorplan
    power: PowerGrid
    routes: dict[str, Route]
    lef: Lef


def owners(design: LayoutNetlist) -> dict[str, str]:
    """Return the source file of each cell: of the nearest register downstream.

    Mapping to cells keeps the source file of registers only. Of two registers at the same distance,
    the file with more registers counts. A cell from which no register is reached, other than
    through ports, has the file that contains most registers.
    """
    registers = {cell.name: cell.source for cell in design.cells.values() if cell.source}
    if not registers:
        return dict.fromkeys(design.cells, design.top)
    counts = Counter(registers.values())
    drivers = {
        net: owner
        for net, pins in design.pins().items()
        for owner, pin in pins
        if owner != "PIN" and design.drives(owner, pin)
    }
    found: dict[str, str] = dict(registers)
    ordered = sorted(registers, key=lambda name: (-counts[registers[name]], name))
    waiting = deque(ordered)
    while waiting:
        cell = design.cells[waiting.popleft()]
        for pin, net in sorted(cell.nets.items()):
            driver = drivers.get(net)
            if not design.drives(cell.name, pin) and driver and driver not in found:
                found[driver] = found[cell.name]
                waiting.append(driver)
    most = max(sorted(counts), key=lambda source: counts[source])
    return {name: found.get(name, most) for name in design.cells}


def draw_die(die: Die, path: Path) -> None:
    """Write a picture of a die as PNG: its cells at the left, its wires at the right."""
    left, bottom, right, top = die.plan.die
    height = INCHES / 2 * (top - bottom) / (right - left)
    figure = Figure(figsize=(INCHES, height + LEGEND), dpi=DOTS, facecolor=SHEET)
    below = LEGEND / (height + LEGEND)
    panels = [figure.add_axes((x, below, 0.48, 1 - below - 0.01)) for x in (0.01, 0.51)]
    keys = [_draw_cells(panels[0], die), _draw_wires(panels[1], die)]
    for panel, handles in zip(panels, keys, strict=True):
        _frame(panel, die)
        panel.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0.0, -0.01),
            ncols=2,
            fontsize=7,
            frameon=False,
            handlelength=1.0,
            labelcolor=INK,
        )
    figure.savefig(path, format="png", bbox_inches="tight", metadata={"Software": None})


def draw_dies(dies: Mapping[str, Die]) -> Figure:
    """Return a picture of the cells of several dies by title, and of the wires of the last one.

    Each die fills its place, so that the scales differ. Cells and wires are pixels, text is text.
    """
    tiles = [(title, die, True) for title, die in dies.items()]
    last, die, _ = tiles[-1]
    tiles.append((f"{last}, wires", die, False))
    rows = -(-len(tiles) // COLUMNS)
    size = (COLUMNS * TILE, rows * TILE * 1.45)
    figure = Figure(figsize=size, dpi=DOTS, facecolor=SHEET, layout="constrained")
    places = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for panel, (title, die, cells) in zip(places, tiles, strict=False):
        keys = _draw_cells(panel, die, NAMED) if cells else _draw_wires(panel, die)
        for plotted in (*panel.collections, *panel.patches):
            plotted.set_rasterized(True)
        _frame(panel, die)
        panel.set_anchor("N")
        width, height = die.placement.width / NM, die.placement.height / NM
        count = len(die.design.cells)
        facts = f"{count:,} cells, {width:,.0f} x {height:,.0f} um" if cells else ""
        panel.set_title(title, loc="left", fontsize=FONT + 1, color=INK, pad=16)
        panel.annotate(
            facts,
            (0, 1),
            (0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=FONT,
            color=MUTED,
        )
        for key in keys:
            key.set_label(str(key.get_label()).rpartition("/")[2])
        panel.legend(
            handles=keys,
            loc="upper left",
            bbox_to_anchor=(-0.04, 0.0),
            ncols=1 if cells else 2,
            fontsize=FONT,
            frameon=False,
            handlelength=1.0,
            labelspacing=0.25,
            labelcolor=INK,
        )
    for panel in places[len(tiles) :]:
        panel.set_axis_off()
    return figure


def _frame(panel: Axes, die: Die) -> None:
    """Set the limits of a panel to the die, and plot the edge of the die."""
    left, bottom, right, top = (edge / NM for edge in die.plan.die)
    panel.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    panel.set_axis_off()
    panel.add_patch(_box((left, bottom, right, top), fill=False, edgecolor=INK, linewidth=0.6))


def _draw_cells(panel: Axes, die: Die, named: int = len(COLORS)) -> list[Patch]:
    """Plot cells, fillers and clock buffers; return the keys of their colours.

    The `named` source files with the largest areas have colours of their own.
    """
    owner, area = owners(die.design), Counter[str]()
    boxes: dict[str, list[Rectangle]] = {}
    kinds = {name: cell.kind for name, cell in die.design.cells.items()}
    kinds |= dict.fromkeys(die.power.fillers, die.power.filler)
    for name, place in (die.placement.cells | die.power.fillers).items():
        macro = die.lef.macro(kinds[name])
        x, y = place.x + die.plan.origin[0], place.y + die.plan.origin[1]
        group = owner.get(name, "filler")
        if name.startswith("clock_buffer"):
            group = "clock buffer"
        elif group != "filler":
            area[group] += macro.width
        corners = (x / NM, y / NM, (x + macro.width) / NM, (y + macro.height) / NM)
        boxes.setdefault(group, []).append(_box(corners))
    ordered = [group for group, _ in area.most_common()]
    colors = dict(zip(ordered[:named], COLORS, strict=False))
    labels = {group.removeprefix("hdl/").removesuffix(".py"): colors[group] for group in colors}
    colors |= {"clock buffer": CLOCK, "filler": FILLER}
    for group, shapes in boxes.items():
        color = colors.get(group, OTHERS)
        panel.add_collection(
            PatchCollection(shapes, facecolor=color, edgecolor=SHEET, linewidth=0.15)
        )
    if len(ordered) > named:
        labels[f"{len(ordered) - named} more files"] = OTHERS
    labels |= {"clock buffer": CLOCK, "filler": FILLER}
    return [Patch(facecolor=color, label=label) for label, color in labels.items()]


def _draw_wires(panel: Axes, die: Die) -> list[Patch]:
    """Plot wires, straps and pins; return the keys of their colours."""
    names = [layer.name for layer in die.lef.layers]
    lines: dict[str, list[list[tuple[float, float]]]] = {}
    for route in die.routes.values():
        for (layer, x0, y0), (_, x1, y1) in route.segments:
            lines.setdefault(layer, []).append([(x0 / NM, y0 / NM), (x1 / NM, y1 / NM)])
    colors = {layer: LAYERS[names.index(layer) % len(LAYERS)] for layer in names}
    for layer in sorted(lines, key=names.index):
        panel.add_collection(LineCollection(lines[layer], colors=colors[layer], linewidths=0.25))
    for net in die.power.nets:
        color = POWER if net.use == "POWER" else GROUND
        for strap in net.straps:
            half = strap.width / 2
            corners = (strap.start[0] - half, strap.start[1], strap.end[0] + half, strap.end[1])
            x0, y0, x1, y1 = (edge / NM for edge in corners)
            panel.add_patch(_box((x0, y0, x1, y1), facecolor=color, alpha=0.55, linewidth=0))
    for port in die.design.ports:
        layer, corners = port_box(die.plan, port, die.lef)
        x0, y0, x1, y1 = (edge / NM for edge in corners)
        panel.add_patch(_box((x0, y0, x1, y1), facecolor=INK, linewidth=0))
    keys = {layer: colors[layer] for layer in sorted(lines, key=names.index)}
    keys |= {
        f"{net.name} on {net.straps[0].layer}": POWER if net.use == "POWER" else GROUND
        for net in die.power.nets
    }
    return [Patch(facecolor=color, label=label) for label, color in keys.items()]


def _box(corners: tuple[float, float, float, float], **style: Any) -> Rectangle:
    """Return a rectangle from its corners in um."""
    left, bottom, right, top = corners
    return Rectangle((left, bottom), right - left, top - bottom, **style)
