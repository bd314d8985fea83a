"""DRC and LVS of a routed design, and its GDS, by Magic and netgen.

Magic reads the abstract views of the cells in the LEF file, so that all three cover the pins of the
cells and the wires, but no transistor.
"""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdl.errors import UserError
from hdl.paths import ROOT, replace_text
from synth.debian import LIBRARIES, Program
from synth.layout.checker import Checker
from synth.layout.lef import Lef
from synth.layout.netlist import LayoutNetlist
from synth.layout.power import PowerGrid

LEF = "osu018_stdcells.lef"
"""The cells whose layers Magic's technology has."""


@dataclass(frozen=True, kw_only=True)
class Checks:
    """Results of DRC and LVS.

    Parameters
    ----------
    drc : dict[str, int]
        Number of places that violate each rule.
    lvs : str
        Result of the comparison in netgen's words.
    lvs_differences : int
        Nets, cells and pins of both netlists that have no counterpart.
    """

    drc: dict[str, int]
    lvs: str
    lvs_differences: int

    @property
    def drc_errors(self) -> int:
        """Number of places that violate a rule."""
        return sum(self.drc.values())

    @property
    def matches(self) -> bool:
        """Whether the routed design has the connections of the netlist."""
        return bool(re.match(r"Circuits match", self.lvs)) and not self.lvs_differences

    def figures(self) -> dict[str, Any]:
        """Return the entries of ``layout.json``."""
        return asdict(self) | {"drc_errors": self.drc_errors, "lvs_matches": self.matches}

    def write(self, path: Path) -> None:
        """Write the results as JSON."""
        replace_text(path, json.dumps(asdict(self), indent=1) + "\n")


def read_checks(path: Path) -> Checks:
    """Return the results that `Checks.write` wrote."""
    return Checks(**json.loads(path.read_text()))


def check_inputs(checker: Checker, design: LayoutNetlist, power: PowerGrid, lef: Lef) -> list[str]:
    """Return the inputs of a check besides ``<top>.def``: both scripts, and the netlist.

    Raises
    ------
    UserError
        If the LEF file is not that of Magic's technology.
    """
    if lef.path.name != LEF:
        raise UserError(f"DRC, LVS and GDS need the cells of {LEF}, not '{lef.path.name}'")
    values = {
        "magic": str(checker.magic / LIBRARIES),
        "machine": Path(LIBRARIES).name,
        "netgen": str(checker.netgen / "usr/lib"),
        "technology": str(checker.technology.with_suffix("")),
        "lef": str(lef.path),
        "top": design.top,
        "filler": power.filler,
    }
    texts = [(ROOT / "synth" / "scripts" / f"{name}.tcl").read_text() for name in _PROGRAMS]
    for key, value in values.items():
        texts = [text.replace(f"{{{key}}}", value) for text in texts]
    return [*texts, write_spice(design, power, lef)]


def check(checker: Checker, inputs: list[str], top: str, directory: Path) -> Checks:
    """Check ``<top>.def`` in a directory, and write ``<top>.gds``.

    Parameters
    ----------
    checker : Checker
        The programs.
    inputs : list[str]
        The result of `check_inputs`.
    top : str
        Name of the design.
    directory : Path
        Folder of the layout; ``check/`` below contains the programs' files.

    Raises
    ------
    UserError
        If a program stops.
    """
    work = directory / "check"
    work.mkdir(exist_ok=True)
    replace_text(work / "routed.def", (directory / f"{top}.def").read_text())
    magic, netgen, netlist = inputs
    replace_text(work / "netlist.spice", netlist)
    report = _run(checker.shell, "magic", magic, work)
    found = re.findall(r"^@@ drc (\d+) (.*)$", report, flags=re.M)
    compared = _run(checker.shell, "netgen", netgen, work)
    result = re.findall(r"^Result: (.*)$", compared, flags=re.M)
    if not result:
        raise UserError(f"netgen must compare {top}: it ended without a result, see '{work}'")
    (work / f"{top}.gds").replace(directory / f"{top}.gds")
    return Checks(
        drc={rule: int(count) for count, rule in found},
        lvs=result[-1],
        lvs_differences=_differences(work / "lvs.json", top)
        + len(_used(netlist, top) - _used((work / "extracted.spice").read_text(), top)),
    )


def write_spice(design: LayoutNetlist, power: PowerGrid, lef: Lef) -> str:
    """Return the netlist in SPICE's format, with power, ground and empty cells."""
    rails = {net.name: net.name for net in power.nets}
    lines = [f"* {design.top}"]
    for kind in sorted({cell.kind for cell in design.cells.values()}):
        lines += [f".subckt {kind} {' '.join(lef.macro(kind).pins)}", ".ends"]
    lines.append(f".subckt {design.top} {' '.join([*design.ports, *rails])}")
    for cell in design.cells.values():
        nets = cell.nets | rails
        pins = " ".join(nets[pin] for pin in lef.macro(cell.kind).pins)
        lines.append(f"X{cell.name} {pins} {cell.kind}")
    return "\n".join([*lines, ".ends", ""])


_PROGRAMS = "magic", "netgen"


def _run(shell: Program, name: str, script: str, directory: Path) -> str:
    """Run the script of a program, and return what it printed."""
    (directory / f"{name}.tcl").write_text(script)
    result = shell.run(f"{name}.tcl", directory=directory)
    report = result.stdout + result.stderr
    (directory / f"{name}.log").write_text(report)
    if result.returncode or (name == "magic" and "@@ end" not in result.stdout):
        reason = (result.stderr.strip().splitlines() or [f"it stopped with {result.returncode}"])[0]
        raise UserError(f"{name} must check the layout: {reason}")
    return report


def _differences(path: Path, top: str) -> int:
    """Return the number of nets, cells and pins without a counterpart."""
    circuits = json.loads(path.read_text())
    (circuit,) = [one for one in circuits if top in one["name"]]
    count = 0
    for kind in ("badnets", "badelements"):
        for groups in circuit.get(kind, []):
            count += sum(len(side) for side in groups)
    first, second = circuit.get("pins", [[], []])
    return count + sum(one != two for one, two in zip(first, second, strict=False))


def _used(netlist: str, top: str) -> set[str]:
    """Return the ports of a design that a cell uses: netgen accepts an open port."""
    lines = netlist.replace("\n+", " ").splitlines()
    (start,) = [index for index, line in enumerate(lines) if line.startswith(f".subckt {top} ")]
    used = {net for line in lines[start:] if line.startswith("X") for net in line.split()[1:-1]}
    return used & set(lines[start].split()[2:])
