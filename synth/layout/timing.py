"""Setup and hold of a layout with OpenSTA, with wires and clock tree or with neither.

With wires, the clock is propagated through its tree. Registers outside the unit are assumed to have
the clock latency of the unit's own critical register, so that paths through ports do not gain or
lose the delay of the clock tree.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hdl.errors import UserError
from hdl.paths import ROOT
from synth.asic import LOAD_FF
from synth.debian import Program
from synth.timing import RELAXED_PS, write_sdc

INNER = "register_to_register"
"""The kind of paths whose hold is checked: no port has an external delay."""


@dataclass(frozen=True, kw_only=True)
class LayoutTiming:
    """Timing of a layout.

    Parameters
    ----------
    setup_ps : dict[str, float]
        Length of the longest path of each kind, with setup.
    hold_slack_ps : float or None
        Worst hold slack between registers; None if no path connects two registers.
    latency_ps : float
        Delay of the clock tree to the first register of the longest path between registers.
    """

    setup_ps: dict[str, float]
    hold_slack_ps: float | None
    latency_ps: float

    @property
    def critical_ps(self) -> float | None:
        """Length of the longest path."""
        return max(self.setup_ps.values(), default=None)

    @property
    def fmax_mhz(self) -> float | None:
        """Maximum clock frequency."""
        return 1e6 / self.critical_ps if self.critical_ps else None


def analyse_layout(
    program: Program,
    libraries: Sequence[Path],
    netlist: Path,
    top: str,
    ports: set[str],
    *,
    spef: Path | None = None,
) -> LayoutTiming:
    """Measure a layout's netlist; without `spef`, wires have no delay and the clock is ideal.

    Raises
    ------
    UserError
        If OpenSTA rejects a file.
    """
    measured = _run(program, libraries, netlist, top, ports, spef, latency_ps=0.0)
    if spef and measured.latency_ps:
        # The second run has the latency of the first as external delay.
        return _run(program, libraries, netlist, top, ports, spef, latency_ps=measured.latency_ps)
    return measured


def _run(
    program: Program,
    libraries: Sequence[Path],
    netlist: Path,
    top: str,
    ports: set[str],
    spef: Path | None,
    *,
    latency_ps: float,
) -> LayoutTiming:
    """Run OpenSTA once."""
    directory = netlist.parent
    stem = f"{'wired' if spef else 'wireless'}"
    write_sdc(directory / f"{stem}.sdc", ports, period_ps=RELAXED_PS, external=0.0, load_ff=LOAD_FF)
    wired = [
        f"read_spef {spef.name}",
        "set_propagated_clock [all_clocks]",
        f"set latency [sta::time_sta_ui {latency_ps * 1e-12:.6g}]",
        "if {[llength $data_inputs] > 0} { set_input_delay $latency -clock clk $data_inputs }",
        "set_output_delay [expr {-$latency}] -clock clk [all_outputs]",
    ] if spef else []  # fmt: skip
    values = {
        "libraries": " ".join(f"{{{path}}}" for path in libraries),
        "netlist": netlist.name,
        "top": top,
        "sdc": f"{stem}.sdc",
        "parasitics": "\n".join(wired),
    }
    text = (ROOT / "synth" / "scripts" / "layout.tcl").read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    script = directory / f"{stem}.tcl"
    script.write_text(text)
    result = program.run("-exit", script.name, directory=directory)
    report = result.stdout + result.stderr
    (directory / f"{stem}.log").write_text(report)
    errors = re.findall(r"^(?:Error|Warning: .*\.spef).*$", report, flags=re.M)
    found = re.findall(r"^@@ (\w+)(?: (\w+))?\n(.*?)(?=^@@ |\Z)", result.stdout, re.M | re.S)
    sections = {(check, kind): section for check, kind, section in found}
    if errors or ("end", "") not in sections:
        error = errors[0] if errors else f"it stopped with {result.returncode}"
        raise UserError(f"OpenSTA must accept the layout of {top}: {error}")
    setup, hold, latency = {}, None, 0.0
    for (check, kind), section in sections.items():
        slack = re.search(r"^ +(-?[\d.]+)\s+slack", section, flags=re.M)
        if not slack:
            continue
        if check == "setup":
            # A connection between ports has no delay and so no maximum frequency.
            if RELAXED_PS - float(slack[1]) > 0:
                setup[kind] = RELAXED_PS - float(slack[1])
            launch = re.search(r"(-?[\d.]+) +-?[\d.]+ +clock network delay \(prop", section)
            if kind == INNER and launch:
                latency = float(launch[1])
        elif kind == INNER:
            hold = float(slack[1])
    return LayoutTiming(setup_ps=setup, hold_slack_ps=hold, latency_ps=latency)
