"""Placement of cells in rows by graywolf, and legal positions after cells are added.

Graywolf packs cells without gaps. The cells are therefore widened by the reciprocal of the density,
and each cell is put at the left of its slot; the rest is space for the clock tree and for wires.
All lengths are integers in nm.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hdl.errors import UserError
from synth.layout.lef import Lef
from synth.layout.netlist import LayoutNetlist
from synth.layout.tools import Placer

GRAYWOLF_NM = 10
"""Graywolf's unit in nm."""

ORIENTATIONS = ("N", "FS", "FN", "S")
"""Orientation in DEF of graywolf's orientations 0 to 3."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Position of the lower left corner of a cell in nm, its orientation and its row."""

    x: int
    y: int
    orientation: str
    row: int


@dataclass(kw_only=True)
class Placement:
    """The places of all cells and ports.

    Parameters
    ----------
    width, rows : int
        Width of the core in nm, and number of rows.
    row_height : int
        Height of a row in nm.
    cells : dict[str, Place]
        Places of the cells.
    ports : dict[str, tuple[int, int]]
        Wanted position of each port, outside the core.
    flipped : list[bool]
        Whether the cells of each row are flipped.
    """

    width: int
    rows: int
    row_height: int
    cells: dict[str, Place]
    ports: dict[str, tuple[int, int]]
    flipped: list[bool]

    @property
    def height(self) -> int:
        """Height of the core in nm."""
        return self.rows * self.row_height


def write_cells(design: LayoutNetlist, lef: Lef, density: float, directory: Path) -> Path:
    """Write graywolf's input file of the cells and ports, and return its path.

    Names of pins and nets have a prefix, because a port such as `layer` is a word of the format.
    """
    lines: list[str] = []
    for index, cell in enumerate(design.cells.values()):
        macro = lef.macro(cell.kind)
        width = _slot(macro.width, lef.site, density) // GRAYWOLF_NM
        height = macro.height // GRAYWOLF_NM
        left, bottom = -(width // 2), -(height // 2)
        lines += [
            f"cell {index} {cell.name}",
            f"left {left} right {left + width} bottom {bottom} top {bottom + height}",
        ]
        for pin, net in cell.nets.items():
            x, y = macro.pin(pin).center
            place = f"{x // GRAYWOLF_NM + left} {y // GRAYWOLF_NM + bottom}"
            lines.append(f"pin name p_{pin} signal n_{net} layer 1 {place}")
    for index, (port, (_, net)) in enumerate(design.ports.items()):
        lines += [
            f"pad {index + 1} name twpin_{port}",
            "corners 4 -40 -50 -40 50 40 50 40 -50",
            f"pin name p_{port} signal n_{net} layer 1 0 0",
            "",
        ]
    path = directory / f"{design.top}.cel"
    path.write_text("\n".join(lines) + "\n")
    return path


def place(design: LayoutNetlist, placer: Placer, directory: Path) -> Path:
    """Run graywolf on the files of `write_cells`, and return its file of places.

    Raises
    ------
    UserError
        If graywolf fails.
    """
    parameters = re.sub(r"(chip\.aspect\.ratio *: *)\S+", r"\g<1>1.0", placer.parameters)
    (directory / f"{design.top}.par").write_text(parameters)
    result = placer.program.run("-n", design.top, directory=directory)
    (directory / "graywolf.log").write_text(result.stdout + result.stderr)
    places = directory / f"{design.top}.pl1"
    if result.returncode or not places.exists():
        log = directory / "graywolf.log"
        raise UserError(f"graywolf must place {design.top}: it stopped, see '{log}'")
    return places


def read_places(design: LayoutNetlist, lef: Lef, places: Path) -> Placement:
    """Return the placement of graywolf, with the lower left corner of the core at 0, 0.

    Raises
    ------
    UserError
        If graywolf did not place a cell or a port.
    """
    found: dict[str, tuple[list[int], int, int]] = {}
    for line in places.read_text().splitlines():
        name, *numbers = line.split()
        *corners, orientation, row = map(int, numbers)
        found[name] = [corner * GRAYWOLF_NM for corner in corners], orientation, row
    wanted = [*design.cells, *(f"twpin_{port}" for port in design.ports)]
    lost = [name for name in wanted if name not in found]
    if lost:
        raise UserError(f"graywolf must place {lost[0]} of {design.top}, but its file lacks it")
    left = min(found[name][0][0] for name in design.cells)
    bottom = min(found[name][0][1] for name in design.cells)
    height = lef.row_height
    cells: dict[str, Place] = {}
    flips: dict[int, bool] = {}
    for name in design.cells:
        (x0, y0, _, _), orientation, _ = found[name]
        row = (y0 - bottom) // height
        x = round((x0 - left) / lef.site) * lef.site
        text = ORIENTATIONS[orientation]
        flips[row] = text in ("FS", "S")
        cells[name] = Place(x=x, y=row * height, orientation=text, row=row)
    ports = {
        port: ((x0 + x1) // 2 - left, (y0 + y1) // 2 - bottom)
        for port in design.ports
        for x0, y0, x1, y1 in [found[f"twpin_{port}"][0]]
    }
    rows = max(cell.row for cell in cells.values()) + 1
    width = max(found[name][0][2] for name in design.cells) - left
    return Placement(
        width=-(-width // lef.site) * lef.site,
        rows=rows,
        row_height=height,
        cells=cells,
        ports=ports,
        flipped=[flips.get(row, row % 2 == 0) for row in range(rows)],
    )


def add_cells(
    placement: Placement, kinds: dict[str, str], added: Sequence[tuple[str, int, int]], lef: Lef
) -> None:
    """Add cells to the rows nearest to their wanted positions, and move cells to legal places.

    Parameters
    ----------
    placement : Placement
        The placement, which is changed.
    kinds : dict[str, str]
        The library's cell of each cell, with the added ones.
    added : Sequence[tuple[str, int, int]]
        Name and wanted centre of each new cell.
    lef : Lef
        Sizes of the cells.

    Raises
    ------
    UserError
        If no row has space.
    """
    widths = {name: lef.macro(kind).width for name, kind in kinds.items()}
    rows: list[list[tuple[int, str]]] = [[] for _ in range(placement.rows)]
    for name, cell in placement.cells.items():
        rows[cell.row].append((cell.x, name))
    free = [placement.width - sum(widths[name] for _, name in row) for row in rows]
    for name, x, y in added:
        fitting = [row for row in range(placement.rows) if free[row] >= widths[name]]
        if not fitting:
            raise UserError(f"DENSITY must be lower: no row has space for clock buffer {name}")
        height = placement.row_height
        row = min(fitting, key=lambda row: abs(row * height + height // 2 - y))
        free[row] -= widths[name]
        left = round((x - widths[name] / 2) / lef.site) * lef.site
        rows[row].append((left, name))
        flip = "FS" if placement.flipped[row] else "N"
        placement.cells[name] = Place(x=left, y=row * height, orientation=flip, row=row)
    for row in rows:
        _legalise(placement, row, widths)


def _legalise(placement: Placement, row: list[tuple[int, str]], widths: dict[str, int]) -> None:
    """Move the cells of one row to whole places inside the core without overlaps."""
    row.sort()
    end = 0
    lefts: list[int] = []
    for x, name in row:
        lefts.append(max(x, end))
        end = lefts[-1] + widths[name]
    end = placement.width
    for index in range(len(row) - 1, -1, -1):
        name = row[index][1]
        end = min(lefts[index], end - widths[name])
        cell = placement.cells[name]
        placement.cells[name] = Place(x=end, y=cell.y, orientation=cell.orientation, row=cell.row)


def _slot(width: int, site: int, density: float) -> int:
    """Return the width of a cell and the free space that belongs to it, in whole sites."""
    return math.ceil(width / density / site - 1e-9) * site
