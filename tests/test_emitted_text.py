"""What holds of the Verilog of every unit: its names, its state at the start, its uniqueness."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.catalog import CATALOG
from hdl.digest import verilog_digest
from hdl.emit import Emission, write_verilog
from hdl.emitted import emit_unit
from hdl.paths import ROOT
from hdl.plain_names import is_plain
from hdl.target import Target
from hdl.unit import Unit
from testbenches.ports import kept_ports


class Nested(Unit):
    """Two ports whose paths differ, and whose joined names do not."""

    def __init__(self, *, first: str, second: str) -> None:
        super().__init__({first: Out(1), second: In(1)})

    def elaborate(self, platform: object) -> Module:
        return Module()


class Mixed(Unit):
    """Reads one signed port as signed and as unsigned."""

    def __init__(self) -> None:
        super().__init__({"value": In(signed(4)), "plain": Out(6), "sign": Out(signed(6))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        unread = Signal(4)
        m.d.comb += [
            unread.eq(self.value),
            self.plain.eq(self.value.as_unsigned() + self.value.as_unsigned()),
            self.sign.eq(self.value + self.value),
        ]
        return m


class Partly(Unit):
    """A struct of which a condition drives one field, a signal another, and nothing the third."""

    def __init__(self) -> None:
        fields = data.StructLayout({"driven": 4, "never": 2, "always": 4})
        super().__init__({"choose": In(1), "value": In(4), "fields": Out(fields)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.choose):
            m.d.comb += self.fields.driven.eq(self.value)
        m.d.comb += self.fields.always.eq(self.value)
        return m


def test_every_module_name_has_one_text_in_all_units(tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    tops = {entry.top for entry in CATALOG}
    for entry in CATALOG:
        emitted = emit_unit(entry, "tiny", Target.FPGA, directory=tmp_path / entry.top)
        for file in emitted.verilog:
            if file.stem not in tops:
                text = file.read_text()
                assert seen.setdefault(file.stem, text) == text, f"{file.name} of {entry.top}"


EMIT_OFTEN = """
import sys
from pathlib import Path
from hdl.catalog import entry_named
from hdl.emitted import emit_unit
for turn in range(12):
    sources = (turn + int(sys.argv[2])) % 2 == 0
    directory = Path(sys.argv[1])
    emitted = emit_unit(entry_named("kv_edram"), "tiny", sources=sources, directory=directory)
    assert all("endmodule" in file.read_text() for file in emitted.verilog)
"""


def test_two_processes_can_emit_one_unit_concurrently(tmp_path: Path) -> None:
    """Two processes write two different texts into one folder, again and again."""
    directory = tmp_path / "rtl"
    command = [sys.executable, "-c", EMIT_OFTEN, directory]
    both = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    assert [process.communicate()[1] for process in both] == ["", ""]
    marked = {"src = " in file.read_text() for file in directory.glob("*kv_edram*.v")}
    assert len(marked) == 1


def test_no_tool_mangles_a_port() -> None:
    ports = (port for line in kept_ports().values() for port in line.split(", "))
    names = {port.split()[1] for port in ports}
    assert names and all(map(is_plain, names))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a_b", True),
        ("a", True),
        ("a__b", False),
        ("_a", False),
        ("a_", False),
        ("1a", False),
        ("signal", False),
    ],
)
def test_plain_names(name: str, expected: bool) -> None:
    assert is_plain(name) is expected


@pytest.mark.parametrize(("first", "second"), [("a__b", "c"), ("b_", "c")])
def test_ports_that_tools_mangle_are_refused(first: str, second: str) -> None:
    with pytest.raises(ValueError, match="ports must have distinct names without two underscores"):
        Emission(top=Nested(first=first, second=second), name="nested")


def test_a_signed_port_can_be_read_as_unsigned(tmp_path: Path) -> None:
    file, *_rest = write_verilog(Emission(top=Mixed(), name="mixed"), tmp_path / "rtl")
    text = file.read_text()
    assert "plain = { 1'h0, " in text or "value + value" in text
    assert "signed [" not in text
    assert "$signed(value) + $signed(value)" in text
    assert "unread" not in text


class Repeating(Unit):
    """Reads one expression again and again, below and above others, once under a name."""

    def __init__(self) -> None:
        super().__init__({"a": In(4), "b": In(4), "sum": Out(5), "mark": Out(1), "kept": Out(5)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total, later = Signal(5), Signal(5)
        m.d.comb += [self.sum.eq(self.a + self.b), total.eq(self.a + self.b)]
        m.d.comb += self.mark.eq((self.a + self.b)[-1] & ~(self.a + self.b)[-1] | total.any())
        m.d.sync += [later.eq(self.a + self.b), self.kept.eq(later ^ (self.a + self.b))]
        return m


def test_an_expression_is_written_once(tmp_path: Path) -> None:
    """Readers of a copy read what has a name; registers stay as many as they are."""
    file, *_rest = write_verilog(Emission(top=Repeating(), name="repeating"), tmp_path / "rtl")
    text = file.read_text()
    assert re.findall(r".* \+ .*", text) == ["  assign sum = a + b;"]
    assert re.findall(r".* = ~ (.*);", text) == ["sum[4]"]
    assert re.findall(r"posedge clk\)\n +(\w+) <=", text) == ["later", "kept"]


def test_constants_are_connected_next_to_conditional_bits(tmp_path: Path) -> None:
    """In a block they would wait for a change of what it reads."""
    file, *_rest = write_verilog(Emission(top=Partly(), name="partly"), tmp_path / "rtl")
    text = file.read_text()
    (block,) = re.findall(r"  always @\* begin\n.*?\n  end\n", text, re.S)
    assert "if (choose)" in block and "fields[" not in block
    connections = {"fields[3:0] = fields_driven", "fields[5:4] = 2'h0", "fields[9:6] = value"}
    assert set(re.findall(r"^  assign (.*);$", text, re.M)) == connections


PLAIN = """
module inner(input clk, input [3:0] a, output reg [3:0] q);
  always @(posedge clk) q <= a;
endmodule
module outer(input clk, input rst, input [3:0] a, input en, output reg [3:0] q, output [3:0] y);
  wire [3:0] sum = a + q;
  always @(posedge clk) if (rst) q <= 0; else if (en) q <= sum;
  inner i(.clk(clk), .a(sum), .q(y));
endmodule
"""

RENAMED = """
// A comment.
module part(input clock, input [3:0] x, output reg [3:0] z);
  always @(posedge clock) z <= x;
endmodule
module whole(input clock, input reset, input [3:0] x, input enable, output [3:0] r, output [3:0] w);
  part instance_of_part(.z(w), .clock(clock), .x(x + state));
  reg [3:0] next, state;
  wire [3:0] unread = x ^ 4'h5;
  assign r = state;
  always @* begin next = state; if (enable) next = x + state; if (reset) next = 0; end
  always @(posedge clock) state <= next;
endmodule
"""


def digest(text: str, tmp_path: Path) -> str:
    (tmp_path / "a.v").write_text(text)
    return verilog_digest([tmp_path / "a.v"])


def test_a_digest_knows_no_names_no_order_and_nothing_unread(tmp_path: Path) -> None:
    assert digest(PLAIN, tmp_path) == digest(RENAMED, tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a + q", "a - q"),
        ("a + q", "q + q"),
        ("q <= 0", "q <= 1"),
        ("else if (en)", "else if (a[0])"),
        ("posedge clk) if", "negedge clk) if"),
        (".a(sum)", ".a(q)"),
        (".a(sum)", ".a({sum[0], sum[1], sum[3:2]})"),
        ("always @(posedge clk) q <= a;", "always @(posedge clk) q <= ~a;"),
        (
            "input en, output reg [3:0] q, output [3:0] y",
            "input en, output [3:0] y, output reg [3:0] q",
        ),
        ("input [3:0] a, input en", "input [4:0] a, input en"),
    ],
)
def test_a_digest_knows_what_the_hardware_does(old: str, new: str, tmp_path: Path) -> None:
    changed = PLAIN.replace(old, new)
    assert changed != PLAIN
    assert digest(PLAIN, tmp_path) != digest(changed, tmp_path)


def test_a_digest_knows_no_copies(tmp_path: Path) -> None:
    """Not even where the reader of the Verilog would simplify an operator of two equal bits."""
    named = PLAIN.replace("(en)", "(x & x)").replace("  wire", "  wire x = en ^ a[0];\n  wire")
    twice = PLAIN.replace("(en)", "((en ^ a[0]) & (en ^ a[0]))")
    assert digest(named, tmp_path) == digest(twice, tmp_path) != digest(PLAIN, tmp_path)


def test_a_digest_knows_where_in_a_ring_of_equal_registers_one_is_read(tmp_path: Path) -> None:
    def ring(tap: int) -> str:
        moves = " ".join(f"r{n + 1} <= r{n};" for n in range(7))
        registers = ", ".join(f"r{n}" for n in range(8))
        return (
            f"module ring(input clk, input a, output y); reg {registers};\n"
            f"always @(posedge clk) begin r0 <= a ^ r7; {moves} end\nassign y = r{tap}; endmodule\n"
        )

    assert digest(ring(3), tmp_path) == digest(ring(3).replace("r5", "other"), tmp_path)
    assert digest(ring(3), tmp_path) != digest(ring(4), tmp_path)
