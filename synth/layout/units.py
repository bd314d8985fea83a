"""Layout of a unit of the catalog: emission, mapping, placement and routing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hdl.catalog import entry_named
from hdl.digest import verilog_digest
from hdl.emitted import emit_unit
from hdl.entry import Entry
from synth.asic import RECIPES, elaborate, map_to_cells, tool_versions
from synth.layout.flow import CELL_LIMIT, Layout, lay_out
from synth.layout.lef import Lef
from synth.liberty import Library
from synth.synthesis import measure_design

DENSITY = 0.7
"""Default share of the core for cells."""


def named_unit(text: str) -> tuple[Entry, str]:
    """Return the entry and the preset of a unit that is written ``top:preset`` or ``top``.

    Raises
    ------
    UserError
        If the unit or the preset does not exist.
    """
    top, _, preset = text.partition(":")
    entry = entry_named(top)
    return entry, entry.named(preset or entry.default)[0]


def lay_out_unit(
    entry: Entry,
    dimensions: str | Any,
    home: Path,
    *,
    library: Library,
    lef: Lef,
    density: float = DENSITY,
    period_ps: float | None = None,
    limit: int = CELL_LIMIT,
    progress: Callable[[str], None] = lambda _: None,
) -> Layout:
    """Emit, map, place and route a unit, and write ``layout.json``.

    Parameters
    ----------
    entry : Entry
        The unit.
    dimensions : str or parameter object
        A preset's name, or a parameter object of the unit.
    home : Path
        ``build/<top>/<preset>``; ``layout/`` below contains the files.
    library : Library
        The cells.
    lef : Lef
        Geometry of the cells and layers.
    density : float
        Share of the core's area that the cells may take.
    period_ps : float, optional
        The netlist that ``synth`` selects with this period; the delay-optimised one if absent.
    limit : int, optional
        Maximum number of cells.
    progress : Callable[[str], None], optional
        Called with a description of each step.

    Raises
    ------
    UserError
        By `lay_out`, or if the period is not positive.
    """
    directory = home / "layout"
    verilog = emit_unit(entry, dimensions, sources=True).verilog
    if period_ps is None:
        progress("mapping")
        flat = elaborate(verilog, entry.top, directory / "synth" / library.name)
        netlist = map_to_cells(flat, library, recipe=RECIPES[-1])
    else:
        netlist = measure_design(
            verilog,
            entry.top,
            library,
            directory,
            period_ps=period_ps,
            form="flat",
            progress=progress,
        ).headline.netlist
    facts = {
        "top": entry.top,
        "preset": entry.named(dimensions)[0],
        "verilog_digest": verilog_digest(verilog),
        "liberty": library.name,
        "liberty_digest": library.digest,
        "lef": lef.path.name,
        "recipe": netlist.recipe,
        "period_ps": period_ps,
        "tools": tool_versions(),
    }
    return lay_out(
        netlist, lef, directory, density=density, facts=facts, limit=limit, progress=progress
    )
