"""From a unit to Verilog-2005: one file a module, a file list, a header.

The output depends on nothing but the design: no date, no absolute path, no order of a hash table.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]
from amaranth.hdl import ClockSignal, Instance, ResetSignal, Value

from hdl import __version__
from hdl.output_folder import output_folder
from hdl.paths import ROOT
from hdl.target import Target, writing_for
from hdl.unit import Unit
from hdl.verilog_names import require_module_name
from hdl.yosys import run_yosys


@dataclass(frozen=True)
class Port:
    """One port of an emitted module.

    Parameters
    ----------
    name : str
        Verilog name: the member's path joined with two underscores.
    direction : str
        ``"input"`` or ``"output"``.
    width : int
        Bits.
    """

    name: str
    direction: str
    width: int


@dataclass(frozen=True)
class EmittedModule:
    """One Verilog module: its name, its unit's configuration, its ports, its RTLIL."""

    name: str
    summary: str
    configuration: tuple[tuple[str, Any], ...]
    ports: tuple[Port, ...]
    rtlil: str


class Emission:
    """The platform that turns a tree of units into a set of modules.

    Parameters
    ----------
    top : Unit
        The design.
    name : str, optional
        Name of the top module; the unit's own `module_name` by default.
    target : Target
        What the Verilog is for.

    Members
    -------
    modules : list[EmittedModule]
        Every distinct module, each before those that use it; the top is last.

    Raises
    ------
    ValueError
        If two different configurations would have the same module name, or a module's name is none
        in Verilog.
    """

    def __init__(self, *, top: Unit, name: str | None = None, target: Target = Target.ASIC) -> None:
        self.target = target
        self._by_identity: dict[tuple[Any, ...], EmittedModule] = {}
        self._being_emitted: list[Unit] = []
        with writing_for(target):
            self._emit(top, top.module_name if name is None else name)

    @property
    def modules(self) -> list[EmittedModule]:
        """Every distinct module, each before those that use it."""
        return list(self._by_identity.values())

    def boundary(self, unit: Unit) -> Instance | None:
        """Return an instance of the unit's module, or None while that module is being emitted."""
        if self._being_emitted and self._being_emitted[-1] is unit:
            return None
        module = self._by_identity.get(unit.identity) or self._emit(unit, unit.module_name)
        nets = {"clk": ClockSignal(), "rst": ResetSignal()} | _port_values(unit)
        connections = [(port.direction[0], port.name, nets[port.name]) for port in module.ports]
        return Instance(module.name, *connections)

    def _emit(self, unit: Unit, name: str) -> EmittedModule:
        require_module_name(name)
        self._being_emitted.append(unit)
        text = rtlil.convert(unit, name=name, platform=self)
        self._being_emitted.pop()
        text, ports = _order_ports(_plain_names(text), ["clk", "rst", *_port_values(unit)])
        summary = (type(unit).__doc__ or "").strip().split("\n")[0]
        configuration = tuple(unit.configuration.items())
        module = EmittedModule(name, summary, configuration, ports, text)
        if any(module.name == name for module in self.modules):
            raise ValueError(f"module names must be distinct, not {name!r} for two configurations")
        self._by_identity[unit.identity] = module
        return module


def write_verilog(emission: Emission, directory: Path) -> list[Path]:
    """Write one ``.v`` file a module and the file list ``<top>.f`` into a directory.

    What was written there before is replaced, and nothing else, see `hdl.output_folder`.

    Returns
    -------
    list[Path]
        The Verilog files, each before those that use it, and last the file list.

    Raises
    ------
    hdl.yosys.YosysError
        If Yosys cannot write the design.
    UserError
        If the directory is not a verb's to write.
    """
    with output_folder(directory) as new:
        names = [module.name for module in emission.modules]
        writes = (
            [f"select {name} {name}__*", f"write_verilog -selected {name}.v", "select -clear"]
            for name in names
        )
        (new / "design.il").write_text("\n".join(module.rtlil for module in emission.modules))
        run_yosys(
            [
                "read_rtlil design.il",
                "proc -nomux -norom",
                # A memory's contents are unknown until written, as those of an SRAM macro are.
                "delete memory_*/t:$meminit_v2",
                "memory_collect",
                "setattr -unset init */w:*",
                "setattr -mod -unset generator -unset top -unset src *",
                *(command for write in writes for command in write),
            ],
            directory=new,
        )
        (new / "design.il").unlink()
        for module in emission.modules:
            file = new / f"{module.name}.v"
            file.write_text(_header(module, emission.target) + _tidy(file.read_text()))
        top = emission.modules[-1].name
        (new / f"{top}.f").write_text("".join(f"{name}.v\n" for name in names))
    return [directory / f"{name}.v" for name in names] + [directory / f"{top}.f"]


def verilog_digest(files: Iterable[Path]) -> str:
    """Return twelve hexadecimal digits that stand for what Verilog files say.

    Comments and attributes do not count, so a line moved in the Python source changes nothing.
    """
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        text = re.sub(r"//.*|\(\* .*? \*\)", "", file.read_text())
        digest.update("".join(text.split()).encode())
    return digest.hexdigest()[:12]


def _port_values(unit: Unit) -> dict[str, Value]:
    """Every port of a unit by its Verilog name."""
    return {
        "__".join(map(str, path)): Value.cast(value)
        for path, _member, value in unit.signature.flatten(unit)
    }


def _order_ports(text: str, order: list[str]) -> tuple[str, tuple[Port, ...]]:
    """Put the top module's ports into the order given, and return them."""
    end = text.index("\nend\n")
    ports: dict[str, Port] = {}

    def number(match: re.Match[str]) -> str:
        options, direction, signed, name = match.groups()
        width = re.search(r"width (\d+)", options)
        ports[name] = Port(name, direction, int(width[1]) if width else 1)
        return f"  wire {options}{direction} {order.index(name) + 1} {signed or ''}\\{name}\n"

    pattern = r"^  wire ([^\\\n]*)(input|output) \d+ *(signed )? *\\(\S+)\n"
    head = re.sub(pattern, number, text[:end], flags=re.M)
    return head + text[end:], tuple(ports[name] for name in order if name in ports)


def _plain_names(text: str) -> str:
    """Spell submodule names without dots; keep source positions in `hdl/` only, as relative."""
    text = re.sub(
        r"^(module|  cell) \\(\S+)",
        lambda match: f"{match[1]} \\{match[2].replace('.', '__')}",
        text,
        flags=re.M,
    )
    text = text.replace(f'\\src "{ROOT}/', '\\src "')
    return re.sub(r'^ *attribute \\src "(?!hdl/(?!emit))[^"]*"\n', "", text, flags=re.M)


def _tidy(text: str) -> str:
    """Drop the writer's banner, and declarations of wires without bits, which nothing reads."""
    text = re.sub(
        r"^(?:  \(\*.*\*\)\n)?  (?:wire|reg) (?:signed )?\[-1:0\].*\n", "", text, flags=re.M
    )
    return re.sub(r"\A/\* Generated by Yosys.*?\*/\n+", "", text, flags=re.S)


def _header(module: EmittedModule, target: Target) -> str:
    """Write the comment that opens a Verilog file."""
    lines = [
        f"{module.name}: {module.summary}",
        f"Generated by Systola {__version__}. The generated text is yours, under any terms.",
        "SPDX-License-Identifier: 0BSD",
    ]
    if target is Target.FPGA:
        lines.append("For FPGAs: sums and products are left to carry chains and multipliers.")
    for name, value in module.configuration:
        lines.append(f"  {name} = {value!r}")
    return "".join(f"// {line}\n" for line in lines) + "\n"
