"""Structs that are partly constant have the same values in two simulators, one with four states.

Amaranth's own semantics, written again in `Field.expected`, give the values.
"""

import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hdl.emit import Emission, Port, write_verilog
from hdl.unit import Unit
from synth.debian import icarus
from testbenches import simulators
from testbenches.lint import faulty_blocks

WIDEST = 200
CONDITIONS = 4

KINDS = (
    "constant", "nothing", "copied", "chosen", "chosen_over", "overridden", "decided", "refused",
    "matched", "patched", "stored", "chained", "led",
)  # fmt: skip
"""How a field is driven, see `Field.drive`."""

ALWAYS = {"constant", "nothing", "overridden", "decided", "refused", "matched"}
"""Kinds whose value depends on no input."""

needs_icarus = pytest.mark.skipif(not icarus(fetch=False), reason="needs Icarus Verilog")


@dataclass(frozen=True)
class Field:
    """One field of a struct.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    width : int
        Bits.
    constant : int
        Of `width` bits.
    condition : int
        Number of the condition that decides.
    first : int
        First bit that is constant, for the kind ``patched``.
    """

    kind: str
    width: int
    constant: int
    condition: int
    first: int

    def drive(self, m: Module, field: Value, value: Value, conditions: Signal) -> None:
        """Add the statements that drive the field."""
        value, constant = value[: self.width], Const(self.constant, self.width)
        condition = conditions[self.condition]
        match self.kind:
            case "constant":
                m.d.comb += field.eq(constant)
            case "copied":
                m.d.comb += field.eq(value)
            case "chosen":
                with m.If(condition):
                    m.d.comb += field.eq(value)
            case "chosen_over":
                m.d.comb += field.eq(constant)
                with m.If(condition):
                    m.d.comb += field.eq(value)
            case "overridden":
                with m.If(condition):
                    m.d.comb += field.eq(value)
                m.d.comb += field.eq(constant)
            case "decided":
                with m.If(Const(1)):
                    m.d.comb += field.eq(constant)
            case "refused":
                with m.If(Const(0)):
                    m.d.comb += field.eq(value)
            case "matched":
                with m.Switch(Const(5, 3)):
                    with m.Case(4):
                        m.d.comb += field.eq(value)
                    with m.Case("1-1"):
                        m.d.comb += field.eq(constant)
            case "patched":
                with m.If(condition):
                    m.d.comb += field.eq(value)
                m.d.comb += field[self.first :].eq(constant[self.first :])
            case "stored":
                m.d.sync += field.eq(value)
            case "chained":
                with m.If(field[0]):
                    m.d.comb += field[1:].eq(value[1:])
                with m.If(condition):
                    m.d.comb += field[0].eq(value[0])
            case "led":
                with m.If(field[0]):
                    m.d.comb += field[1:].eq(value[1:])
                m.d.comb += field[0].eq(condition)

    def expected(self, value: int, conditions: int) -> int:
        """Return the field's value after a clock edge with these inputs."""
        value &= (1 << self.width) - 1
        condition = conditions >> self.condition & 1
        low = (1 << self.first) - 1
        return {
            "constant": self.constant,
            "nothing": 0,
            "copied": value,
            "chosen": value if condition else 0,
            "chosen_over": value if condition else self.constant,
            "overridden": self.constant,
            "decided": self.constant,
            "refused": 0,
            "matched": self.constant,
            "patched": self.constant & ~low | (value & low if condition else 0),
            "stored": value,
            # Bits of one signal that decide others of it.
            "chained": value if condition and value & 1 else 0,
            "led": value | 1 if condition else 0,
        }[self.kind]


class Structs(Unit):
    """Structs whose fields are driven in every way, in one module."""

    def __init__(self, *, structs: tuple[tuple[Field, ...], ...], order: int) -> None:
        self.structs, self.order = structs, order
        super().__init__(
            {
                "value": In(WIDEST),
                "conditions": In(CONDITIONS),
                **{
                    f"out_{i}": Out(
                        data.StructLayout({f"f{j}": field.width for j, field in enumerate(fields)})
                    )
                    for i, fields in enumerate(structs)
                },
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = [(i, j) for i, fields in enumerate(self.structs) for j in range(len(fields))]
        random.Random(self.order).shuffle(places)
        for i, j in places:
            field = getattr(self, f"out_{i}")[f"f{j}"]
            self.structs[i][j].drive(m, field, self.value, self.conditions)
        return m


def random_structs(seed: int) -> Structs:
    """Return structs with a constant of each width from 1 to `WIDEST` and fields of all kinds."""
    draw = random.Random(seed)

    def field(kind: str, width: int) -> Field:
        return Field(
            kind,
            width,
            draw.getrandbits(width) if draw.random() < 0.8 else 0,
            draw.randrange(CONDITIONS),
            draw.randrange(width),
        )

    fields = [field("constant", width) for width in range(1, WIDEST + 1)]
    # A constant of 32 bits is the one that Yosys spells another way.
    fields += [field(kind, 32) for kind in KINDS for _ in range(4)]
    fields += [field(draw.choice(KINDS), draw.randint(1, WIDEST)) for _ in range(100)]
    draw.shuffle(fields)
    structs = []
    while fields:
        size = draw.randint(1, 8)
        structs.append(tuple(fields[:size]))
        fields = fields[size:]
    return Structs(structs=tuple(structs), order=seed)


BENCH = """
module bench;
{declarations}
  {top} dut({ports});
  task show;
    begin
{shows}
    end
  endtask
  initial begin
    #1 show;
{vectors}
    $finish;
  end
endmodule
"""

PROGRAM = """
#include PORTS
#include "Vtop.h"
#include <cstdio>
template <class T> bool bit(const T& value, int i) {{ return value >> i & 1; }}
template <std::size_t N> bool bit(const VlWide<N>& value, int i) {{
    return value[i / 32] >> i % 32 & 1;
}}
template <class T> void show(const T& value, int width) {{
    while (width--) putchar('0' + bit(value, width));
    putchar('\\n');
}}
template <class T> void set(T& target, std::initializer_list<uint32_t> words) {{
    target = *words.begin();
}}
template <std::size_t N> void set(VlWide<N>& target, std::initializer_list<uint32_t> words) {{
    for (std::size_t i = 0; i < N; ++i) target[i] = words.begin()[i];
}}
int main() {{
    VerilatedContext context;
    context.randReset(2);
    context.randSeed(7);
    Vtop dut{{&context}};
    auto shown = [&] {{
{shows}
    }};
    dut.eval();
    shown();
{vectors}
}}
"""

Vector = dict[str, int]
"""Values of inputs by name."""


def verilog_bench(top: str, ports: Sequence[Port], vectors: list[Vector]) -> str:
    """Write a testbench that prints all outputs, before any input is driven and for each vector."""
    return BENCH.format(
        top=top,
        declarations="\n".join(
            f"  {'reg' if port.direction == 'input' else 'wire'} [{port.width - 1}:0] {port.name};"
            for port in ports
        ),
        ports=", ".join(f".{port.name}({port.name})" for port in ports),
        shows="\n".join(f'      $display("%b", {port.name});' for port in outputs(ports)),
        vectors="\n".join(
            "    "
            + " ".join(
                f"{port.name} = {port.width}'h{vector[port.name]:x};"
                for port in ports
                if port.name in vector
            )
            + " #1 show;"
            for vector in vectors
        ),
    )


def outputs(ports: Sequence[Port]) -> list[Port]:
    """Return the ports that are outputs."""
    return [port for port in ports if port.direction == "output"]


def simulate(
    simulator: str, unit: Unit, vectors: list[Vector], directory: Path
) -> list[dict[str, str]]:
    """Return the bits of each output, before any input is driven and for each vector."""
    emission = Emission(top=unit, name="structs")
    *files, _list = write_verilog(emission, directory / "rtl")
    ports = emission.modules[-1].ports
    assert not [block for file in files for block in faulty_blocks(file.read_text())]
    if simulator == "verilator":
        printed = run_verilator(ports, vectors, files, directory)
    else:
        (directory / "bench.v").write_text(verilog_bench("structs", ports, vectors))
        printed = run_icarus(
            simulator.partition("-")[2], [*files, directory / "bench.v"], directory
        )
    lines = [line for line in printed.splitlines() if re.fullmatch("[01xz]+", line)]
    names = [port.name for port in outputs(ports)]
    assert len(lines) == len(names) * (1 + len(vectors))
    return [dict(zip(names, part, strict=True)) for part in batched(lines, len(names))]


def batched(lines: list[str], size: int) -> Iterator[list[str]]:
    """Yield the lines in parts of equal size."""
    for start in range(0, len(lines), size):
        yield lines[start : start + size]


def run_icarus(language: str, files: list[Path], directory: Path) -> str:
    """Simulate in four states, and return what is printed."""
    programs = icarus(fetch=False)
    assert programs
    compiler, runtime = programs
    home = list(compiler.environment.values())
    flags = [*(f"-B{one}" for one in home), f"-g{language}", "-o", "bench.vvp", *map(str, files)]
    compiled = compiler.run(*flags, directory=directory)
    assert compiled.returncode == 0, compiled.stderr
    modules = [word for one in home for word in ("-M", one)]
    return runtime.run(*modules, "bench.vvp", directory=directory).stdout


def run_verilator(
    ports: Sequence[Port], vectors: list[Vector], files: list[Path], directory: Path
) -> str:
    """Simulate with random values in the place of unknown ones, and return what is printed."""
    _runner, model = simulators.build(
        simulator="verilator",
        top="structs",
        ports=ports,
        verilog=files,
        waves=False,
        coverage=False,
    )
    text = PROGRAM.format(
        shows="\n".join(f"        show(dut.{port.name}, {port.width});" for port in outputs(ports)),
        vectors="\n".join(
            "    "
            + " ".join(f"set(dut.{name}, {words(value)});" for name, value in vector.items())
            + " dut.eval(); shown();"
            for vector in vectors
        ),
    )
    program = directory / "structs.cpp"
    program.write_text(text)
    executable = simulators.link(model, program, "")
    return subprocess.run([executable], capture_output=True, text=True, check=True).stdout


def words(value: int) -> str:
    """Spell a number as words of 32 bits in C++, the lowest first."""
    return f"{{{', '.join(f'{value >> 32 * i & 0xFFFFFFFF}u' for i in range(-(-WIDEST // 32)))}}}"


SIMULATORS = ("verilator", "icarus-2005", "icarus-2012")
"""Icarus reads Verilog by two standards, which differ in what starts a block at time 0."""


def wrong_fields(structs: Structs, vector: Vector, found: dict[str, str]) -> Iterator[str]:
    """Yield a description of each field that does not have its value.

    Without a vector, only fields are compared whose value depends on no input.
    """
    for i, fields in enumerate(structs.structs):
        low = 0
        kinds = {field.kind for field in fields}
        # A statement that drives no bit of a register preserves its reset value.
        known = ALWAYS - ({"nothing"} if "stored" in kinds else set())
        for j, field in enumerate(fields):
            high = low + field.width
            bits = found[f"out_{i}"][::-1][low:high][::-1]
            low = high
            if vector or field.kind in known:
                expected = field.expected(vector.get("value", 0), vector.get("conditions", 0))
                if bits != f"{expected:0{field.width}b}":
                    yield f"{vector}, out_{i}.f{j}, {field}: {bits}"
        assert low == len(found[f"out_{i}"])


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))]


@needs_icarus
@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize("seed", SEEDS)
def test_partly_constant_structs_have_their_values(
    seed: int, simulator: str, tmp_path: Path
) -> None:
    structs = random_structs(seed)
    draw = random.Random(seed)
    inputs = [
        {"value": draw.getrandbits(WIDEST), "conditions": draw.randrange(1 << CONDITIONS), "rst": 0}
        for _ in range(12)
    ]
    inputs.insert(0, inputs[0] | {"rst": 1})
    edges = [vector | {"clk": clock} for vector in inputs for clock in (0, 1)]
    undriven, *after = simulate(simulator, structs, edges, tmp_path)
    assert list(wrong_fields(structs, {}, undriven)) == []
    # Registers have the values of a vector from its rising edge on, and the first resets them.
    for vector, found in list(zip(inputs, after[1::2], strict=True))[1:]:
        assert list(wrong_fields(structs, vector, found)) == []


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("always @*\n    x[45:14] = 32'd0;", "must read a signal"),
        ("always @*\n    x = -4'sd3;", "must read a signal"),
        ("always @*\n    { x[1],\n        x[0] } = 2'h1;", "must read a signal"),
        ("always @* begin\n    if (_start_) begin end\n    x = 4'h5;\n  end", "must read a signal"),
        (
            "always @* begin\n    casez (4'h3)\n      4'h3:\n        x = 1'h1;\n    endcase\n  end",
            "must read a signal",
        ),
        ("always @* begin\n    x = 0;\n    if (x[0]) x[1] = y;\n  end", "not read what it drives"),
    ],
)
def test_a_block_that_no_change_starts_is_found(block: str, message: str) -> None:
    (found,) = faulty_blocks(f"module m(y);\n  input y;\n  {block}\n  assign z = y;\nendmodule\n")
    assert message in found


@pytest.mark.parametrize(
    "block",
    [
        "always @*\n    x[3:0] = y;",
        "always @* begin\n    x = 0;\n    if (y == 2'h1) begin\n      x = 1'h1;\n    end\n  end",
        "always @* begin\n    casez (y) // a\n      1'h1:\n        x = 1'h1;\n    endcase\n  end",
        "always @*\n    { x[1], x[0] } = { 1'h0,\n        $signed(y) };",
    ],
)
def test_a_block_that_reads_a_signal_is_no_fault(block: str) -> None:
    assert not faulty_blocks(f"module m(y);\n  input y;\n  {block}\n  assign z = y;\nendmodule\n")
