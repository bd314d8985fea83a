"""A buffered clock tree over placed flip-flops.

The sinks are divided into groups of at most `FANOUT`, by halves along the longer side of their
bounding box. Each group gets a buffer at its centre. The buffers are the sinks of the next level,
until one buffer is left, which the port `clk` drives. All paths have the same number of buffers.
"""

from collections.abc import Sequence

from hdl.errors import UserError
from synth.layout.lef import Lef
from synth.layout.netlist import Instance, LayoutNetlist
from synth.layout.placement import Placement, add_cells
from synth.liberty import Cell, Library

FANOUT = 16
"""Maximum number of sinks of a clock buffer."""

Sink = tuple[str, str, int, int]
"""Cell, pin, and position in nm."""


def clock_buffer(library: Library, lef: Lef) -> Cell:
    """Return the smallest clock buffer, or the smallest buffer of a library without one.

    Raises
    ------
    UserError
        If the library has no buffer.
    """
    buffers = [
        cell
        for cell in library.cells.values()
        if cell.truth_table == 0b10 and len(cell.inputs) == 1 and lef.has(cell.name)
    ]
    clocks = [cell for cell in buffers if "clk" in cell.name.lower()]
    found = min(clocks or buffers, key=lambda cell: cell.area, default=None)
    if not found:
        raise UserError(f"the library {library.name} must contain a buffer for the clock tree")
    return found


def build_clock_tree(design: LayoutNetlist, placement: Placement, lef: Lef) -> int:
    """Insert the clock tree into the netlist and the placement; return the number of levels."""
    sinks: list[Sink] = []
    for name, pin in design.clock_pins():
        cell, macro = placement.cells[name], lef.macro(design.cells[name].kind)
        sinks.append((name, pin, cell.x + macro.width // 2, cell.y + macro.height // 2))
    if not sinks:
        return 0
    buffer = clock_buffer(design.library, lef)
    (source,), (output,) = buffer.inputs, buffer.outputs
    added: list[tuple[str, int, int]] = []
    level = 0
    while level == 0 or len(sinks) > 1:
        buffers: list[Sink] = []
        for index, group in enumerate(_groups(sinks)):
            name = f"clock_buffer_{level}_{index}"
            net = f"clock_{level}_{index}"
            for cell, pin, _, _ in group:
                design.cells[cell].nets[pin] = net
            design.cells[name] = Instance(
                name=name, kind=buffer.name, nets={source.name: "", output.name: net}
            )
            x = sum(sink[2] for sink in group) // len(group)
            y = sum(sink[3] for sink in group) // len(group)
            buffers.append((name, source.name, x, y))
            added.append((name, x, y))
        sinks = buffers
        level += 1
    design.cells[sinks[0][0]].nets[source.name] = design.ports["clk"][1]
    kinds = {name: cell.kind for name, cell in design.cells.items()}
    add_cells(placement, kinds, added, lef)
    return level


def _groups(sinks: Sequence[Sink]) -> list[Sequence[Sink]]:
    """Divide sinks into groups of at most `FANOUT` neighbours."""
    if len(sinks) <= FANOUT:
        return [sinks]
    across, up = [sink[2] for sink in sinks], [sink[3] for sink in sinks]
    axis = 2 if max(across) - min(across) >= max(up) - min(up) else 3
    ordered = sorted(sinks, key=lambda sink: (sink[axis], sink[0]))
    middle = len(ordered) // 2
    return [*_groups(ordered[:middle]), *_groups(ordered[middle:])]
