"""The verb ``export``: a project directory for another flow.

Each export contains the Verilog in ``rtl/``, the flow's own files, and a README with the command
that runs the flow. No file refers to a path outside the directory.

One design can contain the exports of several units: their tops have different names, and files with
equal names have equal contents if they are written for the same target.
"""

import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hdl import __version__
from hdl.emit import Port, Storage
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
LOAD_FF = 10.0

ORFS_MEMORY_BITS = 4096
"""Maximum bits per memory in OpenROAD-flow-scripts: the default of `SYNTH_MEMORY_MAX_BITS`."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """The design to export.

    Parameters
    ----------
    top : str
        The top module.
    summary : str
        Function of the unit, in one line.
    verilog : tuple[Path, ...]
        The Verilog files, each before those that use it.
    ports : Sequence[Port]
        The top's ports.
    memories : tuple[Storage, ...]
        Its memories.
    documents : tuple[Path, ...]
        Its manifest, C header and SystemVerilog package.
    target : Target
        The target of the Verilog.
    period_ps : float
        Clock period in ps.
    """

    top: str
    summary: str
    verilog: tuple[Path, ...]
    ports: Sequence[Port]
    memories: tuple[Storage, ...] = ()
    documents: tuple[Path, ...] = ()
    target: Target = Target.ASIC
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
        """Whether the design can have an AXI4-Stream wrapper."""
        return self.has_clock and bool(find_streams(self.ports)[0])


def check_flow(for_: str) -> None:
    """Check the name of a flow.

    Raises
    ------
    UserError
        If no flow has this name.
    """
    if for_ not in EXPORTS:
        raise UserError(f"FOR must be one of {', '.join(EXPORTS)}, not {for_!r}")


def write_export(design: Design, for_: str, directory: Path) -> list[Path]:
    """Write a design as a project for another flow.

    Parameters
    ----------
    design : Design
        The design.
    for_ : str
        ``orfs``, ``librelane``, ``vivado`` or ``fusesoc``.
    directory : Path
        Folder of the project; earlier generated files are replaced, see `hdl.output_folder`.

    Returns
    -------
    list[Path]
        The files, the README last.

    Raises
    ------
    UserError
        If the flow is unknown, requires a clock that the design does not have, or
        `hdl.output_folder` rejects the directory.
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
        for path in design.documents:
            shutil.copyfile(path, new / path.name)
        command, remarks = EXPORTS[for_](design, new)
        (new / "README.md").write_text(_readme(design, for_, command, remarks))
        names = sorted(path.relative_to(new) for path in new.rglob("*") if path.is_file())
    names.sort(key=lambda name: name.name == "README.md")
    return [directory / name for name in names]


def _orfs(design: Design, directory: Path) -> tuple[str, str]:
    """Write a project of OpenROAD-flow-scripts."""
    verilog = " ".join(f"$(here)/rtl/{name}" for name in design.files)
    _fill(
        "orfs.mk",
        directory / "config.mk",
        top=design.top,
        verilog=verilog,
        period_ps=f"{design.period_ps:g}",
    )
    _sdc(design, directory)
    command = 'make -C <OpenROAD-flow-scripts>/flow DESIGN_CONFIG="$PWD/config.mk"'
    checked = (
        "The file list and the constraints are checked; the flow itself was not run. Make splits "
        "paths at spaces: the path of this folder must contain none."
    )
    return command, f"{checked}\n\n{_memory_limit(design)}".strip()


def large_memories(design: Design, for_: str) -> list[Storage]:
    """Return the memories that are too large for a flow, in descending order of size."""
    if for_ != "orfs":
        return []
    large = [memory for memory in design.memories if memory.bits > ORFS_MEMORY_BITS]
    return sorted(large, key=lambda memory: -memory.bits)


def _memory_limit(design: Design) -> str:
    """Return the paragraph on memories above the flow's limit; empty if there are none."""
    large = large_memories(design, "orfs")
    if not large:
        return ""
    rows = "\n".join(
        f"| `{memory.name}` | {memory.width} | {memory.depth} | {memory.bits} |" for memory in large
    )
    return f"""\
**The flow stops at these memories.** Each has more than {ORFS_MEMORY_BITS:,} bits, the limit of
`SYNTH_MEMORY_MAX_BITS`. This export has no SRAM macros that would replace them. With a higher
`SYNTH_MEMORY_MAX_BITS` the flow builds them from flip-flops.

| memory | bits per word | words | bits |
|---|---|---|---|
{rows}"""


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
    checked = "The YAML and its file list are checked; the flow itself was not run."
    bits = sum(memory.bits for memory in design.memories)
    built = "The flow builds memories from flip-flops: {:,} bits in a copy of each module."
    return "librelane config.yaml", f"{checked} {built.format(bits) if bits else ''}".strip()


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
    command = f"vivado -mode batch -source synth.tcl -tclargs {DEFAULT_PART}"
    return command, (
        "The scripts parse as Tcl and their file lists are checked; Vivado itself was not run. "
        "`package.tcl` in place of `synth.tcl` packages the unit as an IP core."
    )


def _fusesoc(design: Design, directory: Path) -> tuple[str, str]:
    """Write one FuseSoC core (CAPI2) per module, so that designs can share common modules."""
    *parts, top = (name.removesuffix(".v") for name in design.files)
    files = [f"{top}.v"]
    targets = {"default": design.top, "lint": design.top}
    if design.has_streams:
        wrapper = f"{design.top}_axis"
        (directory / "rtl" / f"{wrapper}.v").write_text(write_wrapper(design.top, design.ports))
        files = [*files, f"{wrapper}.v"]
        targets["axis"] = wrapper
    names = [_core_name(design, part) for part in parts]
    for part, name in zip(parts, names, strict=True):
        lines = _core(name, f"{part}, a module of Systola", [f"rtl/{part}.v"])
        lines += ["targets:", "  default:", "    filesets: [rtl]"]
        (directory / f"{part}.core").write_text("\n".join(lines) + "\n")
    lines = _core(
        _core_name(design, design.top), design.summary, [f"rtl/{name}" for name in files], names
    )
    lines += ["targets:"]
    for target, toplevel in targets.items():
        lines += [f"  {target}:", "    filesets: [rtl]", f"    toplevel: {toplevel}"]
        if target == "lint":
            lines += [
                "    default_tool: verilator",
                "    tools:",
                "      verilator:",
                "        mode: lint-only",
                '        verilator_options: ["-Wno-fatal"]',
            ]
    (directory / f"{design.top}.core").write_text("\n".join(lines) + "\n")
    command = f"fusesoc --cores-root . run --target=lint {_core_name(design, design.top)}"
    return command, "FuseSoC reads the cores and their files; the lint target needs Verilator."


def _core_name(design: Design, module: str) -> str:
    """Return the name of a module's core, which includes the target."""
    library = "llm" if design.target is Target.ASIC else f"llm_{design.target}"
    return f"systola:{library}:{module}:{__version__}"


def _core(name: str, summary: str, files: Sequence[str], needs: Sequence[str] = ()) -> list[str]:
    """Return the lines of a core before its targets."""
    return [
        "CAPI=2:",
        f"name: {name}",
        f"description: {_yaml_string(summary)}",
        "filesets:",
        "  rtl:",
        "    files:",
        *(f"      - {file}" for file in files),
        "    file_type: verilogSource",
        *(["    depend:"] if needs else []),
        *(f'      - "{need}"' for need in needs),
    ]


EXPORTS: dict[str, Callable[[Design, Path], tuple[str, str]]] = {
    "orfs": _orfs,
    "librelane": _librelane,
    "vivado": _vivado,
    "fusesoc": _fusesoc,
}


TARGETS = {"vivado": Target.FPGA}
"""Target of the Verilog by flow; `Target.ASIC` for all other flows."""


def _fill(template: str, path: Path, **values: str) -> None:
    """Write a file from a template."""
    text = (TEMPLATES / template).read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    path.write_text(text)


def _sdc(design: Design, directory: Path) -> None:
    """Write the constraints."""
    write_sdc(
        directory / f"{design.top}.sdc",
        {port.name for port in design.ports},
        period_ps=design.period_ps,
        external=EXTERNAL,
        load_ff=LOAD_FF,
    )


def _yaml_string(text: str) -> str:
    """Quote a string for YAML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _readme(design: Design, for_: str, command: str, remarks: str) -> str:
    """Write the README of an export."""
    paragraphs = [
        f"# {design.top} for {for_}",
        design.summary,
        f"In this folder, run:\n\n```\n{command}\n```",
        *(
            paragraph if "\n" in paragraph else "\n".join(textwrap.wrap(paragraph, 100))
            for paragraph in remarks.split("\n\n")
        ),
        f"""\
The Verilog is written for {design.target}. Files in `rtl/` of several such exports that have one
name are the same module: a design that uses these exports lists it once.""",
    ]
    return "\n\n".join(paragraphs) + "\n"
