"""Memories built from macros equal the emitted memories, cycle by cycle."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from amaranth.hdl import Module, Signal
from amaranth.lib.memory import Memory as InferredMemory
from amaranth.lib.wiring import In, Out

from hdl.catalog import entry_named
from hdl.emit import Emission, Port, write_verilog
from hdl.emitted import emit_unit
from hdl.errors import UserError
from hdl.memory.memory import Memory
from hdl.memory.row_buffer import RowBuffer
from hdl.unit import Unit
from hdl.yosys import run_yosys
from synth.debian import icarus
from synth.export import Design, large_memories, write_export
from synth.macros.macro_list import MacroList, find_macro_list, read_macro_list
from synth.macros.mapping import MacroMapping, map_memories
from synth.macros.wrapper import cheapest
from testbenches.lint import lint_files
from testbenches.quick_form import quick_form
from testbenches.runner import Request, prepare, run_testbench
from tests.test_emitted_values import needs_icarus, run_icarus

ONE_PORT = """
[[macros]]
name = "ram"
depth = {depth}
width = {width}
mask_granularity = 1
[[macros.ports]]
kind = "rw"
clock = "clk"
enable = "ce"
write = "we"
address = "a"
data_in = "d"
data_out = "q"
mask = "m"
"""
HELD = """
[[macros]]
name = "ram"
depth = {depth}
width = {width}
holds_output = true
[[macros.ports]]
kind = "rw"
clock = "clk"
enable = "csb"
write = "web"
address = "a"
data_in = "d"
data_out = "q"
active_low = ["enable", "write"]
"""
READ_AND_WRITE = """
[[macros]]
name = "ram"
depth = {depth}
width = {width}
collision = "{collision}"
holds_output = {holds}
[[macros.ports]]
kind = "r"
clock = "clk"
enable = "re"
address = "ra"
data_out = "q"
[[macros.ports]]
kind = "w"
clock = "clk"
write = "we"
address = "wa"
data_in = "d"
"""
TWO_PORTS = """
[[macros]]
name = "ram"
depth = {depth}
width = {width}
mask_granularity = {width}
[[macros.ports]]
kind = "rw"
clock = "clk0"
enable = "ce0"
write = "we0"
address = "a0"
data_in = "d0"
data_out = "q0"
mask = "m0"
active_low = ["mask"]
[[macros.ports]]
kind = "{second}"
clock = "clk1"
enable = "model_words"
address = "a1"
data_out = "q1"
{more}
"""
READ_AND_READ = """
[[macros]]
name = "ram"
depth = 4
width = 4
[[macros.ports]]
kind = "r"
clock = "clk"
address = "ra"
data_out = "q"
[[macros.ports]]
kind = "r"
clock = "clk"
address = "rb"
data_out = "p"
"""
SECOND = 'write = "we1"\ndata_in = "d1"\nmask = "m1"'

LISTINGS = {
    "one port": ONE_PORT,
    "one port, held, active low": HELD,
    "old": READ_AND_WRITE.replace("{collision}", "old").replace("{holds}", "true"),
    "old, not held": READ_AND_WRITE.replace("{collision}", "old").replace("{holds}", "false"),
    "new": READ_AND_WRITE.replace("{collision}", "new").replace("{holds}", "true"),
    "undefined": READ_AND_WRITE.replace("{collision}", "undefined").replace("{holds}", "false"),
    "one port for both and one to read": TWO_PORTS.replace("{second}", "r").replace("{more}", ""),
    "two ports for both": TWO_PORTS.replace("{second}", "rw").replace("{more}", SECOND),
}
"""Lists of one macro, for each combination of ports and properties."""


NO_MACROS = MacroList(name="none", macros=(), minimum_bits=1 << 30)
"""A list with which no memory is mapped."""


def listing(text: str, folder: Path, *, depth: int = 4, width: int = 3, **top: int) -> MacroList:
    """Read a list."""
    file = folder / "rams.toml"
    text = text.replace("{depth}", str(depth)).replace("{width}", str(width))
    file.write_text("".join(f"{key} = {value}\n" for key, value in top.items()) + text)
    return read_macro_list(file)


def emitted(unit: Unit, name: str, folder: Path, macros: MacroList | None = None) -> MacroMapping:
    """Write a unit's Verilog, with its memories mapped to macros if there is a list."""
    emission = Emission(top=unit, name=name)
    write_verilog(emission, folder / name)
    mapping = map_memories(emission.modules, macros or NO_MACROS, counts={})
    if macros:
        mapping.write(folder / name, folder / "macros")
    return mapping


def is_equal(
    unit: Unit,
    folder: Path,
    macros: MacroList,
    *,
    depth: int = 0,
    change: Callable[[str], str] = lambda text: text,
    cycles: int = 7,
) -> bool:
    """Prove a unit with mapped memories equal to the emitted one, by SAT over all inputs.

    Both start with all registers and words at 0. Addresses from `depth` on are replaced by 0.
    `change` is applied to the mapped files.
    """
    emitted(unit, "source", folder)
    mapping = emitted(unit, "mapped", folder, macros)
    assert mapping.wrappers
    for file in (folder / "mapped").glob("*.v"):
        file.write_text(change(file.read_text()))
    (folder / "both.v").write_text(both(Emission(top=unit, name="source").modules[-1].ports, depth))

    def read(pattern: str) -> list[str]:
        return [f"read_verilog {file.relative_to(folder)}" for file in folder.glob(pattern)]

    flatten = ["proc", "flatten", "memory", "opt_clean"]
    log = run_yosys(
        [
            *read("source/*.v"),
            "hierarchy -check -top source",
            *flatten,
            "design -stash source",
            *read("mapped/*.v"),
            *read("macros/*_model.v"),
            "hierarchy -check -top mapped",
            *flatten,
            "design -copy-from source source",
            "read_verilog both.v",
            "hierarchy -check -top both",
            "proc",
            "flatten",
            "setundef -init -zero",
            "opt -full",
            f"sat -seq {cycles} -prove equal 1 both",
        ],
        directory=folder,
    )
    assert ("no model found: SUCCESS!" in log) != ("model found: FAIL!" in log)
    return "no model found: SUCCESS!" in log


def both(ports: Sequence[Port], depth: int) -> str:
    """Return a module that compares all outputs of the modules `source` and `mapped`."""
    inputs = [port for port in ports if port.direction == "input"]
    outputs = [port for port in ports if port.direction == "output"]
    lines = [f"module both({', '.join(port.name for port in inputs)}, equal);", "  output equal;"]
    lines += [f"  input [{port.width - 1}:0] {port.name};" for port in inputs]
    for one in ("source", "mapped"):
        lines += [f"  wire [{port.width - 1}:0] {one}_{port.name};" for port in outputs]
        pins = {port.name: f"{one}_{port.name}" for port in outputs}
        for port in inputs:
            limited = f"{port.name} < {depth} ? {port.name} : {port.width}'h0"
            pins[port.name] = limited if port.name.endswith("_address") else port.name
        lines.append(f"  {one} {one}_unit({', '.join(f'.{a}({b})' for a, b in pins.items())});")
    checks = [f"(source_{port.name} == mapped_{port.name})" for port in outputs]
    return "\n".join([*lines, f"  assign equal = {' & '.join(checks)};", "endmodule"])


@pytest.mark.parametrize("kind", LISTINGS)
def test_a_wrapper_equals_the_memory(kind: str, tmp_path: Path) -> None:
    """Depth and width are no multiples of the macro's; all traffic of seven cycles is tried."""
    macros = listing(LISTINGS[kind], tmp_path, depth=2)
    assert is_equal(Memory(depth=5, width=4), tmp_path, macros, depth=5)


BENCH = """
module bench;
  reg clk = 0, read_enable;
  reg [1:0] write_enable;
  reg [6:0] read_address, write_address;
  reg [39:0] write_data;
  wire [39:0] expected, found;
  source source_unit(.clk(clk), .rst(1'h0), .read_enable(read_enable),
      .read_address(read_address), .read_data(expected), .write_enable(write_enable),
      .write_address(write_address), .write_data(write_data));
  mapped mapped_unit(.clk(clk), .rst(1'h0), .read_enable(read_enable),
      .read_address(read_address), .read_data(found), .write_enable(write_enable),
      .write_address(write_address), .write_data(write_data));
  integer cycle, errors, known;
  function [6:0] address(input integer number);
    // Half of the accesses are to two words, of which one is the last.
    address = number[8] ? (number[9] ? 99 : 0) : number[30:10] % 100;
  endfunction
  initial begin
    errors = 0;
    known = 0;
    for (cycle = 0; cycle < 4000; cycle = cycle + 1) begin
      if (cycle > 2) begin
        read_enable = $random;
        write_enable = $random;
        read_address = address($random);
        write_address = address($random);
        write_data = {$random, $random};
      end
      #1 clk = 1;
      #1 clk = 0;
      #1 if (expected !== found) errors = errors + 1;
      if (^expected !== 1'hx) known = known + 1;
    end
    $display("%0d errors, %0d", errors, known);
  end
endmodule
"""
"""Random accesses, with unknown inputs in the first cycles; unknown bits must agree, too."""


@needs_icarus
@pytest.mark.parametrize("kind", LISTINGS)
def test_random_accesses_agree_in_four_states(kind: str, tmp_path: Path) -> None:
    macros = listing(LISTINGS[kind], tmp_path, depth=32, width=16)
    unit = Memory(depth=100, width=40, granularity=20)
    emitted(unit, "source", tmp_path)
    emitted(unit, "mapped", tmp_path, macros)
    (tmp_path / "bench.v").write_text(BENCH)
    files = [*tmp_path.glob("source/*.v"), *tmp_path.glob("mapped/*.v")]
    files += [*tmp_path.glob("macros/*_model.v"), tmp_path / "bench.v"]
    found = re.fullmatch(r"(\d+) errors, (\d+)\n", run_icarus("2005", files, tmp_path))
    assert found and int(found[1]) == 0 and int(found[2]) > 3500


HALVES = """
module bench(input read_enable, input [1:0] write_enable,
    input [2:0] read_address, input [2:0] write_address, input [3:0] write_data, output equal);
  (* gclk *) reg clock;
  // Four steps of the solver per cycle: clk is high in two of them, and clk_double in the first
  // of each half.
  reg [1:0] step;
  reg read;
  reg [1:0] write;
  reg [2:0] from, to;
  reg [3:0] data;
  initial begin step = 1; read = 0; write = 0; from = 0; to = 0; data = 0; end
  always @(posedge clock) begin
    step <= step + 1;
    // Inputs change in the middle of the first half.
    if (step == 0) begin
      read <= read_enable;
      write <= write_enable;
      from <= read_address < 5 ? read_address : 0;
      to <= write_address < 5 ? write_address : 0;
      data <= write_data;
    end
  end
  wire clk = ~step[1], clk_double = ~step[0];
  wire [3:0] expected, found;
  source source_unit(.clk(clk), .rst(1'h0), .read_enable(read), .read_address(from),
      .read_data(expected), .write_enable({ENABLE}), .write_address(to), .write_data(data));
  mapped mapped_unit(.clk(clk), .rst(1'h0), .clk_double(clk_double), .read_enable(read),
      .read_address(from), .read_data(found), .write_enable({ENABLE}), .write_address(to),
      .write_data(data));
  // The word is compared where it is used: at the end of a cycle.
  assign equal = step != 3 | expected == found;
endmodule
"""


def is_equal_in_halves(
    unit: Unit, folder: Path, macros: MacroList, *, enable: str = "write[0]", **change: str
) -> bool:
    """Prove as `is_equal`, with macros at twice the clock, over all inputs of six cycles."""
    emitted(unit, "source", folder)
    mapping = emitted(unit, "mapped", folder, macros)
    assert mapping.double_clock and all(one.copies == 1 for one in mapping.wrappers)
    for old, new in change.items():
        (file,) = (folder / "mapped").glob("memory_macros_*.v")
        text = file.read_text()
        assert CHANGES[old] in text
        file.write_text(text.replace(CHANGES[old], new))
    (folder / "both.v").write_text(HALVES.replace("{ENABLE}", enable))
    files = [*folder.glob("source/*.v"), *folder.glob("mapped/*.v"), folder / "both.v"]
    files += folder.glob("macros/*_model.v")
    log = run_yosys(
        [
            *(f"read_verilog {file.relative_to(folder)}" for file in files),
            "hierarchy -check -top bench",
            "proc",
            "flatten",
            "memory -nomap",
            "memory_map",
            "clk2fflogic",
            "setundef -init -zero",
            "opt -full",
            "sat -seq 24 -prove equal 1 bench",
        ],
        directory=folder,
    )
    assert ("no model found: SUCCESS!" in log) != ("model found: FAIL!" in log)
    return "no model found: SUCCESS!" in log


CHANGES = {
    "order": "middle <= clk;",
    "word": "fetched ? word : kept",
    "late": "if (fetched) kept <= word;",
    "write": "writes = ~middle & waiting;",
    "address": "if (write) begin",
}
"""Texts of a wrapper at twice the clock."""


@pytest.mark.parametrize("kind", ["one port", "one port, held, active low"])
@pytest.mark.parametrize("depth", [2, 8])
def test_macros_at_twice_the_clock_equal_the_memory(kind: str, depth: int, tmp_path: Path) -> None:
    macros = replace(listing(LISTINGS[kind], tmp_path, depth=depth), double_clock=True)
    assert is_equal_in_halves(Memory(depth=5, width=4), tmp_path, macros)


def test_parts_of_words_at_twice_the_clock_equal_the_memory(tmp_path: Path) -> None:
    macros = replace(listing(ONE_PORT, tmp_path, depth=8), double_clock=True)
    unit = Memory(depth=5, width=4, granularity=2)
    assert is_equal_in_halves(unit, tmp_path, macros, enable="write")


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("order", "middle <= ~clk;"),
        ("word", "word"),
        ("late", "kept <= word;"),
        ("write", "writes = middle & waiting;"),
        ("address", "begin"),
    ],
)
def test_broken_wrappers_at_twice_the_clock_differ(name: str, new: str, tmp_path: Path) -> None:
    macros = replace(listing(ONE_PORT, tmp_path, depth=8), double_clock=True)
    # An address that follows the port even without a write changes nothing.
    expected = name == "address"
    equal = is_equal_in_halves(Memory(depth=5, width=4), tmp_path, macros, **{name: new})
    assert equal == expected


@needs_icarus
@pytest.mark.parametrize("kind", ["one port", "one port, held, active low"])
def test_random_accesses_agree_at_twice_the_clock(kind: str, tmp_path: Path) -> None:
    macros = listing(LISTINGS[kind], tmp_path, depth=32, width=16)
    unit = Memory(depth=100, width=40, granularity=20)
    emitted(unit, "source", tmp_path)
    emitted(unit, "mapped", tmp_path, replace(macros, double_clock=True))
    edges = "#1 clk = 1; clk_double = 1; #1 clk_double = 0;", "#1 clk = 0; clk_double = 1;"
    text = BENCH.replace("#1 clk = 1;", edges[0]).replace("#1 clk = 0;", edges[1])
    # The bench compares where the word is used: at the end of a cycle.
    text = text.replace("#1 if (expected", "#1 clk_double = 0;\n      #1 if (expected")
    text = text.replace("reg clk = 0,", "reg clk = 0, clk_double = 0,")
    mapped = "mapped mapped_unit(.clk(clk),"
    text = text.replace(mapped, f"{mapped} .clk_double(clk_double),")
    (tmp_path / "bench.v").write_text(text)
    files = [*tmp_path.glob("source/*.v"), *tmp_path.glob("mapped/*.v")]
    files += [*tmp_path.glob("macros/*_model.v"), tmp_path / "bench.v"]
    found = re.fullmatch(r"(\d+) errors, (\d+)\n", run_icarus("2005", files, tmp_path))
    assert found and int(found[1]) == 0 and int(found[2]) > 3500


def test_double_clock_reaches_memories_inside_units(tmp_path: Path) -> None:
    macros = replace(listing(ONE_PORT, tmp_path), double_clock=True)
    unit = Nested(levels=2)
    mapping = emitted(unit, "outer", tmp_path, macros)
    assert mapping.double_clock and mapping.summary.endswith("; macros at clk_double")
    (module,) = [one for one in mapping.modules if one.name == "outer"]
    assert module.ports[-1] == Port(("clk_double",), "input", 1)
    files = [*tmp_path.glob("outer/*.v"), *tmp_path.glob("macros/ram.v")]
    passes = [*(f"read_verilog {file}" for file in files), "hierarchy -check -top outer", "proc"]
    run_yosys([*passes, "check -assert"], directory=tmp_path)
    assert (tmp_path / "outer" / "outer.v").read_text().count(".clk_double(clk_double)") == 2


def test_double_clock_needs_a_free_name(tmp_path: Path) -> None:
    class Named(Nested):
        def elaborate(self, platform: object) -> Module:
            m = super().elaborate(platform)
            used = Signal(name="clk_double")
            m.d.sync += used.eq(self.enable & ~used)
            m.d.comb += self.result[0].eq(used)
            return m

    macros = replace(listing(ONE_PORT, tmp_path), double_clock=True)
    with pytest.raises(UserError, match="double_clock needs the name clk_double in named"):
        emitted(Named(levels=0), "named", tmp_path, macros)


class Nested(Unit):
    """A memory, and another one of the same size inside a unit."""

    def __init__(self, *, levels: int) -> None:
        self._levels = levels
        super().__init__({"address": In(2), "enable": In(1), "data": In(3), "result": Out(3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(depth=4, width=3)
        m.d.comb += [
            memory.read_enable.eq(1),
            memory.read_address.eq(self.address),
            memory.write_enable.eq(self.enable),
            memory.write_address.eq(~self.address),
            memory.write_data.eq(self.data),
        ]
        if not self._levels:
            m.d.comb += self.result.eq(memory.read_data)
            return m
        m.submodules.inner = inner = Nested(levels=self._levels - 1)
        m.d.comb += [
            inner.address.eq(self.address),
            inner.enable.eq(self.enable),
            inner.data.eq(self.data),
            self.result.eq(memory.read_data ^ inner.result),
        ]
        return m


@pytest.mark.parametrize(
    ("kind", "depth", "memory"),
    [
        # Rows of two of three words, and one row of three words.
        ("one port", 3, {"depth": 7, "width": 2}),
        ("undefined", 3, {"depth": 3, "width": 3}),
        # A write enable per part of the word.
        ("one port", 2, {"depth": 3, "width": 6, "granularity": 2}),
        ("undefined", 4, {"depth": 3, "width": 4, "granularity": 1}),
    ],
)
def test_sizes_and_write_enables(
    kind: str, depth: int, memory: dict[str, int], tmp_path: Path
) -> None:
    macros = listing(LISTINGS[kind], tmp_path, depth=depth)
    assert is_equal(Memory(**memory), tmp_path, macros, depth=memory["depth"], cycles=6)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("one port", "(address[2:1] == row)", "(address[2:1] == row ^ 1)"),
        ("one port", "3'h5: word = outputs[27:24]", "3'h5: word = outputs[21:18]"),
        ("one port", "current[write_address] <= write_copy", "current[write_address] <= 1'h0"),
        ("one port", "write_copy = read & ~read_copy", "write_copy = read & read_copy"),
        ("one port", ".m({3{1'h1}})", ".m(3'h3)"),
        ("one port", "padded[column * 3 +: 3]", "padded[0 +: 3]"),
        ("one port", "fetched ? word : kept", "word"),
        ("one port, held, active low", ".web(~(writing))", ".web(writing)"),
        ("old", "if (read) selected", "selected"),
        ("undefined", "(address == read_address)", "1'h0"),
        ("undefined", "if (read & hit) kept <= data;", "if (1'h0) kept <= data;"),
        ("two ports for both", ".m0(~({1{1'h1}}))", ".m0(1'h1)"),
    ],
)
def test_a_broken_wrapper_is_not_equal(kind: str, old: str, new: str, tmp_path: Path) -> None:
    macros = listing(LISTINGS[kind], tmp_path, depth=2)
    changes = list[int]()

    def change(text: str) -> str:
        changes.append(text.count(old))
        return text.replace(old, new)

    assert not is_equal(Memory(depth=5, width=4), tmp_path, macros, depth=5, change=change)
    assert sum(changes)


def test_a_lost_write_enable_is_found(tmp_path: Path) -> None:
    macros = listing(ONE_PORT, tmp_path)
    unit = Memory(depth=3, width=4, granularity=2)
    assert not is_equal(
        unit, tmp_path, macros, depth=3, change=lambda text: text.replace("enable[1]", "enable[0]")
    )


def test_memories_inside_a_unit_are_replaced(tmp_path: Path) -> None:
    unit = RowBuffer(depth=5, data_shape=4, tag_shape=2, result_shape=1, rows=2)
    assert is_equal(unit, tmp_path, listing(ONE_PORT, tmp_path), cycles=6)


class Breaking(Unit):
    """A memory that breaks one rule for macros."""

    result: Signal

    def __init__(self, *, rule: str) -> None:
        self._rule = rule
        super().__init__({"address": In(3), "enable": In(1), "data": In(4), "result": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m, rule = Module(), self._rule
        init = [5] if rule == "has initial contents" else []
        m.submodules.memory = memory = InferredMemory(shape=4, depth=8, init=init)
        write = memory.write_port()
        writes = [write]
        if rule == "has not one read port and one write port":
            writes.append(memory.write_port())
        read = memory.read_port(
            domain="comb" if rule == "reads without a clock edge" else "sync",
            transparent_for=[write] if rule.startswith("reads the word") else [],
        )
        for index, port in enumerate(writes):
            m.d.comb += [
                port.addr.eq(self.address + index),
                port.data.eq(self.data),
                port.en.eq(self.enable),
            ]
        if rule != "reads without a clock edge":
            m.d.comb += read.en.eq(1)
        m.d.comb += [read.addr.eq(~self.address), self.result.eq(read.data)]
        return m


@pytest.mark.parametrize(
    "rule",
    [
        "has initial contents",
        "has not one read port and one write port",
        "reads without a clock edge",
        "reads the word after a write of the same cycle",
        "has fewer than 33 bits",
        "needs more than 2 macro bits per bit",
        "",
    ],
)
def test_memories_that_break_a_rule_remain(rule: str, tmp_path: Path) -> None:
    minimum = 33 if "33" in rule else 32
    ratio = 2 if rule.startswith("needs") else 3
    macros = listing(ONE_PORT, tmp_path, minimum_bits=minimum, maximum_ratio=ratio)
    mapping = map_memories(
        Emission(top=Breaking(rule=rule), name="breaking").modules,
        macros,
        counts={"breaking.memory": 2},
    )
    (memory,) = mapping.memories
    assert memory.reason == rule
    assert bool(mapping.modules) == bool(memory.wrappers) == (not rule)
    assert memory.row[4].startswith(f"flip-flops: {rule}" if rule else "2 copies of 2 x 2 ram")
    assert ("64 memory bits remain" in mapping.summary) == bool(rule)
    # Without areas in the list there is none in the table.
    assert memory.row[6] == "-" and "um2" not in mapping.summary


def test_the_list_of_the_package_maps_a_large_memory(tmp_path: Path) -> None:
    macros = find_macro_list("fakeram45.toml")
    mapping = emitted(Memory(depth=600, width=128, granularity=64), "store", tmp_path, macros)
    (memory,) = mapping.memories
    assert memory.row == (
        "store.words", "600 x 128", "1R1W", "1",
        "2 parts of 2 copies of 1 x 2 fakeram45_1024x32", "3.4", "131,249", "1332",
    )  # fmt: skip
    assert memory.macro_bits == 8 * 1024 * 32
    assert "131,249 um2 for 76,800 memory bits" in mapping.summary
    # Two tables of a bit per word, kept words, and the selection of the last read.
    assert memory.flip_flops == 2 * (600 + 1 + 64 + 1)
    models = list((tmp_path / "macros").glob("*_model.v"))
    files = [*models, *(tmp_path / "store").glob("memory_*.v"), tmp_path / "store" / "store.v"]
    assert not lint_files("store", files)


def test_a_larger_overhead_selects_fewer_macros() -> None:
    macros = find_macro_list("fakeram45.toml")
    counts = [
        cheapest(600, 64, replace(macros, overhead_bits=overhead)).count for overhead in (0, 4096)
    ]
    assert counts == [38, 4]


MACRO_ERRORS = [
    ("depth = 4", "deep = 4", "a key of ram in rams.toml must be one of name, .* did you mean"),
    ("depth = 4", "depth = 1", "depth of ram in rams.toml must be 2 to 1048576, not 1"),
    ("width = 3", "width = true", "width of ram in rams.toml must be 1 to 1048576, not True"),
    ("width = 3", "", "width of ram in rams.toml must be 1 to 1048576, not None"),
    ("granularity = 1", "granularity = 2", "must divide the width 3, not 2"),
    ("mask_granularity = 1", "", "mask_granularity of ram in rams.toml must be 1 to .* not None"),
    ('mask = "m"', "", "each writing port of ram in rams.toml must have a pin mask"),
    ('name = "ram"', 'name = "wire"', "name of a macro .* and no keyword, not 'wire'"),
    ('name = "ram"', 'name = "a b"', "name of a macro in rams.toml must be a Verilog identifier"),
    ('"rw"', '"wr"', "kind of a port of ram in rams.toml must be one of r, w, rw, not 'wr'"),
    ('"rw"', "[]", r"kind of a port of ram in rams.toml must be one of r, w, rw, not '\[\]'"),
    ('"d"', '"wire"', "data_in of port rw of ram in rams.toml .* no keyword, not 'wire'"),
    ('mask = "m"', 'mask = "m"\nactive_low = [[]]', r"active_low .* write, mask, not \[\[\]\]"),
    ('"rw"', '"r"', "a key of port r of ram in rams.toml must be one of .*, not 'write'"),
    ('"d"', '"a"', "pins of ram in rams.toml must have distinct names, not 2 of a"),
    ('data_in = "d"', "", "port rw of ram in rams.toml must have the pins data_in"),
    ('"d"', "7", "data_in of port rw of ram in rams.toml must be a Verilog identifier .* not 7"),
    ('mask = "m"', 'mask = "m"\nactive_low = ["address"]', "active_low of port rw .* some of"),
    ("depth = 4", 'depth = 4\ncollision = "odd"', "collision of ram .* old, new, not 'odd'"),
    ("depth = 4", "depth = 4\narea_um2 = 0", "area_um2 of ram .* must be a positive number, not 0"),
    ("depth = 4", "depth = 4\narea_um2 = nan", "area_um2 of ram .* a positive number, not nan"),
    ("depth = 4", 'depth = 4\narea_um2 = "9"', "area_um2 of ram .* a positive number, not '9'"),
    ("[[macros]]", "double_clock = 1\n[[macros]]", "double_clock of rams.toml must be true or f"),
    ("depth = 4", "depth = 4\nholds_output = 1", "holds_output of ram .* true or false, not 1"),
    ('enable = "ce"', "[macros.x]", "a key of ram in rams.toml must be one of .*, not 'x'"),
    ("[[macros]]", "[macros]", "macros in rams.toml must be tables"),
    ("[[macros]]", "overhead_bits = -1\n[[macros]]", "overhead_bits of rams.toml must be 0 to"),
    ("[[macros]]", "minimum = 3\n[[macros]]", "a key of rams.toml must be one of minimum_bits,"),
    ("depth", "depth = ", "MACROS must name a TOML file: rams.toml: "),
]


@pytest.mark.parametrize(("old", "new", "message"), MACRO_ERRORS)
def test_illegal_lists_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = ONE_PORT.replace("{depth}", "4").replace("{width}", "3")
    assert old in text
    with pytest.raises(UserError, match=message):
        listing(text.replace(old, new, 1), tmp_path)


def test_macros_have_distinct_names_and_one_of_the_port_sets(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rams.toml must have distinct names, not 2 of ram"):
        listing(ONE_PORT + ONE_PORT, tmp_path)
    with pytest.raises(UserError, match=r"ports of ram in rams.toml must be rw, .* not r and r"):
        listing(READ_AND_READ, tmp_path)
    with pytest.raises(UserError, match=r"MACROS must name a TOML file or one of fakeram45.toml"):
        find_macro_list("absent.toml")
    emission = Emission(top=Memory(depth=8, width=8), name="ram")
    with pytest.raises(UserError, match=r"must have distinct names: ram"):
        map_memories(emission.modules, listing(ONE_PORT, tmp_path), counts={})


def exported(folder: Path, for_: str, *, double_clock: bool = False) -> Path:
    """Export a memory and its macros, and return the folder of the export."""
    emission = Emission(top=Memory(depth=5000, width=16), name="store")
    files = write_verilog(emission, folder / "rtl")
    document = folder / "store.json"
    clocks = [{"port": "clk", "edge": "rising"}]
    values = {"verilog": {"files": [], "sha256": ""}, "clocks": clocks}
    document.write_text(json.dumps(values))
    macros = replace(find_macro_list("fakeram45.toml"), double_clock=double_clock)
    mapping = map_memories(emission.modules, macros, counts={})
    design = Design(
        top="store",
        summary="stores",
        verilog=tuple(files),
        ports=emission.modules[-1].ports,
        memories=emission.modules[-1].memories,
        documents=(document,),
        mapping=mapping,
    )
    write_export(design, for_, folder / for_)
    # The table that selects the copies of the words.
    large = [] if double_clock else [5000]
    assert [memory.bits for memory in large_memories(design, "orfs")] == large
    return folder / for_


FLOW = """
include $(DESIGN_CONFIG)
PLATFORM_DIR := /platform
all: ; @echo "files $(VERILOG_FILES)" && echo lefs $$ADDITIONAL_LEFS && echo libs $$ADDITIONAL_LIBS
"""
"""Reads a configuration as OpenROAD-flow-scripts does: the platform is known after it."""


def test_orfs_gets_the_macros_files(tmp_path: Path) -> None:
    folder = exported(tmp_path, "orfs")
    (tmp_path / "Makefile").write_text(FLOW)
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    shown = subprocess.run(
        ["make", f"DESIGN_CONFIG={folder / 'config.mk'}"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    lines = {line.split()[0]: line.split()[1:] for line in shown.stdout.splitlines()}
    names = [Path(path).name for path in lines["files"]]
    assert names == ["memory_macros_5000_16.v", "store.v"]
    assert lines["lefs"] == ["/platform/lef/fakeram45_256x16.lef"]
    assert lines["libs"] == ["/platform/lib/fakeram45_256x16.lib"]
    values = json.loads((folder / "store.json").read_text())["verilog"]
    content = b"".join(Path(path).read_bytes() for path in lines["files"])
    assert values == {"files": names, "sha256": hashlib.sha256(content).hexdigest()}
    readme = (folder / "README.md").read_text()
    assert "| store.words | 5000 x 16 | 1R1W | 1 | 2 copies of 20 x 1 fakeram45_256x16 |" in readme
    assert "| `memory_macros_5000_16.current` | 1 | 5000 | 5000 |" in readme
    assert "Add the physical files" in readme and "macros of fakeram45" in readme


@pytest.mark.parametrize("double_clock", [False, True])
def test_constraints_and_manifest_have_all_clocks(double_clock: bool, tmp_path: Path) -> None:
    folder = exported(tmp_path, "orfs", double_clock=double_clock)
    expected = ["clk", "clk_double"][: 1 + double_clock]
    clocks = json.loads((folder / "store.json").read_text())["clocks"]
    assert [one["port"] for one in clocks] == expected
    assert ("input clk_double;" in (folder / "rtl" / "store.v").read_text()) == double_clock
    tcl = pytest.importorskip("tkinter").Tcl()
    seen = list[tuple[str, ...]]()
    tcl.createcommand("create_clock", lambda *words: seen.append(words))
    for name in ("set_input_delay", "set_output_delay", "set_load", "set_false_path"):
        tcl.createcommand(name, lambda *_words: "")
    tcl.eval("namespace eval sta {}")
    tcl.eval("proc sta::time_sta_ui {value} {return [expr {$value * 1e12}]}")
    tcl.eval("proc sta::capacitance_sta_ui {value} {return $value}")
    for name in ("get_ports", "all_inputs", "all_outputs", "get_property"):
        tcl.eval(f"proc {name} {{args}} {{return [lindex $args 0]}}")
    tcl.eval((folder / "store.sdc").read_text())
    periods = {words[1]: float(words[3]) for words in seen}
    assert periods == dict(zip(expected, (5000, 2500), strict=False))


def test_librelane_gets_the_macros_files(tmp_path: Path) -> None:
    folder = exported(tmp_path, "librelane")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (name,) = config["MACROS"]
    views = config["MACROS"][name]
    assert views["lib"] == {"*": [f"dir::macros/{name}.lib"]}
    for view in ("gds", "lef"):
        assert views[view] == [f"dir::macros/{name}.{view}"]
    (header,) = views["vh"]
    box = (folder / header.removeprefix("dir::")).read_text()
    assert "(* blackbox *)" in box and "always" not in box
    assert "dir::rtl/memory_macros_5000_16.v" in config["VERILOG_FILES"]
    # The black box has the pins with which the wrapper instantiates the macro.
    passes = ["read_verilog rtl/*.v macros/" + f"{name}.v", "hierarchy -check -top store", "proc"]
    run_yosys([*passes, "check -assert"], directory=folder)


AROUND = """
`timescale 1ps/1ps
module {top}({names});
{ports}
  // The bench has a period of 2 ns.
  reg clk_double;
  always @(clk) begin
    clk_double = 1;
    #500 clk_double = 0;
  end
  mapped_unit unit(.clk_double(clk_double), {pins});
endmodule
"""
"""A module with the ports of a unit whose macros have twice the clock."""


def around(top: str, ports: Sequence[Port]) -> str:
    declared = [f"  {port.direction} [{port.width - 1}:0] {port.name};" for port in ports]
    return AROUND.format(
        top=top,
        names=", ".join(port.name for port in ports),
        ports="\n".join(declared),
        pins=", ".join(f".{port.name}({port.name})" for port in ports),
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("top", "simulator", "double_clock"),
    [
        ("kv_edram", "icarus", False),
        ("kv_edram", "icarus", True),
        ("voting_engine", "icarus", False),
        ("voting_engine", "icarus", True),
        ("e4m3_quantiser", "verilator", False),
        ("kelle", "verilator", False),
        ("veda", "verilator", False),
    ],
)
def test_a_units_own_testbench_passes_with_macros(
    top: str, simulator: str, double_clock: bool, tmp_path: Path
) -> None:
    """All memories of the unit are macros, the smallest ones included."""
    if simulator == "icarus" and not icarus(fetch=False):
        pytest.skip("needs Icarus Verilog")
    entry = entry_named(top)
    macros = replace(
        find_macro_list("fakeram45.toml"),
        minimum_bits=0,
        maximum_ratio=0,
        double_clock=double_clock,
    )
    target = quick_form(top, "tiny")
    name = "mapped_unit" if double_clock else top
    unit = emit_unit(entry, "tiny", target, directory=tmp_path / "rtl", name=name)
    mapping = map_memories(unit.modules, macros, counts={}, target=target)
    assert mapping.memories and all(memory.wrappers for memory in mapping.memories)
    mapped = tmp_path / "mapped"
    mapped.mkdir()
    for file in unit.verilog:
        shutil.copy(file, mapped)
    wrappers = mapping.write(mapped, tmp_path / "macros")
    names = [*wrappers, *(file.name for file in unit.verilog)]
    if double_clock:
        (mapped / f"{top}.v").write_text(around(top, unit.ports))
        names.append(f"{top}.v")
    _preset, parameters = entry.named("tiny")
    prepare(entry, parameters)
    result = run_testbench(
        top=top,
        preset="tiny",
        parameters=parameters,
        testbench=entry.testbench,
        ports=unit.ports,
        verilog=[*tmp_path.glob("macros/*_model.v"), *(mapped / name for name in names)],
        home=tmp_path,
        request=Request(seed=1, simulator=simulator, seconds=3000),
    )
    assert result.passed and result.tests, result.first_failure
