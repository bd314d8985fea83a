# amaranth: UnusedElaboratable=no
"""Emission of a unit as Verilog-2005: one file with a header per module, and a file list.

The output depends only on the design: it contains no date, no absolute path, and no order of a hash
table.
"""

import gc
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amaranth.hdl import ClockSignal, Fragment, Instance, ResetSignal, Value
from amaranth.lib.wiring import In

from hdl import __version__
from hdl.conversion import convert
from hdl.interface import Interface, bit_table, describe
from hdl.output_folder import output_folder
from hdl.paths import ROOT
from hdl.plain_names import name_plainly, port_name
from hdl.processes import settle
from hdl.rtlil import Module, read_modules
from hdl.target import Target, noted_reads, writing_for
from hdl.tidy import drop_unread, name_fields, share_operators
from hdl.unit import Unit
from hdl.verilog_names import require_module_name
from hdl.yosys import run_yosys

LINE_LENGTH = 100
"""Maximum length of a line of Verilog, in characters."""

_FIRST_NUMBER = "autoidx 1000000000"
"""First number for cells that Yosys creates. Yosys writes cells sorted by name; if all numbers have
equally many digits, the order is that of creation and independent of preceding modules."""


@dataclass(frozen=True)
class Port:
    """One port of an emitted module.

    Parameters
    ----------
    path : tuple[str, ...]
        The member's path in the unit's signature.
    direction : str
        ``"input"`` or ``"output"``.
    width : int
        Width in bits.
    """

    path: tuple[str, ...]
    direction: str
    width: int

    @property
    def name(self) -> str:
        """Verilog name: the path joined with underscores, see `hdl.plain_names.port_name`."""
        return port_name(self.path)


@dataclass(frozen=True)
class Storage:
    """A memory of an emitted module.

    Parameters
    ----------
    name : str
        Name in the Verilog, with that of its module: ``module.memory``.
    width : int
        Width of a word in bits.
    depth : int
        Number of words.
    """

    name: str
    width: int
    depth: int

    @property
    def bits(self) -> int:
        """Capacity in bits."""
        return self.width * self.depth


@dataclass(frozen=True)
class EmittedModule:
    """One Verilog file: the module's name, the unit's identity, ports, RTLIL and interface.

    `parts` are the names of all modules in the file: the unit's, and those of components that are
    no units. `uses` are the modules of the units that it instantiates.
    """

    name: str
    summary: str
    identity: tuple[Any, ...]
    ports: tuple[Port, ...]
    parts: tuple[str, ...]
    uses: tuple["EmittedModule", ...]
    rtlil: str
    interface: Interface

    @property
    def configuration(self) -> tuple[tuple[str, Any], ...]:
        """The unit's constructor arguments."""
        return self.identity[1:]

    @property
    def memories(self) -> tuple[Storage, ...]:
        """The memories of this file, without those of the units that it instantiates."""
        found, part = list[Storage](), self.name
        for line in re.findall(r"^ *(?:module|memory) .*$", self.rtlil, re.M):
            word, *options, name = line.split()
            if word == "module":
                part = name[1:]
            else:
                width, depth = (int(options[options.index(one) + 1]) for one in ("width", "size"))
                found.append(Storage(f"{part}.{name[1:]}", width, depth))
        return tuple(found)


_emitted: dict[tuple[Any, ...], EmittedModule] = {}
"""The modules that this process has emitted: designs share most of their modules.

The key is the unit's identity, its text, the module's name and the target. A module that does not
depend on the target is also stored with None as target.
"""


class Emission:
    """The platform that turns a tree of units into a set of modules.

    Parameters
    ----------
    top : Unit
        The design.
    name : str, optional
        Name of the top module; the unit's own `module_name` by default.
    target : Target
        The technology that the Verilog is optimised for.
    sources : bool
        Whether `src` attributes in the Verilog refer to the lines of Python that generate it.

    Members
    -------
    modules : list[EmittedModule]
        Every distinct module, each before those that instantiate it; the top is last.

    Raises
    ------
    ValueError
        If two modules, or two ports of one module, would have equal names, or a module's name is
        not legal in Verilog.
    """

    def __init__(
        self,
        *,
        top: Unit,
        name: str | None = None,
        target: Target = Target.ASIC,
        sources: bool = False,
    ) -> None:
        self.target = target
        self.sources = sources
        self._by_identity: dict[tuple[Any, ...], EmittedModule] = {}
        self._being_emitted: list[tuple[Any, dict[str, EmittedModule]]] = [(self, {})]
        with writing_for(target), _no_collection():
            self._emit(top, top.module_name if name is None else name)
            # Elaborate the top, because Amaranth warns of components that are never elaborated and
            # a cached design is not.
            Fragment.get(top, self)

    @property
    def modules(self) -> list[EmittedModule]:
        """Every distinct module, each before those that instantiate it."""
        return list(self._by_identity.values())

    def boundary(self, unit: Unit) -> Instance | None:
        """Return an instance of the unit's module, or None while that module is being emitted."""
        parent, uses = self._being_emitted[-1]
        if parent is unit:
            return None
        module = self._by_identity.get(unit.identity) or self._emit(unit, unit.module_name)
        uses[module.name] = module
        nets = {port.path: value for port, value in _ports(unit)}
        connections = [(port.direction[0], port.name, nets[port.path]) for port in module.ports]
        return Instance(module.name, *connections)

    def _emit(self, unit: Unit, name: str) -> EmittedModule:
        require_module_name(name)
        # Equal values, such as 1 and True, may have different text in the Verilog header.
        key = (unit.identity, repr(unit.identity), name)
        # With `sources`, a port's attribute refers to the design that instantiates the unit, so
        # designs cannot share the module.
        kept = {} if self.sources else _emitted
        module = kept.get((*key, self.target)) or self._adopted(kept.get((*key, None)))
        if module is None:
            with noted_reads() as reads:
                module = self._converted(unit, name)
            if not reads:
                kept[*key, None] = module
        kept[*key, self.target] = module
        self._add(module)
        return module

    def _adopted(self, module: EmittedModule | None) -> EmittedModule | None:
        """Return a module that another target has, with the submodules of this target.

        None if there is no such module, or if a submodule has other ports for this target, so that
        the module must be converted.
        """
        if module is None:
            return None
        uses = [
            self._emit(used.identity[0](**dict(used.configuration)), used.name)
            for used in module.uses
        ]
        if [own.ports for own in uses] != [used.ports for used in module.uses]:
            return None
        return replace(module, uses=tuple(uses))

    def _converted(self, unit: Unit, name: str) -> EmittedModule:
        """Convert a unit to its module; the conversion emits the units in it first."""
        uses: dict[str, EmittedModule] = {}
        self._being_emitted.append((unit, uses))
        text = convert(unit, name=name, platform=self, sources=self.sources)
        self._being_emitted.pop()
        # Amaranth writes a module before its parts.
        modules = read_modules(_lines(text, self.sources))[::-1]
        ports = tuple(_place_ports(modules[-1], [port for port, _value in _ports(unit)]))
        self._make_readable(modules, ports)
        summary = (type(unit).__doc__ or "").strip().split("\n")[0]
        parts = tuple(part.name[1:] for part in modules)
        text = "\n".join(map(str, modules))
        interface = describe(unit.signature, {port.path: port.name for port in ports})
        return EmittedModule(
            name, summary, unit.identity, ports, parts, tuple(uses.values()), text, interface
        )

    def _add(self, module: EmittedModule) -> None:
        """Add a module after those that it uses."""
        if module.identity in self._by_identity:
            return
        for used in module.uses:
            self._add(used)
        for part in module.parts:
            if any(part in other.parts for other in self.modules) or module.parts.count(part) > 1:
                raise ValueError(f"module names must be distinct, not {part!r} for two modules")
        self._by_identity[module.identity] = module

    def _make_readable(self, modules: list[Module], ports: tuple[Port, ...]) -> None:
        """Simplify and rename a unit's modules, of which the unit's own is last."""
        outputs = {
            f"\\{module.name}": {port.name for port in module.ports if port.direction == "output"}
            for module in self.modules
        }
        renamed: dict[str, dict[str, str]] = {}
        for module in modules:
            outputs[module.name] = {
                name[1:] for name, wire in module.wires.items() if wire.direction == "output"
            }
        for module in modules:
            share_operators(module)
            name_fields(module, outputs)
            settle(module)
            drop_unread(module, outputs)
        for module in modules:
            own = {"__".join(port.path): port.name for port in ports}
            known = own if module is modules[-1] else {}
            name = module.name[1:]
            renamed[name] = name_plainly(module, known, renamed)


def write_verilog(
    emission: Emission,
    directory: Path,
    documents: Callable[[Sequence[Path]], Mapping[str, str]] | None = None,
) -> list[Path]:
    """Write one ``.v`` file per module and the file list ``<top>.f`` into a directory.

    Only files of an earlier emission are replaced, see `hdl.output_folder`.

    Parameters
    ----------
    emission : Emission
        The modules.
    directory : Path
        Output folder.
    documents : Callable, optional
        Function from the written Verilog files to the texts of further files, by file name.

    Returns
    -------
    list[Path]
        The Verilog files, each before those that instantiate it, and the file list last.

    Raises
    ------
    hdl.yosys.YosysError
        If Yosys cannot write the design.
    UserError
        If `hdl.output_folder` rejects the directory.
    """
    with output_folder(directory) as new:
        names = [module.name for module in emission.modules]
        plain = "" if emission.sources else "-noattr"
        writes = (
            [
                f"select {' '.join(module.parts)}",
                f"write_verilog {plain} -selected {module.name}.v",
                "select -clear",
            ]
            for module in emission.modules
        )
        text = "\n".join(module.rtlil for module in emission.modules)
        (new / "design.il").write_text(f"{_FIRST_NUMBER}\n{text}")
        run_yosys(
            [
                "read_rtlil design.il",
                "proc -nomux -norom -noopt",
                "memory_collect",
                *(command for write in writes for command in write),
            ],
            directory=new,
        )
        (new / "design.il").unlink()
        for module in emission.modules:
            file = new / f"{module.name}.v"
            file.write_text(_header(module, emission.target) + _finish(file.read_text()))
        top = emission.modules[-1].name
        (new / f"{top}.f").write_text("".join(f"{name}.v\n" for name in names))
        if documents is not None:
            for name, text in documents([new / f"{name}.v" for name in names]).items():
                (new / name).write_text(text)
    return [directory / f"{name}.v" for name in names] + [directory / f"{top}.f"]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable Python's garbage collector, which takes a third of the time for a large netlist."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _ports(unit: Unit) -> Iterator[tuple[Port, Value]]:
    """Yield every port that a unit may have, with the port's value inside the unit."""
    yield Port(("clk",), "input", 1), ClockSignal()
    yield Port(("rst",), "input", 1), ResetSignal()
    for path, member, value in unit.signature.flatten(unit):
        direction = "input" if member.flow is In else "output"
        value = Value.cast(value)
        yield Port(tuple(map(str, path)), direction, len(value)), value


def _place_ports(module: Module, order: list[Port]) -> Iterator[Port]:
    """Set the positions of a module's ports, and yield those ports that the module has."""
    for position, port in enumerate(order, 1):
        wire = module.wires.get(f"\\{'__'.join(port.path)}")
        if wire and wire.direction:
            wire.position = position
            yield port


def _lines(text: str, sources: bool) -> Iterator[str]:
    """Yield the lines of Amaranth's RTLIL, without attributes other than sources in `hdl/`."""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("attribute "):
            line = line.replace(f'\\src "{ROOT}/', '\\src "')
            if not sources or not re.match(r'attribute \\src "hdl/(?!emit)', line):
                continue
        yield line


def _finish(text: str) -> str:
    """Remove the writer's header and declarations without bits, and break long lines."""
    text = re.sub(r"\A/\* Generated by Yosys.*?\*/\n+", "", text, flags=re.S)
    text = re.sub(r"^(?:  \(\*.*\*\)\n)?  (?:wire|reg) \[-1:0\].*\n", "", text, flags=re.M)
    # With this register, blocks that read only constants run once.
    text = re.sub(r"\\\$auto\$verilog_backend\S+ ?", "_start_", text)
    text = re.sub(r"(?<='h)0+(?=[0-9a-f])", "", text)
    lines = text.splitlines(keepends=True)
    for end in (number for number, line in enumerate(lines) if line == "endmodule\n"):
        # Yosys writes a module's connections after its cells, in no defined order.
        start = end
        while lines[start - 1].startswith("  assign "):
            start -= 1
        lines[start:end] = sorted(lines[start:end])
    return "".join(map(_broken, lines))


def _broken(line: str) -> str:
    """Break a long line at spaces, unless it contains a string."""
    if len(line) <= LINE_LENGTH + 1 or '"' in line:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return (
        textwrap.fill(
            line.strip(),
            LINE_LENGTH,
            initial_indent=indent,
            subsequent_indent=f"{indent}    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def _header(module: EmittedModule, target: Target) -> str:
    """Return the comment at the beginning of a Verilog file."""
    lines = [
        f"{module.name}: {module.summary}",
        f"Generated by Systola {__version__}. The generated text is yours, under any terms.",
        "SPDX-License-Identifier: 0BSD",
    ]
    if target is Target.FPGA:
        lines.append("For FPGAs: sums and products are left to carry chains and multipliers.")
    for name, value in module.configuration:
        lines.append(f"  {name} = {value!r}")
    lines += bit_table(module.interface)
    return "".join(_broken_comment(line) for line in lines) + "\n"


class _CommentWrapper(textwrap.TextWrapper):
    """A wrapper that breaks lines at blanks and after opening parentheses.

    The representation of a nested parameter object starts with the names of several classes and
    members, without a blank.
    """

    wordsep_simple_re = re.compile(r"( +|(?<=\())")


def _broken_comment(line: str) -> str:
    """Return a line of a comment, broken if it is too long."""
    inner = len(line) - len(line.lstrip()) + 2
    wrapper = _CommentWrapper(
        LINE_LENGTH,
        initial_indent="// ",
        subsequent_indent="// " + " " * inner,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.fill(line) + "\n"
