"""The manifest of emitted Verilog, and the files for other tools that are written from it.

The published schema of the manifest is ``hdl/manifest.schema.json``.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hdl import __version__
from hdl.entry import Entry
from hdl.interface import Array, Integer, Interface, Leaf, Struct, Type, leaves
from hdl.parameters import named_fields, require
from hdl.plain_names import port_name
from hdl.system_rdl import system_rdl

if TYPE_CHECKING:
    from hdl.emit import EmittedModule
    from hdl.target import Target

SCHEMA = Path(__file__).with_name("manifest.schema.json")
"""JSON Schema (draft 7) of the manifest."""


@runtime_checkable
class WithSections(Protocol):
    """Parameters that add sections to the manifest, such as a register map."""

    def manifest_sections(self) -> dict[str, Any]:
        """Return the sections as JSON values, by name."""
        ...


def manifest(
    *,
    entry: Entry,
    preset: str | None,
    parameters: Any,
    target: "Target",
    modules: Sequence["EmittedModule"],
    verilog: Sequence[Path],
) -> dict[str, Any]:
    """Return the manifest of a design.

    Parameters
    ----------
    entry : Entry
        The unit.
    preset : str, optional
        Name of the preset; none for changed parameters.
    parameters : parameter object
        The unit's parameters.
    target : Target
        The technology that the Verilog is optimised for.
    modules : Sequence[EmittedModule]
        The emitted modules; the top is last.
    verilog : Sequence[Path]
        Their files, in the same order.

    Raises
    ------
    ValueError
        If a parameter's value has no form in JSON.
    """
    top = modules[-1]
    names = {port.name for port in top.ports}
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in verilog)).hexdigest()
    return {
        "manifest": 1,
        "generator": f"Systola {__version__}",
        "name": top.name,
        "unit": entry.top,
        "paper": entry.paper,
        "source": entry.source,
        "summary": entry.summary,
        "latency": entry.latency,
        "throughput": entry.throughput,
        "preset": preset,
        "parameters": as_json(parameters),
        "target": str(target),
        "verilog": {"files": [file.name for file in verilog], "sha256": digest},
        "clocks": [{"port": "clk", "edge": "rising"}] if "clk" in names else [],
        "resets": (
            [{"port": "rst", "clock": "clk", "active": "high", "synchronous": True}]
            if "rst" in names
            else []
        ),
        "streams": [
            {
                "name": one.name,
                "direction": one.direction,
                "payload": one.payload,
                "valid": one.valid,
                "ready": one.ready,
                "type": _type(one.kind),
            }
            for one in top.interface.streams
        ],
        "ports": [
            {"name": one.name, "direction": one.direction, "type": _type(one.kind)}
            for one in top.interface.ports
        ],
        "burst_ports": [
            {
                "name": one.name,
                "direction": "write" if one.writes else "read",
                "requests": f"{one.name}_requests",
                "words": f"{one.name}_words",
                "address_unit": "word",
                "address_bits": one.address_bits,
                "word_bits": one.word_bits,
                "longest_words": one.longest,
            }
            for one in top.interface.bursts
        ],
        "memories": list(_memories(modules)),
        **(parameters.manifest_sections() if isinstance(parameters, WithSections) else {}),
    }


def write_documents(values: dict[str, Any], interface: Interface) -> dict[str, str]:
    """Return the texts of the manifest and of the files derived from it, by file name.

    Raises
    ------
    ValueError
        If two names in the C header or in the package would be equal.
    """
    name = values["name"]
    texts = {
        f"{name}.json": json.dumps(values, indent=1) + "\n",
        f"{name}.h": c_header(name, interface),
        f"{name}_pkg.sv": systemverilog_package(name, interface),
    }
    if "register_map" in values:
        texts[f"{name}.rdl"] = system_rdl(name, values["register_map"])
    return texts


def c_header(top: str, interface: Interface) -> str:
    """Return a C header with offset, width and mask of each field.

    Bit 0 of a payload is the least significant bit of its first byte. A mask applies to the field
    after the shift by its offset; fields above 64 bits have none.

    Raises
    ------
    ValueError
        If two macros would have one name.
    """
    macros = list(_macros(top.upper(), interface))
    _require_distinct([name for name, _value in macros], top)
    guard = f"{top.upper()}_H"
    lines = [
        f"/* {top}: bit offsets of payload fields. Generated by Systola {__version__}.",
        "   SPDX-License-Identifier: 0BSD */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdint.h>",
        *(f"#define {name} {value}" for name, value in macros),
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def systemverilog_package(top: str, interface: Interface) -> str:
    """Return a package with one packed type per stream or port, and its width.

    Raises
    ------
    ValueError
        If two types, or two fields of a struct, would have one name.
    """
    names, lines = list[str](), list[str]()
    for name, _direction, kind in interface.typed:
        _declare(f"{name}_t", kind, names, lines)
        width = f"{name.upper()}_BITS"
        names.append(width)
        lines.append(f"  localparam int unsigned {width} = {kind.width};")
    _require_distinct(names, top)
    return "\n".join(
        [
            f"// {top}_pkg: types of the streams and ports of {top}.",
            f"// Generated by Systola {__version__}. SPDX-License-Identifier: 0BSD",
            "/* verilator lint_off UNUSEDPARAM */",
            f"package {top}_pkg;",
            *(lines or ["  localparam int unsigned STREAMS = 0;"]),
            "endpackage",
            "/* verilator lint_on UNUSEDPARAM */",
            "",
        ]
    )


def as_json(value: Any) -> Any:
    """Return a parameter's value as JSON: objects by field name, enumerations by member name.

    Raises
    ------
    ValueError
        If the value has no form in JSON.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: as_json(getattr(value, one.name)) for one in named_fields(value)}
    if isinstance(value, Mapping):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        items = [as_json(one) for one in value]
        return sorted(items) if isinstance(value, frozenset | set) else items
    if isinstance(value, Enum):
        return value.name.lower()
    plain = value is None or isinstance(value, bool | int | float | str)
    require(plain, "a parameter in a manifest must be a number, a text or a record", value)
    return value


def _type(kind: Type) -> dict[str, Any]:
    """Return a type of the interface as JSON."""
    if isinstance(kind, Integer):
        found = {"kind": "integer", "width": kind.width, "signed": kind.signed}
        if kind.values:
            found["values"] = dict(kind.values)
        if kind.fraction_bits is not None:
            found["fraction_bits"] = kind.fraction_bits
        return found
    if isinstance(kind, Array):
        return {
            "kind": "array",
            "width": kind.width,
            "count": kind.count,
            "stride": kind.element.width,
            "element": _type(kind.element),
        }
    fields = [{"name": n, "offset": o, "type": _type(one)} for n, o, one in kind.offsets]
    return {"kind": "struct", "width": kind.width, "fields": fields}


def _memories(modules: Sequence["EmittedModule"]) -> Iterator[dict[str, Any]]:
    """Yield each memory with its ports and the number of copies in the whole design."""
    cells: dict[str, Counter[str]] = {}
    ports: dict[tuple[str, str], Counter[str]] = {}
    for module in modules:
        part = kind = ""
        for words in map(str.split, module.rtlil.splitlines()):
            if words[:1] == ["module"]:
                part = words[1][1:]
                cells[part] = Counter()
            elif words[:1] == ["cell"]:
                kind = words[1]
                cells[part][kind.removeprefix("\\")] += 1
            elif words[:2] == ["parameter", "\\MEMID"]:
                memory = words[2].strip('"').lstrip("\\")
                ports.setdefault((part, memory), Counter())[kind] += 1
    # Children precede their parents within a file and across files.
    copies = Counter({modules[-1].name: 1})
    for part in reversed(list(cells)):
        for child, number in cells[part].items():
            if child in cells:
                copies[child] += number * copies[part]
    for storage in (storage for module in modules for storage in module.memories):
        part, memory = storage.name.split(".", 1)
        kinds = ports.get((part, memory), Counter())
        yield {
            "module": part,
            "name": memory,
            "width": storage.width,
            "depth": storage.depth,
            "read_ports": sum(n for kind, n in kinds.items() if kind.startswith("$memrd")),
            "write_ports": sum(n for kind, n in kinds.items() if kind.startswith("$memwr")),
            "count": copies[part],
        }


def _macros(top: str, interface: Interface) -> Iterator[tuple[str, str]]:
    """Yield name and value of each macro.

    Every name starts with the module's in capitals, so none is a keyword of C.
    """
    for name, _direction, kind in interface.typed:
        stem = f"{top}_{name.upper()}"
        yield f"{stem}_BITS", str(kind.width)
        yield f"{stem}_BYTES", str(-(-kind.width // 8))
        for leaf in leaves(kind):
            yield from _leaf_macros(stem, leaf)


def _leaf_macros(stem: str, leaf: Leaf) -> Iterator[tuple[str, str]]:
    name = "_".join([stem, *(_identifier(part).upper() for part in leaf.path or ("value",))])
    width = leaf.integer.width
    yield f"{name}_OFFSET", str(leaf.offset)
    yield f"{name}_WIDTH", str(width)
    yield f"{name}_SIGNED", str(int(leaf.integer.signed))
    if leaf.integer.fraction_bits is not None:
        yield f"{name}_FRACTION_BITS", str(leaf.integer.fraction_bits)
    if width <= 64:
        yield f"{name}_MASK", f"UINT64_C({(1 << width) - 1:#x})"
    for level, (count, stride) in enumerate(leaf.arrays):
        number = str(level) if len(leaf.arrays) > 1 else ""
        yield f"{name}_COUNT{number}", str(count)
        yield f"{name}_STRIDE{number}", str(stride)
    for value, code in leaf.integer.values:
        yield f"{name}_IS_{value.upper()}", str(code)


def _declare(name: str, kind: Type, names: list[str], lines: list[str]) -> None:
    """Append the declaration of a type, after those of the types in it."""
    if isinstance(kind, Integer):
        declared = f"logic {'signed ' * kind.signed}[{kind.width - 1}:0] {name};"
    elif isinstance(kind, Array):
        element = f"{name.removesuffix('_t')}_element_t"
        _declare(element, kind.element, names, lines)
        declared = f"{element} [{kind.count - 1}:0] {name};"
    else:
        declared = _struct(name, kind, names, lines)
    names.append(name)
    lines.append(f"  typedef {declared}")


def _struct(name: str, kind: Struct, names: list[str], lines: list[str]) -> str:
    fields = [(_identifier(part), one) for part, one in kind.fields if one.width]
    _require_distinct([part for part, _one in fields], name)
    declared = []
    for part, one in fields:
        inner = f"{name.removesuffix('_t')}_{part}_t"
        _declare(inner, one, names, lines)
        declared.append(f"    {inner} {part};")
    # SystemVerilog places the first field of a packed struct in the most significant bits.
    return "\n".join(["struct packed {", *reversed(declared), f"  }} {name};"])


def _identifier(name: str) -> str:
    """Return a field's name as an identifier: a keyword gets the ending that ports get."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    return port_name((word if word[:1].isalpha() else f"field_{word}",))


def _require_distinct(names: Sequence[str], where: str) -> None:
    repeated = [name for name, number in Counter(names).items() if number > 1]
    require(not repeated, f"names derived from the fields of {where} must be distinct", repeated)
