"""Lint of separate modules: errors in each are found, and clean modules are linted once."""

from pathlib import Path

import pytest

from testbenches import lint
from testbenches.lint import lint_modules

TOP = """\
// top: Two inverters in a row.

module top(clk, value, result);
  input clk;
  wire clk;
  input value;
  wire value;
  output result;
  wire result;
  wire between;
  leaf first (
    .value(value),
    .result(between)
  );
  leaf second (
    .value(between),
    .result(result)
  );
endmodule
"""

LEAF = """\
module leaf(value, result);
  input value;
  wire value;
  output result;
  wire result;
  assign result = ~value;
endmodule
"""

LOOP = """\
  wire [1:0] loop;
  assign loop[0] = loop[1] & value;
  assign loop[1] = ~loop[0];
  assign result = ~loop[0];
"""

CONSTANT = """\
  reg kept;
  always @*
    kept = 1'h0;
  assign result = ~value & kept;
"""


@pytest.fixture(autouse=True)
def no_known_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint, "_CLEAN", tmp_path / "clean")


def messages(directory: Path, top: str = TOP, leaf: str = LEAF) -> str:
    files = []
    for name, text in (("leaf", leaf), ("top", top)):
        files.append(directory / f"{name}.v")
        files[-1].write_text(text)
    return lint_modules(files)


def test_correct_modules_have_no_message(tmp_path: Path) -> None:
    assert messages(tmp_path) == ""


@pytest.mark.parametrize(
    ("module", "old", "new", "message"),
    [
        ("leaf", "  assign result = ~value;\n", "", "UNDRIVEN"),
        ("leaf", "  assign result = ~value;\n", LOOP, "UNOPTFLAT"),
        ("leaf", "  assign result = ~value;\n", CONSTANT, "a block must read a signal"),
        ("leaf", "~value", "~valeu", "valeu"),
        ("top", "    .value(between),\n", "", "PINMISSING"),
        ("top", ".value(between)", ".walue(between)", "PINNOTFOUND"),
        ("top", ".value(between)", ".value()", "PINCONNECTEMPTY"),
        ("top", ".result(result)", ".result(between)", "UNDRIVEN"),
        ("top", "leaf second", "lief second", "lief"),
    ],
)
def test_error_in_one_module_is_found_until_it_is_mended(
    tmp_path: Path, module: str, old: str, new: str, message: str
) -> None:
    text = {"top": TOP, "leaf": LEAF}
    assert old in text[module]
    faulty = text | {module: text[module].replace(old, new)}
    for _ in range(2):
        assert message in messages(tmp_path, **faulty)
    assert messages(tmp_path) == ""
    assert message in messages(tmp_path, **faulty)


def test_clean_module_is_linted_again_only_if_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = lint._verilator
    linted = []

    def recorded(*arguments: str) -> str:
        linted.append([Path(file).name for file in arguments if file.endswith(".v")])
        return run(*arguments)

    monkeypatch.setattr(lint, "_verilator", recorded)
    messages(tmp_path)
    messages(tmp_path, TOP.replace("Two inverters", "Inverters"))
    messages(tmp_path, leaf=LEAF.replace("~value", "!value"))
    messages(tmp_path, *(text.replace("value", "operand") for text in (TOP, LEAF)))
    assert linted == [["leaf.v", "top.v"], ["leaf.v"], ["leaf.v", "top.v"]]
