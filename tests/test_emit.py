"""Emitted Verilog: one module a configuration, the same bytes every time, no lint for FPGAs."""

import os
import re
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hdl import emit
from hdl.arith.float_format import BINARY16
from hdl.arith.float_multiply import FloatMultiply
from hdl.catalog import entry_named
from hdl.emit import LINE_LENGTH, Emission, write_verilog
from hdl.memory.memory import Memory
from hdl.paths import ROOT
from hdl.target import Target
from hdl.unit import Unit


class Inner(Unit):
    """Adds a constant."""

    def __init__(self, *, width: int, step: int = 1) -> None:
        self.step = step
        super().__init__({"value": In(signed(width)), "next": Out(signed(width))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.next.eq(self.value + self.step)
        return m


class Passive(wiring.Component):
    """A component that is no unit."""

    def __init__(self) -> None:
        super().__init__({"value": In(4), "inverse": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ports: Any = self
        m.d.comb += ports.inverse.eq(~ports.value)
        return m


class Outer(Unit):
    """Two equal units, one other, and a component that is no unit."""

    def __init__(self) -> None:
        super().__init__({"value": In(signed(8)), "result": Out(signed(8)), "inverse": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        value = self.value
        for name, step in (("first", 1), ("second", 1), ("third", 2)):
            m.submodules[name] = inner = Inner(width=8, step=step)
            m.d.comb += inner.value.eq(value)
            value = inner.next
        passive: Any = Passive()
        m.submodules.passive = passive
        m.d.comb += [
            self.result.eq(value),
            passive.value.eq(value),
            self.inverse.eq(passive.inverse),
        ]
        return m


@dataclass(frozen=True)
class InnerParametersWithALongName:
    a_parameter_with_quite_a_long_name: int = 1


@dataclass(frozen=True)
class OuterParametersWithALongName:
    another_parameter_with_a_long_name: InnerParametersWithALongName


class Nested(Unit):
    """Copies a bit."""

    def __init__(self, *, parameters: OuterParametersWithALongName) -> None:
        super().__init__({"value": In(1), "copy": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.copy.eq(self.value)
        return m


def texts(unit: Unit, directory: Path, name: str | None = None) -> dict[str, str]:
    files = write_verilog(Emission(top=unit, name=name), directory)
    return {file.name: file.read_text() for file in files}


def test_one_module_a_configuration(tmp_path: Path) -> None:
    emitted = texts(Outer(), tmp_path / "rtl", "outer")
    assert list(emitted) == ["inner_8_1.v", "inner_8_2.v", "outer.v", "outer.f"]
    assert re.findall(r"^  (inner_8_\d) (\w+) \($", emitted["outer.v"], re.M) == [
        ("inner_8_1", "first"),
        ("inner_8_1", "second"),
        ("inner_8_2", "third"),
    ]
    assert emitted["outer.f"].split() == ["inner_8_1.v", "inner_8_2.v", "outer.v"]


def test_ports_are_clock_first_then_in_declared_order() -> None:
    names = [port.name for port in Emission(top=Outer()).modules[-1].ports]
    assert names == ["clk", "rst", "value", "result", "inverse"]


def test_files_carry_licence_and_configuration(tmp_path: Path) -> None:
    emitted = texts(Outer(), tmp_path / "rtl")
    assert "SPDX-License-Identifier: 0BSD" in emitted["inner_8_2.v"]
    assert "step = 2" in emitted["inner_8_2.v"]


def test_header_breaks_long_names_of_nested_parameters(tmp_path: Path) -> None:
    parameters = OuterParametersWithALongName(InnerParametersWithALongName())
    text = texts(Nested(parameters=parameters), tmp_path / "rtl", "nested")["nested.v"]
    header = [line for line in text.splitlines() if line.startswith("//")]
    assert max(map(len, header)) <= LINE_LENGTH
    words = "".join(line[2:].strip() for line in header).replace(" ", "")
    assert repr(parameters).replace(" ", "") in words


def test_memory_without_contents_needs_no_object_per_bit() -> None:
    words, width = 1 << 14, 512
    tracemalloc.start()
    try:
        Emission(top=Memory(depth=words, width=width), name="memory")
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < words * width


def test_memory_with_contents_keeps_them(tmp_path: Path) -> None:
    class Table(Unit):
        """Reads a table."""

        def __init__(self) -> None:
            super().__init__({"address": In(2), "word": Out(8)})

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.submodules.table = table = memory.Memory(shape=8, depth=4, init=[0, 0xA5, 0, 0x3C])
            read = table.read_port(domain="comb")
            m.d.comb += [read.addr.eq(self.address), self.word.eq(read.data)]
            return m

    text = texts(Table(), tmp_path / "rtl", "table_of_words")["table_of_words.v"]
    assert "8'ha5" in text and "8'h3c" in text


def test_text_names_no_place_and_no_initial_state(tmp_path: Path) -> None:
    for text in texts(entry_named("systolic_evictor").build("tiny"), tmp_path / "rtl").values():
        assert str(ROOT) not in text
        assert "site-packages" not in text
        assert "initial" not in text


def test_unchanged_files_keep_their_time(tmp_path: Path) -> None:
    texts(Outer(), tmp_path / "rtl")
    file = tmp_path / "rtl" / "inner_8_1.v"
    os.utime(file, (1, 1))
    texts(Outer(), tmp_path / "rtl")
    assert file.stat().st_mtime == 1


def test_what_was_emitted_before_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "_emitted", {})
    first = texts(Outer(), tmp_path / "first", "outer")
    assert texts(Outer(), tmp_path / "again", "outer") == first
    monkeypatch.setattr(emit, "_emitted", {})
    texts(Inner(width=8, step=2), tmp_path / "inner")
    assert texts(Outer(), tmp_path / "second", "outer") == first


def test_lines_of_python_are_those_of_the_design(tmp_path: Path) -> None:
    """A known module has none, and one that has some is not kept."""
    unit = entry_named("rms_norm").build
    Emission(top=unit("tiny"))
    emission = Emission(top=unit("tiny"), sources=True)
    assert all('attribute \\src "hdl/' in module.rtlil for module in emission.modules)
    assert all("src" not in module.rtlil for module in Emission(top=unit("tiny")).modules)


def test_two_configurations_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="module names must be distinct, not 'inner_8_1'"):
        Emission(top=Outer(), name="inner_8_1")


class Both(Unit):
    """Multiplies, and adds a constant."""

    def __init__(self) -> None:
        super().__init__({"value": In(signed(8)), "next": Out(signed(8)), "square": Out(16)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Inner(width=8)
        m.submodules.multiply = multiply = FloatMultiply(number_format=BINARY16, stages=0)
        m.d.comb += [inner.value.eq(self.value), self.next.eq(inner.next)]
        m.d.comb += [multiply.a.eq(self.value), multiply.b.eq(self.value)]
        m.d.comb += self.square.eq(multiply.result)
        return m


@pytest.mark.parametrize("targets", [tuple(Target), tuple(Target)[::-1]])
def test_only_modules_that_depend_on_the_target_are_converted_twice(
    targets: tuple[Target, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    converted, own = list[str](), emit.convert

    def noted(unit: Unit, *, name: str, **arguments: Any) -> str:
        converted.append(name)
        return own(unit, name=name, **arguments)

    monkeypatch.setattr(emit, "convert", noted)
    monkeypatch.setattr(emit, "_emitted", {})
    first, second = (Emission(top=Both(), name="both", target=one) for one in targets)
    assert sorted(name.partition("_")[0] for name in converted) == [
        "both", "float", "float", "inner",
    ]  # fmt: skip
    monkeypatch.setattr(emit, "_emitted", {})
    assert Emission(top=Both(), name="both", target=targets[1]).modules == second.modules
    assert first.modules != second.modules


def test_an_fpga_is_left_to_find_multipliers_and_carry_chains(tmp_path: Path) -> None:
    unit = FloatMultiply(number_format=BINARY16, stages=0)
    operators = {}
    for target in Target:
        files = write_verilog(Emission(top=unit, name="multiply", target=target), tmp_path / target)
        text = re.sub(r"//.*|\(\* .*? \*\)", "", files[0].read_text())
        operators[target] = re.findall(r" \* ", text)
    assert operators == {Target.ASIC: [], Target.FPGA: [" * "]}


def test_long_configurations_are_named_by_digest() -> None:
    class Wide(Unit):
        """A unit with a long configuration."""

        def __init__(self, *, table: tuple[int, ...]) -> None:
            super().__init__({"value": Out(1)})

    name = Wide(table=tuple(range(40))).module_name
    assert re.fullmatch(r"wide_[0-9a-f]{8}", name)
    assert name != Wide(table=tuple(range(41))).module_name


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Inner(8)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(("top", "preset"), [("systolic_evictor", "paper"), ("sfu", "tiny")])
def test_same_bytes_from_any_directory_and_hash_seed(tmp_path: Path, top: str, preset: str) -> None:
    program = (
        "import sys; from pathlib import Path; from hdl.catalog import entry_named\n"
        "from hdl.emit import Emission, write_verilog\n"
        f"unit = entry_named('{top}').build('{preset}')\n"
        f"write_verilog(Emission(top=unit, name='{top}'), Path(sys.argv[1]))\n"
    )
    results = []
    for seed in ("1", "2"):
        elsewhere = tmp_path / seed
        elsewhere.mkdir()
        subprocess.run(
            [sys.executable, "-c", program, "out"],
            cwd=elsewhere,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            check=True,
        )
        files = sorted((elsewhere / "out").iterdir())
        results.append([(file.name, file.read_bytes()) for file in files])
    assert results[0] == results[1]


def test_an_evictor_of_32_rows_has_one_row_module(tmp_path: Path) -> None:
    emitted = texts(entry_named("systolic_evictor").build("paper"), tmp_path / "rtl", "evictor")
    rows = [name for name in emitted if name.startswith("evictor_row")]
    assert len(rows) == 1
    module = rows[0].removesuffix(".v")
    assert len(re.findall(rf"^  {module} row_\d+ \($", emitted["evictor.v"], re.M)) == 32
