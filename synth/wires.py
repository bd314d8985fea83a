"""Wire loads for timing: the library's default, and a model by fan-out and placement area.

OpenSTA applies the library's default wire load, if it has one; that of NanGate45 is 1.7 um for the
first load of a net. Placed netlists have longer wires, so `WIRES=1` measures a second clock with
the model of this module: a net with `n` loads has the length ``n * PITCHES * pitch``. One pitch is
the side of a square with the area that one cell takes in a placement.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hdl.errors import UserError
from synth.debian import osu018
from synth.ideal_cells import liberty_header
from synth.layout.lef import read_layers
from synth.liberty import Library
from synth.liberty_files import without_comments
from synth.mapped_design import Netlist

PITCHES = 5.9
"""Length of wire per load, in cell pitches."""

PITCHES_SOURCE = "calibrated on layouts in OSU018, synth.layout.calibration"
"""Source of `PITCHES`."""

UTILISATION = 0.7
"""Share of the placement area that cells occupy."""

PLAUSIBLE_FF_PER_UM = (0.05, 0.5)
"""Range of a wire's capacitance in any CMOS process; a library outside it states no real wires."""

NOMINAL = (0.18, 1.0)
"""Capacitance in fF/um and resistance in ohm/um for a library without usable wires."""

MODEL = "placed_wires"
"""Name of the wire load and of its library in OpenSTA."""


@dataclass(frozen=True, kw_only=True)
class WireLoad:
    """A wire load whose length grows linearly with the number of loads.

    Parameters
    ----------
    name : str
        Name of the wire load.
    um_per_load : float
        Length for one load in um.
    ff_per_um, ohm_per_um : float
        Capacitance and resistance of one um.
    source : str
        Source of the capacitance and the resistance.
    """

    name: str
    um_per_load: float
    ff_per_um: float
    ohm_per_um: float
    source: str

    @cached_property
    def title(self) -> str:
        """The wire load in words."""
        return (
            f"{self.name}, {self.um_per_load:.3g} um per load, "
            f"{self.ff_per_um:.3g} fF/um, {self.ohm_per_um:.3g} ohm/um"
        )

    def write(self, directory: Path) -> Path:
        """Write the wire load as a liberty file for OpenSTA, and return its path."""
        path = directory / f"{self.name}.lib"
        lines = [
            *liberty_header(self.name),
            f'  wire_load ("{self.name}") {{',
            f"    capacitance : {self.ff_per_um:.6g};",
            f"    resistance : {self.ohm_per_um / 1e3:.6g};",
            f"    slope : {self.um_per_load:.6g};",
            f"    fanout_length (1, {self.um_per_load:.6g});\n  }}\n}}\n",
        ]
        path.write_text("\n".join(lines))
        return path


def default_wire_load(library: Library) -> WireLoad | None:
    """Return the wire load that OpenSTA applies to a library by default; None if there is none.

    Raises
    ------
    UserError
        If the library's default wire load is not defined.
    """
    text = without_comments(library.path.read_text(encoding="latin-1"))
    default = re.search(r'\bdefault_wire_load\s*:\s*"?([^";\n]+?)"?\s*;', text)
    if not default:
        return None
    name = re.escape(default[1])
    group = re.search(rf'\bwire_load\s*\(\s*"?{name}"?\s*\)\s*\{{([^}}]*)\}}', text)
    if not group:
        raise UserError(f"LIBERTY must define its default_wire_load, {default[1]}")
    first = re.search(r"\bfanout_length\s*\(\s*1\s*,\s*([-+.\deE]+)", group[1])
    slope = _number(group[1], "slope")
    ohm = {"ohm": 1.0, "kohm": 1e3}
    unit = re.search(r'pulling_resistance_unit\s*:\s*"?([\d.]*)\s*(k?ohm)', text)
    scale = float(unit[1] or 1) * ohm[unit[2]] if unit else 1e3
    return WireLoad(
        name=default[1],
        um_per_load=float(first[1]) if first else slope,
        ff_per_um=_number(group[1], "capacitance") * library.capacitance_unit_ff,
        ohm_per_um=_number(group[1], "resistance") * scale,
        source=f"wire_load {default[1]} of {library.name}",
    )


def placed_wire_load(netlist: Netlist, *, pitches: float = PITCHES) -> WireLoad:
    """Return the wire load of a netlist by the area that its cells take in a placement.

    Parameters
    ----------
    netlist : Netlist
        The mapped design.
    pitches : float
        Length per load in cell pitches.

    Raises
    ------
    UserError
        If the netlist has no cells, and therefore no placement.
    """
    if not netlist.cells:
        raise UserError(f"WIRES=1 needs a netlist with cells, but {netlist.top} has none")
    pitch = (netlist.area_um2 / UTILISATION / netlist.cells) ** 0.5
    return replace(_wire(netlist.library), name=MODEL, um_per_load=pitches * pitch)


def _wire(library: Library) -> WireLoad:
    """Return a library's capacitance and resistance of one um, and their source."""
    own = default_wire_load(library)
    low, high = PLAUSIBLE_FF_PER_UM
    if own and low <= own.ff_per_um <= high:
        return own
    liberty = osu018(fetch=False)
    if liberty and library.name == liberty.stem:
        lef = liberty.with_suffix(".lef")
        wires = [layer for layer in read_layers(lef) if layer.name in ("metal2", "metal3")]
        return WireLoad(
            name=MODEL,
            um_per_load=0.0,
            ff_per_um=sum(layer.ff_per_um for layer in wires) / len(wires),
            ohm_per_um=sum(layer.ohm_per_um for layer in wires) / len(wires),
            source=f"mean of metal2 and metal3 in {lef.name}",
        )
    ff_per_um, ohm_per_um = NOMINAL
    return WireLoad(
        name=MODEL,
        um_per_load=0.0,
        ff_per_um=ff_per_um,
        ohm_per_um=ohm_per_um,
        source=f"nominal, because {library.name} states no wire of {low:g} to {high:g} fF/um",
    )


def _number(group: str, attribute: str) -> float:
    """Return a number of a liberty group, 0 if absent."""
    found = re.search(rf"\b{attribute}\s*:\s*([-+.\deE]+)", group)
    return float(found[1]) if found else 0.0
