"""The interface manifest, against Amaranth's layouts, Yosys' ports, Verilator and a C compiler."""

import hashlib
import inspect
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from amaranth.hdl import Const, Shape, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out, Signature

from hdl.arith.fixed_point import FixedPoint
from hdl.catalog import CATALOG, entry_named
from hdl.emitted import emit_unit
from hdl.entry import Entry
from hdl.interface import BurstInterface, Interface, describe, leaves
from hdl.manifest import SCHEMA, as_json, c_header, systemverilog_package
from hdl.memory.burst_port import BurstReadPort, BurstWritePort
from hdl.plain_names import port_name
from hdl.target import Target
from hdl.yosys import run_yosys
from testbenches.lint import lint_files

TINY = [(entry, "tiny") for entry in CATALOG if "tiny" in entry.presets]
QUICK = {
    "activation_functions",
    "argmax",
    "kv_edram",
    "systolic_evictor",
    "voting_engine",
    "weight_unpacker",
}
"""Units that the default suite emits for this test."""

assert {entry.top for entry in CATALOG} >= QUICK


class Mode(enum.Enum, shape=2):
    OFF = 0
    ON = 2


SIGNATURE = Signature(
    {
        "words": Out(
            stream.Signature(
                data.StructLayout(
                    {
                        "int": 3,
                        "lanes": data.ArrayLayout(
                            data.StructLayout({"value": Shape(5, True), "logic": 1}), 3
                        ),
                        "nothing": 0,
                        "mode": Mode,
                        "wide": 70,
                    }
                )
            )
        ),
        "level": In(range(9)),
    }
)
"""Keywords as fields, nested arrays, a field without bits, an enumeration."""


def interface_of(signature: Any) -> Interface:
    """Describe a signature as if each of its ports were a port of the module."""
    paths = [tuple(map(str, path)) for path, _member in flat(signature)]
    return describe(signature, {path: port_name(path) for path in paths})


def flat(signature: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield path and shape of each port by Amaranth's own iteration."""
    for name, member in signature.members.items():
        indices = [()]
        for size in member.dimensions:
            indices = [(*index, i) for index in indices for i in range(size)]
        for index in indices:
            inner = (*path, name, *index)
            if member.is_port:
                yield inner, member.shape
            else:
                yield from flat(member.signature, inner)


def settings(shape: Any) -> Iterator[tuple[str, Any, int]]:
    """Yield the path of the last element of each field, a value that sets only it, and its code."""
    if isinstance(shape, data.ArrayLayout):
        for path, value, code in settings(shape.elem_shape):
            empty = zero(shape.elem_shape)
            yield f"[{shape.length - 1}]{path}", [empty] * (shape.length - 1) + [value], code
    elif isinstance(shape, data.StructLayout):
        for name, field in shape:
            for path, value, code in settings(field.shape):
                others = {one: zero(f.shape) for one, f in shape if one != name}
                yield f".{port_name((name,))}{path}", {**others, name: value}, code
    elif width := Shape.cast(shape).width:
        codes = [int(one.value) for one in shape] if isinstance(shape, type(enum.Enum)) else []
        code = max(codes) if codes else (1 << width) - 1
        value = -1 if Shape.cast(shape).signed and not codes else code
        yield "", value, code


def zero(shape: Any) -> Any:
    """Return the value of a field whose bits are zero."""
    if isinstance(shape, data.ArrayLayout):
        return [zero(shape.elem_shape)] * shape.length
    if isinstance(shape, data.StructLayout):
        return {name: zero(field.shape) for name, field in shape}
    return 0


def packed(shape: Any, value: Any) -> int:
    """Return the bits of a value by Amaranth's own layout."""
    if isinstance(shape, data.Layout):
        constant = Value.cast(shape.const(value))
    else:
        constant = Const(value, Shape.cast(shape))
    assert isinstance(constant, Const)
    return constant.value & ((1 << len(constant)) - 1)


def checks(package: str, signature: Any) -> Iterator[str]:
    """Yield elaboration-time checks of a package's types against Amaranth's layouts."""
    number = 0
    for path, shape in flat(signature):
        *stem, last = map(str, path)
        width = Shape.cast(shape).width
        if not width or last in ("valid", "ready"):
            continue
        name = "_".join(stem) if last == "payload" else port_name((*stem, last))
        kind = f"{package}::{name}_t"
        yield f'  if ($bits({kind}) != {width}) $error("{kind}: bits");'
        for field, value, code in settings(shape):
            number += 1
            set_ = f"{package}_set{number}"
            yield f"  function automatic logic [{width - 1}:0] {set_}();"
            yield f"    {kind} v;"
            yield f"    v = '0; v{field} = {code.bit_length() or 1}'h{code:x}; return v;"
            yield "  endfunction"
            yield f"  localparam logic [{width - 1}:0] {set_.upper()} = {set_}();"
            expected = f"{width}'h{packed(shape, value):x}"
            yield f'  if ({set_.upper()} != {expected}) $error("{kind}{field}: offset");'


def verilator_errors(directory: Path, signatures: dict[str, Any]) -> str:
    """Return what Verilator reports on the packages of some interfaces, with their checks."""
    lines = []
    for name, signature in signatures.items():
        lines.append(systemverilog_package(name, interface_of(signature)))
    lines += ["/* verilator lint_off GENUNNAMED */", "module check;"]
    for name, signature in signatures.items():
        lines += checks(f"{name}_pkg", signature)
    lines += ["endmodule", ""]
    file = directory / "check.sv"
    file.write_text("\n".join(lines))
    return lint_files("check", [file])


def test_packages_place_each_field_where_amaranth_does(tmp_path: Path) -> None:
    signatures = {e.top: e.build("tiny").signature for e in CATALOG if "tiny" in e.presets}
    assert len(signatures) > len(CATALOG) - 5
    assert not verilator_errors(tmp_path, {"example": SIGNATURE, **signatures})


def test_headers_place_each_field_where_amaranth_does(tmp_path: Path) -> None:
    lines = [c_header("example", interface_of(SIGNATURE))]
    layout: Any = SIGNATURE.members["words"].signature.members["payload"].shape
    lanes = layout["lanes"].shape
    expected = {
        "EXAMPLE_WORDS_BITS": layout.size,
        "EXAMPLE_WORDS_INT_PORT_OFFSET": layout["int"].offset,
        "EXAMPLE_WORDS_LANES_VALUE_OFFSET": layout["lanes"].offset,
        "EXAMPLE_WORDS_LANES_VALUE_STRIDE": lanes.elem_shape.size,
        "EXAMPLE_WORDS_LANES_VALUE_COUNT": lanes.length,
        "EXAMPLE_WORDS_LANES_VALUE_MASK": 31,
        "EXAMPLE_WORDS_LANES_LOGIC_PORT_OFFSET": layout["lanes"].offset + 5,
        "EXAMPLE_WORDS_MODE_OFFSET": layout["mode"].offset,
        "EXAMPLE_WORDS_MODE_IS_ON": 2,
        "EXAMPLE_WORDS_WIDE_OFFSET": layout["wide"].offset,
        "EXAMPLE_LEVEL_VALUE_WIDTH": 4,
    }
    for entry, preset in TINY:
        signature = entry.build(preset).signature
        lines.append(c_header(f"{entry.top}_{preset}", interface_of(signature)))
        for path, shape in flat(signature):
            if path[-1] == "payload" and isinstance(shape, data.StructLayout):
                stem = "_".join((entry.top, preset, *map(str, path[:-1]))).upper()
                for name, field in shape:
                    if not isinstance(field.shape, data.Layout) and field.width:
                        expected[f"{stem}_{port_name((name,)).upper()}_OFFSET"] = field.offset
    lines += [f'_Static_assert({name} == {value}, "{name}");' for name, value in expected.items()]
    file = tmp_path / "check.c"
    file.write_text("\n".join(lines) + "\n")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", file]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[:2000]


def test_rejects_fields_whose_macros_have_one_name() -> None:
    inner = data.StructLayout({"c": 1})
    layout = data.StructLayout({"b": inner, "b_c": 1})
    interface = interface_of(Signature({"a": In(stream.Signature(layout))}))
    with pytest.raises(ValueError, match="T_A_B_C_OFFSET"):
        c_header("t", interface)
    with pytest.raises(ValueError, match="a_b_c_t"):
        systemverilog_package("t", interface)


def test_rejects_layouts_with_overlapping_fields() -> None:
    with pytest.raises(ValueError, match="a struct or an array"):
        interface_of(Signature({"a": In(data.UnionLayout({"x": 1, "y": 2}))}))


def test_the_parameters_of_every_preset_have_a_form_in_json() -> None:
    for entry in CATALOG:
        for parameters in entry.presets.values():
            assert json.loads(json.dumps(as_json(parameters), allow_nan=False))


FORMAT = re.compile(r"`(\w+)` in (U?)Q(\d+)\.(\d+)")
NAMED_POINT = re.compile(r"`(\w+)`, (\d+) bits with `(\w+)`\s+fraction bits")


def formats(entry: Entry) -> Iterator[tuple[str, str, tuple[int, bool, int]]]:
    """Yield the fixed-point formats in a unit's docstring: stream, field; width, sign, fraction."""
    documentation = inspect.cleandoc(entry.unit.__doc__ or "")
    members = re.split(r"\nMembers\n-+\n", documentation)[-1]
    parameters = entry.presets["tiny"]
    for member in re.finditer(r"^(\w+) : .*\n((?: +.*\n?)+)", members, re.M):
        words = " ".join(member[2].split())
        for field, unsigned_, whole, fraction in FORMAT.findall(words):
            number = int(whole) + int(fraction), not unsigned_, int(fraction)
            yield member[1], field, number
        for field, width, name in NAMED_POINT.findall(words):
            yield member[1], field, (int(width), True, getattr(parameters, name))


def test_binary_points_are_those_of_the_docstrings() -> None:
    number = 0
    for entry, preset in TINY:
        found = {
            (one.name, leaf.path): leaf.integer
            for one in interface_of(entry.build(preset).signature).streams
            for leaf in leaves(one.kind)
        }
        for stream_, field, expected in formats(entry):
            one = found[stream_, (field,)]
            number += 1
            assert (one.width, one.signed, one.fraction_bits) == expected, (entry.top, field)
    # Softmax, norms, activation functions, and the lanes of P3-LLM.
    assert number >= 10


def test_binary_points_without_a_format_in_the_docstring() -> None:
    rms = entry_named("rms_norm").build("tiny")
    softmax = entry_named("pipelined_softmax").build("tiny")
    coefficients = entry_named("voting_engine").build("tiny")
    points = {
        (one.name, leaf.path): leaf.integer.fraction_bits
        for unit in (rms, softmax, coefficients)
        for one in (*interface_of(unit.signature).streams, *interface_of(unit.signature).ports)
        for leaf in leaves(one.kind)
    }
    assert points["weights", ()] == rms.parameters.weight_fraction
    assert points["probabilities", ("value",)] == softmax.parameters.probability_bits
    assert points["coefficients", ("mean",)] == points["coefficients", ("deviation",)] == 12
    assert points["states", ("values",)] is None


def test_binary_point_is_in_manifest_and_header() -> None:
    shape = FixedPoint(integer_bits=6, fraction_bits=10).shape
    assert shape == Shape(16, True) and repr(shape) == repr(Shape(16, True))
    signature = Signature({"a": In(stream.Signature(data.StructLayout({"x": shape, "y": 3})))})
    header = c_header("t", interface_of(signature))
    assert "#define T_A_X_FRACTION_BITS 10\n" in header and "Y_FRACTION" not in header


def test_burst_ports_have_their_words() -> None:
    read = BurstReadPort(address_bits=20, word_shape=24, longest=9)
    write = BurstWritePort(address_bits=8, word_shape=data.ArrayLayout(5, 3), longest=4)
    signature = Signature(
        {
            "lines": Out(read).array(2),
            "inner": In(Signature({"results": Out(write)})),
            "other": In(stream.Signature(1)),
        }
    )
    assert interface_of(signature).bursts == (
        BurstInterface("lines_0", False, 20, 24, 9),
        BurstInterface("lines_1", False, 20, 24, 9),
        BurstInterface("inner_results", True, 8, 15, 4),
    )


@pytest.mark.parametrize(
    "entry,preset",
    [
        pytest.param(
            entry,
            preset,
            id=f"{entry.top}-{preset}",
            marks=[] if entry.top in QUICK else [pytest.mark.full],
        )
        for entry, preset in TINY
    ],
)
def test_manifest_agrees_with_the_verilog(entry: Entry, preset: str, tmp_path: Path) -> None:
    emitted = emit_unit(entry, preset, Target.FPGA, directory=tmp_path / "rtl")
    manifest = json.loads(emitted.documents[0].read_text())
    fastjsonschema.compile(json.loads(SCHEMA.read_text()))(manifest)
    assert [file.name for file in emitted.verilog] == manifest["verilog"]["files"]
    contents = b"".join(file.read_bytes() for file in emitted.verilog)
    assert manifest["verilog"]["sha256"] == hashlib.sha256(contents).hexdigest()
    passes = [f"read_verilog {file}" for file in emitted.verilog]
    passes += [
        f"hierarchy -top {entry.top}",
        "proc -norom",
        "memory_collect",
        "write_json all.json",
    ]
    run_yosys(passes, directory=tmp_path)
    modules = json.loads((tmp_path / "all.json").read_text())["modules"]
    seen = {
        name: (port["direction"], len(port["bits"]))
        for name, port in modules[entry.top]["ports"].items()
    }
    assert dict(ports_of(manifest)) == seen
    streams = {one["name"] for one in manifest["streams"]}
    for one in manifest["burst_ports"]:
        assert {one["requests"], one["words"]} <= streams
    expected = sorted(memories_of(modules, entry.top))
    written = [(one["width"], one["depth"]) for one in manifest["memories"] for _ in counted(one)]
    assert sorted(written) == expected


def counted(memory: dict[str, Any]) -> range:
    return range(memory["count"])


def ports_of(manifest: dict[str, Any]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield name, direction and width of each port that a manifest lists."""
    opposite = {"input": "output", "output": "input"}
    for one in (*manifest["clocks"], *manifest["resets"]):
        yield one["port"], ("input", 1)
    for one in manifest["streams"]:
        directions = {
            "payload": (one["direction"], one["type"]["width"]),
            "valid": (one["direction"], 1),
            "ready": (opposite[one["direction"]], 1),
        }
        for member, what in directions.items():
            if one[member] is not None:
                yield one[member], what
    for one in manifest["ports"]:
        yield one["name"], (one["direction"], one["type"]["width"])


def memories_of(modules: dict[str, Any], name: str) -> Iterator[tuple[int, int]]:
    """Yield width and depth of each memory below a module in Yosys' netlist."""
    for cell in modules[name]["cells"].values():
        if cell["type"] == "$mem_v2":
            yield tuple(int(cell["parameters"][one], 2) for one in ("WIDTH", "SIZE"))  # type: ignore[misc]
        elif cell["type"] in modules:
            yield from memories_of(modules, cell["type"])


def test_manifest_of_changed_parameters_has_no_preset(tmp_path: Path) -> None:
    entry = entry_named("argmax")
    changed = entry.dimensions("tiny", {"lanes": "2"})
    emitted = emit_unit(entry, changed, directory=tmp_path / "rtl", name="mine")
    manifest = json.loads((tmp_path / "rtl" / "mine.json").read_text())
    assert (manifest["preset"], manifest["name"], manifest["parameters"]["lanes"]) == (
        None, "mine", 2,
    )  # fmt: skip
    assert "// slices:" in emitted.verilog[-1].read_text()
