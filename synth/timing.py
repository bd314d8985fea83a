"""Static timing and power of a mapped netlist with OpenSTA.

Cell delays are those of the library's corner. The wire load is the library's default, if it has
one, or a given one (`synth.wires`). The clock is ideal. Memories are ideal: paths to and from them
are timed, the memory itself takes no time.
"""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hdl.errors import UserError
from hdl.paths import ROOT
from synth.debian import Program, opensta
from synth.ideal_cells import hide_constants, write_ideal_cells
from synth.liberty import Library
from synth.mapped_design import Netlist
from synth.replay import Activity
from synth.wires import WireLoad

DEFAULT_ACTIVITY = 0.2
"""Assumed transitions of a data input per clock cycle without a simulation."""

_CARRIED = (
    f"{DEFAULT_ACTIVITY:g} transitions/cycle on inputs, propagated through the logic",
    f"set_power_activity -input -activity {DEFAULT_ACTIVITY:g} -duty 0.5",
)
"""The default activity as a description and as a command."""

_TOTAL = re.compile(r"^Total\s+(\S+)\s+(\S+)\s+(\S+)\s+\S+", flags=re.M)
"""A power report's last line: internal, switching and leakage power, and their sum."""

RELAXED_PS = 20_000.0
"""Period for path measurements without a requested period; a path may be longer."""

KINDS = ("register_to_register", "input_to_register", "register_to_output", "input_to_output")

MISSING = (
    "OpenSTA is missing, so there is no timing and no power; "
    "'apt-get install opensta' provides it, and 'apt-get download' is tried without root"
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One cell or port of a path.

    Parameters
    ----------
    time_ps, delay_ps : float
        Arrival time at the step's output, and the step's own delay.
    edge : str
        ``rise`` or ``fall``.
    pin : str
        Pin in the netlist.
    cell : str
        Cell of the library, or ``in``, ``out``.
    name : str
        Name of the net in the Amaranth source, if it has one, with its bit.
    source : str
        File and line of that name, or an empty string.
    """

    time_ps: float
    delay_ps: float
    edge: str
    pin: str
    cell: str
    name: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class TimingPath:
    """The longest path of one kind; its length includes setup but no external delay."""

    kind: str
    length_ps: float
    slack_ps: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class Power:
    """Power at a clock period.

    Parameters
    ----------
    period_ps : float
        The clock period.
    dynamic_mw, leakage_mw : float
        Switching power of cells and nets, and leakage power.
    """

    period_ps: float
    dynamic_mw: float
    leakage_mw: float

    @property
    def total_mw(self) -> float:
        """Switching plus leakage power."""
        return self.dynamic_mw + self.leakage_mw

    @property
    def frequency_mhz(self) -> float:
        """The clock's frequency."""
        return 1e6 / self.period_ps

    def at(self, period_ps: float) -> "Power":
        """Return the power at another period, with equal switching energy per cycle."""
        dynamic_mw = self.dynamic_mw * self.period_ps / period_ps
        return replace(self, period_ps=period_ps, dynamic_mw=dynamic_mw)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The results of OpenSTA for a netlist.

    Parameters
    ----------
    version : str
        OpenSTA's version.
    paths : tuple[TimingPath, ...]
        The longest path of each kind that the design has.
    power : Power or None
        Power at one frequency, or None if OpenSTA does not report it.
    activity : str
        Source of the switching activity.
    """

    version: str
    paths: tuple[TimingPath, ...]
    power: Power | None
    activity: str

    @property
    def critical(self) -> TimingPath | None:
        """The longest path of all."""
        return max(self.paths, key=lambda path: path.length_ps, default=None)

    @property
    def fmax_mhz(self) -> float | None:
        """Maximum clock frequency without external delays."""
        return 1e6 / self.critical.length_ps if self.critical else None


def analyse(
    netlist: Netlist,
    *,
    period_ps: float | None = None,
    external: float = 0.0,
    activity: Activity | None = None,
    kinds: Sequence[str] = KINDS,
    wires: WireLoad | None = None,
    program: Program | None = None,
) -> Timing | None:
    """Measure a netlist's paths and power; return None if OpenSTA is not available.

    Parameters
    ----------
    netlist : Netlist
        The mapped design.
    period_ps : float, optional
        Clock period. Without it, power is computed at the maximum frequency.
    external : float
        Share of the period for external delay at each port.
    activity : Activity, optional
        Activity of every pin, from a simulation.
    kinds : Sequence[str]
        Kinds of paths to report; each takes minutes in a large design, and power needs none.
    wires : WireLoad, optional
        Wire load of all nets; the library's default if absent.
    program : Program, optional
        OpenSTA; found or fetched by default.

    Raises
    ------
    UserError
        If OpenSTA rejects the netlist or the library.
    """
    program = program or opensta()
    if not program or not netlist.library.timed:
        return None
    timing = _run(program, netlist, period_ps or RELAXED_PS, external, activity, kinds, wires)
    if period_ps is None and timing.critical and timing.power:
        return replace(timing, power=timing.power.at(timing.critical.length_ps))
    return timing


def write_sdc(
    path: Path, ports: set[str], *, period_ps: float, external: float, load_ff: float
) -> None:
    """Write the constraints of a design from ``constraints/systola.sdc``.

    Parameters
    ----------
    path : Path
        The file.
    ports : set[str]
        Names of the design's ports.
    period_ps : float
        Clock period.
    external : float
        Share of the period for external delay at each port.
    load_ff : float
        Load of each output in fF. The file is valid for libraries with any units.
    """
    text = (ROOT / "constraints" / "systola.sdc").read_text()
    values = {
        "period": f"{period_ps:g}",
        "external": f"{external:g}",
        "load": f"{load_ff:g}",
        "clock_port": "[get_ports clk]" if "clk" in ports else "",
        "has_reset": "1" if "rst" in ports else "0",
        "has_double_clock": "1" if "clk_double" in ports else "0",
    }
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    path.write_text(text)


class _ModuleNames:
    """Names and source lines of one module's nets, from the attributes that Yosys kept."""

    def __init__(self, module: dict[str, Any], library: Library) -> None:
        self.sources: dict[str, str] = {}
        wires: dict[int, str] = {}
        for name, wire in module["netnames"].items():
            lines = wire["attributes"].get("src", "").split("|")
            self.sources[name] = next((line for line in lines if ".py:" in line), "")
        for name in sorted(module["netnames"], key=self._rank, reverse=True):
            bits = module["netnames"][name]["bits"]
            for index, bit in enumerate(bits):
                wires[bit] = f"{name}[{index}]" if len(bits) > 1 else name
        self.outputs = {
            f"{instance}/{pin}": wires[bits[0]]
            for instance, cell in module["cells"].items()
            for pin, bits in cell["connections"].items()
            if cell["type"] in library.cells and bits[0] in wires
            if any(pin == output.name for output in library.cells[cell["type"]].outputs)
            if not _is_private(wires[bits[0]])
        }
        self.registers = {
            pin.split("/")[0]: net
            for pin, net in self.outputs.items()
            if library.cells[module["cells"][pin.split("/")[0]]["type"]].state
        }

    def _rank(self, name: str) -> tuple[bool, bool, bool, int, str]:
        """Return the sort key of a net's names: the best one is readable and has a source line."""
        return (_is_private(name), not self.sources[name], "$" in name, len(name), name)

    def source(self, name: str) -> str:
        """Return the file and line of a name, or an empty string."""
        return self.sources.get(re.sub(r"\[\d+\]$", "", name), "")


class _Names:
    """Names and source lines of a netlist's pins in all modules."""

    def __init__(self, netlist: Netlist) -> None:
        design = json.loads((netlist.directory / f"{netlist.stem}.json").read_text())
        self._top, self._library = netlist.top, netlist.library
        self._modules: dict[str, Any] = design["modules"]
        self._named: dict[str, _ModuleNames] = {}
        self.ports = set(self._modules[netlist.top]["ports"])

    def _names(self, module: str) -> _ModuleNames:
        """Return the names in one module, from a cache."""
        if module not in self._named:
            self._named[module] = _ModuleNames(self._modules[module], self._library)
        return self._named[module]

    def find(self, pin: str) -> tuple[str, str]:
        """Return name and source line of the net that a pin drives, or of the register it feeds."""
        *instances, cell, _ = pin.split("/") if "/" in pin else (pin, "")
        module = self._top
        for instance in instances:
            module = self._modules[module]["cells"][instance]["type"]
        names = self._names(module)
        net = names.outputs.get(pin.split("/", len(instances))[-1]) or names.registers.get(cell)
        if not net and cell == pin:
            net = pin
        return (".".join([*instances, net]), names.source(net)) if net else ("", "")


def _is_private(net: str) -> bool:
    """Return whether a tool generated a net's name."""
    return bool(re.search(r"(^|[./])(cell)?_\d+_(\[\d+\])?$", net)) or net.startswith("$")


def _run(
    program: Program,
    netlist: Netlist,
    period_ps: float,
    external: float,
    activity: Activity | None,
    kinds: Sequence[str],
    wires: WireLoad | None,
) -> Timing:
    """Run OpenSTA, a second time for power if it crashes there, and read its report."""
    directory, stem, names = netlist.directory, netlist.stem, _Names(netlist)
    libraries = [netlist.library.path, *write_ideal_cells(netlist)]
    write_sdc(
        directory / f"{stem}.sdc",
        names.ports,
        period_ps=period_ps,
        external=external,
        load_ff=10.0,
    )
    words, commands = _set_pins(activity) if activity else _CARRIED
    result, sections = _measure(program, netlist, libraries, kinds, commands, wires)
    report = result.stdout + result.stderr
    if "power" in sections and not _TOTAL.search(sections["power"]):
        # The paths are complete; constants caused the crash or the missing number.
        libraries, constants = hide_constants(netlist, libraries)
        paths_only = result.stdout.split("@@ power")[0]
        result, power = _measure(program, netlist, libraries, (), f"{constants}\n{commands}", wires)
        report = paths_only + result.stdout + result.stderr
        sections |= power
    errors = [line for line in report.splitlines() if line.startswith("Error")]
    (directory / f"{stem}.sta.log").write_text(report)
    if errors or "end" not in sections:
        error = errors[0] if errors else f"it stopped with {result.returncode}"
        raise UserError(f"OpenSTA must accept the netlist of {netlist.top}: {error}")
    paths = [_path(kind, sections.get(kind, ""), period_ps, names) for kind in kinds]
    total = _TOTAL.search(sections["power"])
    watts = [float(value) for value in total.groups()] if total else []
    version = re.search(r"OpenSTA (\S+)", report)
    return Timing(
        version=version[1] if version else "unknown",
        paths=tuple(path for path in paths if path),
        power=Power(
            period_ps=period_ps,
            dynamic_mw=1e3 * (watts[0] + watts[1]),
            leakage_mw=1e3 * watts[2],
        )
        if watts
        else None,
        activity=words,
    )


def _measure(
    program: Program,
    netlist: Netlist,
    libraries: Sequence[Path],
    kinds: Sequence[str],
    activity: str,
    wires: WireLoad | None,
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run OpenSTA on a netlist, and return the sections of what it printed by their names."""
    if wires:
        libraries = [*libraries, wires.write(netlist.directory)]
    values = {
        "wires": f"set_wire_load_model -name {wires.name} -library {wires.name}" if wires else "",
        "libraries": " ".join(f"{{{path}}}" for path in libraries),
        "netlist": f"{netlist.stem}.sta.v",
        "top": netlist.top,
        "sdc": f"{netlist.stem}.sdc",
        "kinds": " ".join(kinds),
        "activity": activity,
    }
    text = (ROOT / "synth" / "scripts" / "timing.tcl").read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    file = netlist.directory / f"{netlist.stem}.tcl"
    file.write_text(text)
    result = program.run("-exit", file.name, directory=netlist.directory)
    sections = re.findall(r"^@@ (\w+)\n(.*?)(?=^@@ |\Z)", result.stdout, flags=re.M | re.S)
    return result, dict(sections)


def _set_pins(activity: Activity) -> tuple[str, str]:
    """Return the activity of every pin, as a description and as commands."""
    commands = [
        f"{'pin' if '/' in name else 'port'}_activity {{{name}}} {pin.transitions:g} {pin.ones:g}"
        for name, pin in activity.pins.items()
    ]
    return activity.words, "\n".join(commands)


def _path(kind: str, section: str, period_ps: float, names: _Names) -> TimingPath | None:
    """Read one path of OpenSTA's report."""
    slack = re.search(r"^ +(-?[\d.]+)\s+slack", section, flags=re.M)
    if not slack:
        return None
    length, steps = period_ps - float(slack[1]), []
    for line in section.split("data arrival time")[0].splitlines():
        step = re.match(r" *(-?[\d.]+) +(-?[\d.]+) ([v^]) (\S+) \((\S+)\)", line)
        if step:
            pin = step[4].replace("\\", "")
            name, source = names.find(pin)
            steps.append(
                Step(
                    time_ps=float(step[2]),
                    delay_ps=float(step[1]),
                    edge="rise" if step[3] == "^" else "fall",
                    pin=pin,
                    cell=step[5],
                    name=name,
                    source=source,
                )
            )
    for outside in re.findall(r"(-?[\d.]+) +-?[\d.]+ .*(?:in|out)put external delay", section):
        length -= abs(float(outside))
    # A connection between ports has no delay and so no maximum frequency.
    if length <= 0:
        return None
    return TimingPath(kind=kind, length_ps=length, slack_ps=float(slack[1]), steps=tuple(steps))
