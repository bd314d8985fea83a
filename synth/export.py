"""The verb ``export``: a project directory for another flow.

Each export contains the Verilog in ``rtl/``, the flow's own files, and a README with the command
that runs the flow. No file refers to a path outside the directory.

One design can contain the exports of several units: their tops have different names, and files with
equal names have equal contents if they are written for the same target.
"""

import hashlib
import json
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdl import __version__
from hdl.emit import Port, Storage
from hdl.errors import UserError
from hdl.output_folder import output_folder
from hdl.paths import ROOT
from hdl.target import Target
from synth.asic import check_period
from synth.axi_stream import find_streams, write_wrapper
from synth.block_design import BOARDS, BlockBoard, axi_package, board_values
from synth.litex import litex_core
from synth.macros.mapping import COLUMNS, DOUBLE_CLOCK, MacroMapping
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
    mapping : MacroMapping, optional
        The memories, mapped to macros; all memories are Verilog if absent.
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
    mapping: MacroMapping | None = None
    target: Target = Target.ASIC
    period_ps: float = DEFAULT_PERIOD_PS

    def __post_init__(self) -> None:
        """Check the period."""
        check_period(self.period_ps)

    @property
    def files(self) -> list[str]:
        """Names of the Verilog files, each before those that use it."""
        wrappers = self.mapping.wrappers if self.mapping else ()
        names = [path.name for path in self.verilog if path.suffix == ".v"]
        return [*(f"{wrapper.name}.v" for wrapper in wrappers), *names]

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest; empty without documents."""
        for path in self.documents:
            if path.suffix == ".json":
                return json.loads(path.read_text())
        return {}

    @property
    def inferred(self) -> list[Storage]:
        """The memories that a flow finds in the Verilog, in descending order of size."""
        if self.mapping is None:
            found = list(self.memories)
        else:
            found = [
                Storage(memory.name, memory.width, memory.depth)
                for memory in self.mapping.memories
                if not memory.wrappers
            ]
            found += [
                Storage(f"{wrapper.name}.current", 1, wrapper.depth)
                for wrapper in self.mapping.wrappers
                if wrapper.copies == 2
            ]
        return sorted(found, key=lambda memory: -memory.bits)

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


def check_macros(for_: str) -> None:
    """Check that a flow takes memory macros.

    Raises
    ------
    UserError
        If it does not.
    """
    if for_ not in MACRO_FLOWS:
        raise UserError(f"MACROS requires FOR to be one of {', '.join(MACRO_FLOWS)}, not {for_!r}")


def write_export(design: Design, for_: str, directory: Path) -> list[Path]:
    """Write a design as a project for another flow.

    Parameters
    ----------
    design : Design
        The design.
    for_ : str
        ``orfs``, ``librelane``, ``vivado``, ``fusesoc`` or ``litex``.
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
    if design.mapping:
        check_macros(for_)
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
        if design.mapping:
            design.mapping.write(rtl, new / "macros")
            files = [rtl / name for name in design.files]
            _renew_manifest(new / f"{design.top}.json", files, design.mapping.double_clock)
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
    _append(directory / "config.mk", _orfs_macros(design))
    return command, "\n\n".join(filter(None, [checked, _memory_limit(design), _macros(design)]))


def large_memories(design: Design, for_: str) -> list[Storage]:
    """Return the memories that are too large for a flow, in descending order of size."""
    if for_ != "orfs":
        return []
    return [memory for memory in design.inferred if memory.bits > ORFS_MEMORY_BITS]


def _orfs_macros(design: Design) -> str:
    """Return the lines of ``config.mk`` on macros; empty if there are none."""
    if not design.mapping or not design.mapping.used:
        return ""
    return _template("orfs_macros.mk", macros=_names(design.mapping))


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
`SYNTH_MEMORY_MAX_BITS`. `MACROS=` replaces memories by SRAM macros. With a higher
`SYNTH_MEMORY_MAX_BITS` the flow builds these memories from flip-flops.

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
    bits = sum(memory.bits for memory in design.inferred)
    built = "The flow builds memories from flip-flops: {:,} bits in a copy of each module."
    if design.mapping and design.mapping.used:
        views = [_template("librelane_macro.yaml", macro=one.name) for one in design.mapping.used]
        _append(directory / "config.yaml", "".join(["MACROS:\n", *views]))
    checked = f"{checked} {built.format(bits) if bits else ''}".strip()
    return "librelane config.yaml", "\n\n".join(filter(None, [checked, _macros(design)]))


def _macros(design: Design) -> str:
    """Return the paragraphs on the mapping to macros; empty without one."""
    mapping = design.mapping
    if mapping is None:
        return ""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(memory.row for memory in mapping.memories)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"""\
## Memories

Macros of `{mapping.macros.name}`: {mapping.summary}.

{_macro_files(mapping)}{table}"""


def _macro_files(mapping: MacroMapping) -> str:
    """Return the paragraph on the files that the user must add."""
    if not mapping.used:
        return ""
    return f"""\
`macros/` has, for each macro, a black box `<macro>.v` and a model `<macro>_model.v` for simulation
without delays. **Add the physical files**, which this export does not have, for these macros:
{_names(mapping)}

- OpenROAD-flow-scripts: `<macro>.lef` and `<macro>.lib` in the folders `MACRO_LEF_DIR` and
  `MACRO_LIB_DIR` of `config.mk`, by default those of the platform; `ADDITIONAL_GDS`, or
  `GDS_ALLOW_EMPTY` for macros without a layout. The flow takes the pins from the Liberty files.
- LibreLane: `<macro>.gds`, `<macro>.lef` and `<macro>.lib` in `macros/`.

"""


def _names(mapping: MacroMapping) -> str:
    """Return the names of the macros that occur."""
    return " ".join(macro.name for macro in mapping.used)


def _renew_manifest(path: Path, verilog: Sequence[Path], double_clock: bool) -> None:
    """Write the changed Verilog's files, digest and clocks into the manifest, if there is one."""
    if not path.exists():
        return
    values = json.loads(path.read_text())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in verilog)).hexdigest()
    values["verilog"] = {"files": [file.name for file in verilog], "sha256": digest}
    if double_clock:
        values["clocks"].append({"port": DOUBLE_CLOCK, "edge": "rising"})
    path.write_text(json.dumps(values, indent=1) + "\n")


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
    accelerator = "register_map" in design.manifest
    axi = axi_package(design.ports, design.manifest) if accelerator else None
    interfaces = f"\n{_template('vivado_axi.tcl', **axi)}\n" if axi else ""
    _fill("vivado_package.tcl", directory / "package.tcl", **values, interfaces=interfaces)
    text = (ROOT / "constraints" / "systola.xdc").read_text()
    lines = text.replace("{period_ns}", f"{design.period_ps / 1000:g}").splitlines(keepends=True)
    kept = [line for line in lines if design.has_reset or "rst" not in line]
    (directory / f"{design.top}.xdc").write_text("".join(kept))
    command = f"vivado -mode batch -source synth.tcl -tclargs {DEFAULT_PART}"
    remarks = (
        "The scripts parse as Tcl and their file lists are checked; Vivado itself was not run. "
        "`package.tcl` in place of `synth.tcl` packages the unit as an IP core."
    )
    if accelerator:
        boards = [_block_design(design, board, values["version"], directory) for board in BOARDS]
        remarks += (
            " After it, the following scripts build a block design of the core with the processor "
            f"and the memory of a board: {', '.join(boards)}."
        )
    return command, remarks


def _block_design(design: Design, board: BlockBoard, version: str, directory: Path) -> str:
    """Write the block design of a board; return the name of its script and its title."""
    values = board_values(
        board, design.ports, top=design.top, version=version, period_ps=design.period_ps
    )
    platform = _template(f"vivado_{board.name}.tcl", **values)
    script = f"{board.name}.tcl"
    _fill("vivado_board.tcl", directory / script, platform=platform.rstrip(), **values)
    constraints = ROOT / "constraints" / f"{board.name}.xdc"
    if constraints.exists():
        shutil.copyfile(constraints, directory / constraints.name)
    return f"`{script}` ({board.title})"


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


def _litex(design: Design, directory: Path) -> tuple[str, str]:
    """Write a LiteX core."""
    text = litex_core(design.top, design.summary, design.ports, design.files)
    (directory / f"{design.top}_litex.py").write_text(text)
    command = f"from {design.top}_litex import add_to; add_to(soc, origin=0x3000_0000)"
    return command, (
        "The command is Python, in the constructor of a SoC. A test connects all ports with "
        "substitutes of LiteX's classes; no SoC was simulated, and the flow of a board was not run."
    )


EXPORTS: dict[str, Callable[[Design, Path], tuple[str, str]]] = {
    "orfs": _orfs,
    "librelane": _librelane,
    "vivado": _vivado,
    "fusesoc": _fusesoc,
    "litex": _litex,
}


MACRO_FLOWS = ("orfs", "librelane")
"""Flows that take memory macros."""

TARGETS = {"vivado": Target.FPGA}
"""Target of the Verilog by flow; `Target.ASIC` for all other flows."""


def _fill(template: str, path: Path, **values: str) -> None:
    """Write a file from a template."""
    path.write_text(_template(template, **values))


def _template(name: str, **values: str) -> str:
    """Return the text of a template."""
    text = (TEMPLATES / name).read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def _append(path: Path, text: str) -> None:
    """Append a text to a file."""
    path.write_text(path.read_text() + text)


def _sdc(design: Design, directory: Path) -> None:
    """Write the constraints."""
    names = {port.name for port in design.ports}
    if design.mapping and design.mapping.double_clock:
        names.add(DOUBLE_CLOCK)
    write_sdc(
        directory / f"{design.top}.sdc",
        names,
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
The Verilog is written for {_written_for(design)}. Files in `rtl/` of several such exports that
have one name are the same module: a design that uses these exports lists it once.""",
    ]
    return "\n\n".join(paragraphs) + "\n"


def _written_for(design: Design) -> str:
    """Return the target, and the list of macros."""
    macros = f" and the macros of {design.mapping.macros.name}" if design.mapping else ""
    return f"{design.target}{macros}"
