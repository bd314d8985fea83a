"""Replacement of a design's memories by wrappers of macros.

The memories of an emitted module are RTLIL objects with explicit ports, so that no pattern has to
be recognised. A memory that a wrapper implements exactly becomes an instance of the wrapper in its
module: one instance per part of the word that has a write enable of its own. All other memories
remain, each with the rule that it breaks.
"""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from hdl.emit import Emission, EmittedModule, Port, write_verilog
from hdl.errors import UserError
from hdl.rtlil import Cell, Module, Signal, Wire, read_modules
from hdl.target import Target
from synth.macros.macro_list import Macro, MacroList
from synth.macros.wrapper import Wrapper, black_box, cheapest, model

DOUBLE_CLOCK = "clk_double"
"""Input of a design whose macros have twice the clock; it rises with each edge of ``clk``."""


@dataclass(frozen=True, kw_only=True)
class MappedMemory:
    """A memory of the design, and what it becomes.

    Parameters
    ----------
    name : str
        Name in the Verilog: ``module.memory``.
    depth, width : int
        Number of words, and bits of a word.
    reads, writes : int
        Number of read ports and of write ports.
    count : int
        Number of copies in the whole design.
    wrappers : tuple[Wrapper, ...]
        A wrapper per part of the word; none if the memory is not mapped.
    reason : str
        The rule that a memory breaks that is not mapped; else empty.
    """

    name: str
    depth: int
    width: int
    reads: int
    writes: int
    count: int
    wrappers: tuple[Wrapper, ...] = ()
    reason: str = ""

    @property
    def bits(self) -> int:
        """Capacity in bits."""
        return self.depth * self.width

    @property
    def macro_bits(self) -> int:
        """Capacity of its macros in bits."""
        return sum(wrapper.macro_bits for wrapper in self.wrappers)

    @property
    def macro_area(self) -> float | None:
        """Area of its macros in um2; None if the list does not have all areas."""
        areas = [wrapper.macro_area for wrapper in self.wrappers]
        return None if None in areas else sum(filter(None, areas))

    @property
    def flip_flops(self) -> int:
        """Flip-flops of its wrappers, or its bits if it is not mapped."""
        return sum(one.flip_flops for one in self.wrappers) if self.wrappers else self.bits

    @property
    def row(self) -> tuple[str, ...]:
        """The memory's row of a table with the columns `COLUMNS`."""
        if self.wrappers:
            number = len(self.wrappers)
            one = self.wrappers[0]
            parts = [f"{number} parts of"] * (number > 1) + [f"{one.copies} copies of"] * (
                one.copies > 1
            )
            macros = " ".join([*parts, f"{one.rows} x {one.columns} {one.macro.name}"])
            share = f"{self.macro_bits / self.bits:.1f}"
            area = "-" if self.macro_area is None else f"{self.macro_area:,.0f}"
        else:
            macros, share, area = f"flip-flops: {self.reason}", "-", "-"
        return (
            self.name,
            f"{self.depth} x {self.width}",
            f"{self.reads}R{self.writes}W",
            str(self.count),
            macros,
            share,
            area,
            str(self.flip_flops),
        )


COLUMNS = (
    "memory",
    "words x bits",
    "ports",
    "count",
    "macros (depth x width), or the rule that is broken",
    "macro bits per bit",
    "area of the macros, um2",
    "flip-flops",
)


@dataclass(frozen=True, kw_only=True)
class MacroMapping:
    """A design whose memories are mapped to macros.

    Parameters
    ----------
    macros : MacroList
        The list of macros.
    memories : tuple[MappedMemory, ...]
        All memories of the design.
    modules : tuple[EmittedModule, ...]
        The modules whose memories are replaced.
    target : Target
        The target of the Verilog.
    """

    macros: MacroList
    memories: tuple[MappedMemory, ...]
    modules: tuple[EmittedModule, ...]
    target: Target

    @property
    def wrappers(self) -> tuple[Wrapper, ...]:
        """The distinct wrappers, by name."""
        found = {one.name: one for memory in self.memories for one in memory.wrappers}
        return tuple(found[name] for name in sorted(found))

    @property
    def double_clock(self) -> bool:
        """Whether the design has the input `DOUBLE_CLOCK`."""
        return any(wrapper.doubled for wrapper in self.wrappers)

    @property
    def used(self) -> tuple[Macro, ...]:
        """The macros that occur, by name."""
        found = {one.macro.name: one.macro for one in self.wrappers}
        return tuple(found[name] for name in sorted(found))

    @property
    def summary(self) -> str:
        """Totals of the whole design, in one sentence."""
        mapped = [memory for memory in self.memories if memory.wrappers]
        rest = [memory for memory in self.memories if not memory.wrappers]
        macros = sum(memory.count * sum(one.count for one in memory.wrappers) for memory in mapped)
        known = all(memory.macro_area is not None for memory in mapped)
        area = f" and {_total(mapped, 'macro_area'):,.0f} um2" if known and mapped else ""
        return (
            f"{macros:,} macros with {_total(mapped, 'macro_bits'):,} bits{area} for "
            f"{_total(mapped, 'bits'):,} memory bits, and {_total(mapped, 'flip_flops'):,} "
            f"flip-flops in their wrappers; {_total(rest, 'bits'):,} memory bits remain flip-flops"
            f"{f'; macros at {DOUBLE_CLOCK}' * self.double_clock}"
        )

    def write(self, rtl: Path, macros: Path) -> list[str]:
        """Write the changed modules, the wrappers, and the macros' black boxes and models.

        Parameters
        ----------
        rtl : Path
            Folder of the design; files of changed modules are replaced.
        macros : Path
            Folder for black boxes ``<macro>.v`` and models ``<macro>_model.v``.

        Returns
        -------
        list[str]
            File names of the wrappers, in `rtl`.
        """
        if self.modules:
            with tempfile.TemporaryDirectory(prefix="macros-") as scratch:
                changed = _Changed(self.modules, self.target)
                for path in write_verilog(changed, Path(scratch) / "rtl")[:-1]:
                    (rtl / path.name).write_text(path.read_text())
        for wrapper in self.wrappers:
            (rtl / f"{wrapper.name}.v").write_text(wrapper.verilog)
        if self.used:
            macros.mkdir()
        for macro in self.used:
            (macros / f"{macro.name}.v").write_text(black_box(macro))
            (macros / f"{macro.name}_model.v").write_text(model(macro))
        return [f"{wrapper.name}.v" for wrapper in self.wrappers]


def map_memories(
    modules: Sequence[EmittedModule],
    macros: MacroList,
    *,
    counts: Mapping[str, int],
    target: Target = Target.ASIC,
) -> MacroMapping:
    """Map the memories of a design to macros.

    Parameters
    ----------
    modules : Sequence[EmittedModule]
        The emitted modules.
    macros : MacroList
        The macros.
    counts : Mapping[str, int]
        Number of copies in the whole design by memory, named ``module.memory``; see
        `manifest_counts`.
    target : Target
        The target of the Verilog.

    Raises
    ------
    UserError
        If a module of the design has the name of a macro or of a wrapper.
    """
    memories: list[MappedMemory] = []
    changed: dict[str, EmittedModule] = {}
    for module in modules:
        if not module.memories:
            continue
        parts = read_modules(line.strip() for line in module.rtlil.splitlines())
        own = [one for part in parts for one in _replace(part, macros, counts)]
        memories += own
        if any(memory.wrappers for memory in own):
            changed[module.name] = replace(module, rtlil="\n".join(map(str, parts)))
    doubled = {one.name for memory in memories for one in memory.wrappers if one.doubled}
    changed |= _with_double_clock([changed.get(one.name, one) for one in modules], doubled)
    mapping = MacroMapping(
        macros=macros,
        memories=tuple(memories),
        modules=tuple(changed[one.name] for one in modules if one.name in changed),
        target=target,
    )
    names = [name for module in modules for name in module.parts]
    names += [one.name for one in (*mapping.wrappers, *mapping.used)]
    for name, number in Counter(names).items():
        if number > 1:
            raise UserError(f"modules of the design and MACROS must have distinct names: {name}")
    return mapping


def manifest_counts(path: Path) -> dict[str, int]:
    """Return the copies of each memory in the whole design, from the design's manifest."""
    memories = json.loads(path.read_text())["memories"]
    return {f"{one['module']}.{one['name']}": one["count"] for one in memories}


def _with_double_clock(
    modules: Sequence[EmittedModule], users: set[str]
) -> dict[str, EmittedModule]:
    """Add the input `DOUBLE_CLOCK` to all modules above the `users`; return these by name.

    Raises
    ------
    UserError
        If such a module has a wire of this name.
    """
    users, found, wire = set(users), dict[str, EmittedModule](), f"\\{DOUBLE_CLOCK}"
    for module in modules:
        # Each module follows those that it instantiates, inside a file as well.
        if users.isdisjoint(re.findall(r"cell \\(\S+)", module.rtlil)):
            continue
        parts = read_modules(line.strip() for line in module.rtlil.splitlines())
        for part in parts:
            cells = [cell for cell in part.cells if cell.kind.removeprefix("\\") in users]
            if not cells:
                continue
            if wire in part.wires:
                raise UserError(f"double_clock needs the name {DOUBLE_CLOCK} in {part.name[1:]}")
            position = max(one.position for one in part.wires.values()) + 1
            part.wires[wire] = Wire(1, "input", position)
            for cell in cells:
                cell.connections[DOUBLE_CLOCK] = wire
            users.add(part.name[1:])
        ports = module.ports
        if module.name in users:
            ports = (*ports, Port((DOUBLE_CLOCK,), "input", 1))
        found[module.name] = replace(module, rtlil="\n".join(map(str, parts)), ports=ports)
    return found


class _Changed(Emission):
    """Changed modules, as `write_verilog` takes them."""

    def __init__(self, modules: Sequence[EmittedModule], target: Target) -> None:
        self.target, self.sources = target, False
        self._changed = list(modules)

    @property
    def modules(self) -> list[EmittedModule]:
        """The modules."""
        return self._changed


def _total(memories: Sequence[MappedMemory], attribute: str) -> Any:
    return sum(memory.count * getattr(memory, attribute) for memory in memories)


def _replace(
    module: Module, macros: MacroList, counts: Mapping[str, int]
) -> Iterator[MappedMemory]:
    """Replace the memories of a module that macros implement, and yield all memories."""
    for memory, options in list(module.memories.items()):
        words = options.split()
        width, depth = (int(words[words.index(one) + 1]) for one in ("width", "size"))
        ports = [cell for cell in module.cells if _memory_of(cell) == memory]
        reads = [cell for cell in ports if cell.kind.startswith("$memrd")]
        writes = [cell for cell in ports if cell.kind.startswith("$memwr")]
        name = f"{module.name[1:]}.{memory[1:]}"
        found = MappedMemory(
            name=name,
            depth=depth,
            width=width,
            reads=len(reads),
            writes=len(writes),
            count=counts.get(name, 1),
        )
        if reason := _broken_rule(depth, width, ports, macros):
            yield replace(found, reason=reason)
            continue
        instances = list(_instances(module, memory, depth, reads[0], writes[0], macros))
        mapped = replace(found, wrappers=tuple(wrapper for _cell, wrapper in instances))
        most = macros.maximum_ratio
        if most and mapped.macro_bits > most * mapped.bits:
            yield replace(found, reason=f"needs more than {most:,} macro bits per bit")
            continue
        module.cells = [cell for cell in module.cells if cell not in ports]
        module.cells += [cell for cell, _wrapper in instances]
        del module.memories[memory]
        yield mapped


def _memory_of(cell: Cell) -> str:
    """Return the name of the memory of which a cell is a port; empty for other cells."""
    return cell.parameters.get("MEMID", "").strip('"').replace("\\\\", "\\")


def _broken_rule(depth: int, width: int, ports: Sequence[Cell], macros: MacroList) -> str:
    """Return the first rule for exact wrappers that a memory breaks; empty if it breaks none."""
    reads = [cell for cell in ports if cell.kind.startswith("$memrd")]
    writes = [cell for cell in ports if cell.kind.startswith("$memwr")]
    if len(reads) + len(writes) != len(ports):
        return "has initial contents"
    if len(reads) != 1 or len(writes) != 1:
        return "has not one read port and one write port"
    read = reads[0]
    if not all(_number(cell, "CLK_ENABLE") for cell in ports):
        return "reads without a clock edge"
    clocks = {cell.connections["CLK"] for cell in ports}
    if len(clocks) != 1 or not all(_number(cell, "CLK_POLARITY") for cell in ports):
        return "has not one clock with a rising edge"
    if any(read.connections[one] != "1'0" for one in ("ARST", "SRST")):
        return "has a reset of the read word"
    if set(read.parameters["INIT_VALUE"].partition("'")[2]) - {"x"}:
        return "has an initial value of the read word"
    if _number(read, "TRANSPARENCY_MASK"):
        return "reads the word after a write of the same cycle"
    if depth < 2:
        return "has fewer than 2 words"
    if depth * width < macros.minimum_bits:
        return f"has fewer than {macros.minimum_bits:,} bits"
    return ""


def _number(cell: Cell, parameter: str) -> int:
    """Return a parameter as a number."""
    text = cell.parameters[parameter]
    size, quote, bits = text.partition("'")
    return int(bits, 2) if quote else int(size)


def _instances(
    module: Module, memory: str, depth: int, read: Cell, write: Cell, macros: MacroList
) -> Iterator[tuple[Cell, Wrapper]]:
    """Yield an instance of a wrapper per part of the word with a write enable of its own."""
    enable = Signal.read(write.connections["EN"], module.wires)
    data = Signal.read(write.connections["DATA"], module.wires)
    word = Signal.read(read.connections["DATA"], module.wires)
    width = int(write.parameters["WIDTH"])
    spans = [
        (str(key), list(bits))
        for key, bits in groupby(range(width), lambda bit: str(enable.part(bit, bit + 1)))
    ]
    for index, (key, bits) in enumerate(spans):
        low, high = bits[0], bits[-1] + 1
        wrapper = cheapest(depth, high - low, macros)
        name = memory if len(spans) == 1 else module.free_name(f"{memory}_{index}")
        connections = {
            "clk": read.connections["CLK"],
            "read_enable": read.connections["EN"],
            "read_address": read.connections["ADDR"],
            "read_data": str(word.part(low, high)),
            "write_enable": key,
            "write_address": write.connections["ADDR"],
            "write_data": str(data.part(low, high)),
        }
        yield Cell(f"\\{wrapper.name}", name, connections=connections), wrapper
