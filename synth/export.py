"""The verb ``export``: a directory that another flow takes as it is.

Each export has the Verilog in ``rtl/``, the flow's own files, and a README with the one command
that runs it. Nothing in it points outside the directory.
"""

import os
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hdl import __version__
from hdl.emit import Port
from hdl.errors import UserError
from hdl.output_folder import output_folder
from hdl.paths import ROOT
from hdl.target import Target
from synth.asic import check_period
from synth.axi_stream import find_streams, write_wrapper
from synth.synthesis import EXTERNAL
from synth.timing import write_sdc

TEMPLATES = Path(__file__).with_name("templates")
DEFAULT_PERIOD_PS = 5000.0
DEFAULT_PART = "xczu9eg-ffvb1156-2-e"
LOAD_PF = 0.01

HERE = "<here>"
"""Stands for the project's directory in the command of its README."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """What an export is made of.

    Parameters
    ----------
    top : str
        The top module.
    summary : str
        What it does, in one line.
    verilog : tuple[Path, ...]
        Its files, each before those that use it.
    ports : Sequence[Port]
        The top's ports.
    period_ps : float
        Clock period.
    """

    top: str
    summary: str
    verilog: tuple[Path, ...]
    ports: Sequence[Port]
    period_ps: float = DEFAULT_PERIOD_PS

    def __post_init__(self) -> None:
        """Check the period."""
        check_period(self.period_ps)

    @property
    def files(self) -> list[str]:
        """Names of the Verilog files."""
        return [path.name for path in self.verilog if path.suffix == ".v"]

    @property
    def has_clock(self) -> bool:
        """Whether there is a clock."""
        return any(port.name == "clk" for port in self.ports)

    @property
    def has_reset(self) -> bool:
        """Whether there is a reset."""
        return any(port.name == "rst" for port in self.ports)

    @property
    def has_streams(self) -> bool:
        """Whether an AXI4-Stream wrapper makes sense."""
        return self.has_clock and bool(find_streams(self.ports)[0])


def check_flow(for_: str) -> None:
    """Raise a worded error unless there is such a flow.

    Raises
    ------
    UserError
        If there is none.
    """
    if for_ not in EXPORTS:
        raise UserError(f"FOR must be one of {', '.join(EXPORTS)}, not {for_!r}")


def write_export(design: Design, for_: str, directory: Path) -> list[Path]:
    """Write a design as another flow's project.

    Parameters
    ----------
    design : Design
        What to hand over.
    for_ : str
        ``orfs``, ``librelane``, ``vivado`` or ``fusesoc``.
    directory : Path
        The project; what was written there before is replaced, see `hdl.output_folder`.

    Returns
    -------
    list[Path]
        The files, the README last.

    Raises
    ------
    UserError
        If the flow is unknown, needs a clock that the design does not have, or the directory is
        not a verb's to write.
    """
    check_flow(for_)
    if not design.has_clock:
        raise UserError(f"TOP must have a clock to be exported; {design.top} has none")
    with output_folder(directory) as new:
        rtl = new / "rtl"
        rtl.mkdir()
        for path in design.verilog:
            if path.suffix == ".v":
                shutil.copyfile(path, rtl / path.name)
        command, checked = EXPORTS[for_](design, new)
        command = command.replace(HERE, _here(directory))
        (new / "README.md").write_text(_readme(design, for_, command, checked))
        names = sorted(path.relative_to(new) for path in new.rglob("*") if path.is_file())
    names.sort(key=lambda name: name.name == "README.md")
    return [directory / name for name in names]


def _orfs(design: Design, directory: Path) -> tuple[str, str]:
    """Write a project of OpenROAD-flow-scripts."""
    verilog = " ".join(f"$(here)/rtl/{name}" for name in design.files)
    _fill("orfs.mk", directory / "config.mk", top=design.top, verilog=verilog)
    _sdc(design, directory)
    command = f"make -C <OpenROAD-flow-scripts>/flow DESIGN_CONFIG={HERE}/config.mk"
    return command, "The file list and the constraints are checked; the flow itself was not run."


def _librelane(design: Design, directory: Path) -> tuple[str, str]:
    """Write a project of LibreLane."""
    _fill(
        "librelane.yaml",
        directory / "config.yaml",
        top=design.top,
        verilog="\n".join(f"  - dir::rtl/{name}" for name in design.files),
        clock="clk",
        period_ns=f"{design.period_ps / 1000:g}",
    )
    _sdc(design, directory)
    command = f"librelane {HERE}/config.yaml"
    return command, "The YAML and its file list are checked; the flow itself was not run."


def _vivado(design: Design, directory: Path) -> tuple[str, str]:
    """Write Vivado scripts: synthesis out of context, and IP packaging."""
    package, files = design.top, design.files
    if design.has_streams:
        package = f"{design.top}_axis"
        (directory / "rtl" / f"{package}.v").write_text(write_wrapper(design.top, design.ports))
        files = [*files, f"{package}.v"]
    values = {
        "top": design.top,
        "part": DEFAULT_PART,
        "verilog": " ".join(design.files),
        "package": package,
        "package_verilog": " ".join(files),
        "version": ".".join(__version__.split(".")[:2]),
        "summary": design.summary,
    }
    _fill("vivado_synth.tcl", directory / "synth.tcl", **values)
    _fill("vivado_package.tcl", directory / "package.tcl", **values)
    text = (ROOT / "constraints" / "systola.xdc").read_text()
    lines = text.replace("{period_ns}", f"{design.period_ps / 1000:g}").splitlines(keepends=True)
    kept = [line for line in lines if design.has_reset or "rst" not in line]
    (directory / f"{design.top}.xdc").write_text("".join(kept))
    command = f"vivado -mode batch -source {HERE}/synth.tcl -tclargs {DEFAULT_PART}"
    return command, (
        "The scripts parse as Tcl and their file lists are checked; Vivado itself was not run. "
        "`package.tcl` in place of `synth.tcl` packages the unit as an IP core."
    )


def _fusesoc(design: Design, directory: Path) -> tuple[str, str]:
    """Write a FuseSoC core, CAPI2."""
    files = design.files
    targets = {"default": design.top, "lint": design.top}
    if design.has_streams:
        wrapper = f"{design.top}_axis"
        (directory / "rtl" / f"{wrapper}.v").write_text(write_wrapper(design.top, design.ports))
        files = [*files, f"{wrapper}.v"]
        targets["axis"] = wrapper
    lines = [
        "CAPI=2:",
        f"name: systola:llm:{design.top}:{__version__}",
        f"description: {_yaml_string(design.summary)}",
        "filesets:",
        "  rtl:",
        "    files:",
        *(f"      - rtl/{name}" for name in files),
        "    file_type: verilogSource",
        "targets:",
    ]
    for target, top in targets.items():
        lines += [f"  {target}:", "    filesets: [rtl]", f"    toplevel: {top}"]
        if target == "lint":
            lines += [
                "    default_tool: verilator",
                "    tools:",
                "      verilator:",
                "        mode: lint-only",
                '        verilator_options: ["-Wno-fatal"]',
            ]
    (directory / f"{design.top}.core").write_text("\n".join(lines) + "\n")
    command = f"fusesoc --cores-root {HERE} run --target=lint systola:llm:{design.top}"
    return command, "FuseSoC reads the core and its file list; the lint target needs Verilator."


EXPORTS: dict[str, Callable[[Design, Path], tuple[str, str]]] = {
    "orfs": _orfs,
    "librelane": _librelane,
    "vivado": _vivado,
    "fusesoc": _fusesoc,
}


TARGETS = {"vivado": Target.FPGA}
"""What the Verilog of a flow is written for, if it is not `Target.ASIC`."""


def _fill(template: str, path: Path, **values: str) -> None:
    """Write a file from a template."""
    text = (TEMPLATES / template).read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    path.write_text(text)


def _sdc(design: Design, directory: Path) -> None:
    """Write the constraints in nanoseconds and picofarads."""
    write_sdc(
        directory / f"{design.top}.sdc",
        {port.name for port in design.ports},
        period=design.period_ps / 1000,
        time_unit="ns",
        external=EXTERNAL,
        load=LOAD_PF,
    )


def _here(directory: Path) -> str:
    """Name the directory as a user in the checkout would."""
    inside = directory.resolve().is_relative_to(ROOT)
    return os.path.relpath(directory, ROOT) if inside else directory.name


def _yaml_string(text: str) -> str:
    """Quote a string for YAML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _readme(design: Design, for_: str, command: str, checked: str) -> str:
    """Write the README of an export."""
    paragraph = "\n".join(textwrap.wrap(checked, 100))
    return f"# {design.top} for {for_}\n\n{design.summary}\n\n```\n{command}\n```\n\n{paragraph}\n"
