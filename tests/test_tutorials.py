"""The tutorials' code runs, and their changes apply to the sources that they name."""

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from click.testing import CliRunner

from golden.llm.model import SMOLLM2
from golden.nonlinear.argmax import argmax
from golden.policies.agreement import compare
from golden.policies.registry import policy_named
from hdl.catalog import entry_named
from hdl.paths import ROOT
from hdl.shell.register_map import registers
from synth.export import check_flow
from synth.fpga import find_device
from synth.measure import build_unit
from systola.cli import main
from systola.comparing.policies import PolicyColumn
from systola.exploration.sweep import parse_sweep
from systola.make import options
from systola.notebooks import notebook_of
from systola.options import choose
from testbenches.packing import pack, to_integer
from tests.generation.small_model import write_small_model

TUTORIALS = {file.stem: file.read_text() for file in (ROOT / "docs/tutorials").glob("*.md")}
PAGE = TUTORIALS["policy"]


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


def saved(page: str, folder: Path) -> dict[str, Path]:
    """Save the files of a page as the reader saves them; return them by name."""
    found = re.findall(
        r"[Ss]ave (?:this|it) as `([^`]+)`[^`]*:\n\n```python\n(.*?)^```", page, re.M | re.S
    )
    for name, code in found:
        (folder / name).write_text(code)
    return {name: folder / name for name, _code in found}


def shown(page: str, command: str) -> str:
    """Return the output that a page shows after a command."""
    block = r"```text\n(.*?)^```"
    (output,) = re.findall(
        rf"^{re.escape(command)}\n```\n+(?:[^`\n][^\n]*\n+)*{block}", page, re.M | re.S
    )
    return output


COMMANDS = sorted(
    {
        (name, line)
        for name, page in TUTORIALS.items()
        for block in blocks("text", page)
        for line in block.splitlines()
        if line.startswith("make ")
    }
)


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=map(" ".join, COMMANDS))
def test_command_names_options_units_and_presets_that_exist(page: str, command: str) -> None:
    verb, *words = shlex.split(command)[1:]
    given = dict(word.split("=", 1) for word in words)
    main.commands[verb].make_context(verb, options(given))
    for top in given.get("TOP", "").split():
        choose(top, given.get("PRESET"), None, given.get("SET", ""))
    check_flow(given.get("FOR", "orfs"))
    find_device(given.get("DEVICE", "xcup"))


@pytest.mark.parametrize("name", TUTORIALS)
def test_notebook_has_the_files_and_commands_of_the_page(name: str, tmp_path: Path) -> None:
    notebook = notebook_of(TUTORIALS[name])
    cells = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    bash = "%%bash -e\n"
    commands = {
        line for cell in cells if cell.startswith(bash) for line in cell[len(bash) :].split("\n")
    }
    assert {command for page, command in COMMANDS if page == name} <= commands
    written = dict(
        cell.removeprefix("%%writefile ").split("\n", 1)
        for cell in cells
        if cell.startswith("%%writefile ")
    )
    files = saved(TUTORIALS[name], tmp_path)
    assert files.keys() <= written.keys()
    assert all(written[file] + "\n" == path.read_text() for file, path in files.items())
    texts = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    assert not any(command in text.split("\n") for text in texts for command in commands)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


def test_each_tutorial_has_commands_and_code() -> None:
    assert {name for name, _command in COMMANDS} == set(TUTORIALS) - {"project"}
    assert all(blocks("python", page) for page in TUTORIALS.values())


@pytest.fixture
def tova(tmp_path: Path) -> Path:
    """The policy, saved as the reader saves it."""
    return saved(PAGE, tmp_path)["tova.py"]


def test_policy_has_under_sixty_lines_and_is_accepted(tova: Path) -> None:
    assert len(tova.read_text().splitlines()) < 60
    assert policy_named(str(tova)).name == "tova"


def test_policy_of_a_file_selects_the_rule_in_hardware(tmp_path: Path) -> None:
    """Its fast form and its unit are those of the policy without the fallback."""
    own = policy_named(str(saved(PAGE, tmp_path)["no_fallback.py"])).policy
    assert own == policy_named("voting_without_fallback").policy
    assert own.hardware and own.hardware.unit == "voting_engine"
    assert own.hardware.settings == {"threshold.fallback": False}


def test_policy_is_tova(tova: Path) -> None:
    """Compare with the definition: the smallest sum of the last row, over all heads."""
    scores = np.random.default_rng(1).normal(0, 2, (4, 40, 40)).astype(np.float32)
    cached: list[int] = []
    expected = []
    for now in range(40):
        cached.append(now)
        expected.append(np.sort(cached))
        powers = np.exp(scores[:, now, cached].astype(np.float64))
        total = (powers / powers.sum(1, keepdims=True)).sum(0)
        if len(cached) > 16:
            del cached[int(total[:-1].argmin())]
    policy = policy_named(str(tova)).adjusted(16, None).policy
    found = compare(policy.second_source(scores), expected)
    assert found.evictions == 23 and found.equal


def test_perplexity_of_the_policy(tova: Path, tmp_path: Path) -> None:
    """Run the page's command on a small model."""
    folder = write_small_model(tmp_path / "small")
    (tmp_path / "text.txt").write_text(" ".join(str(n % 41) for n in range(80)))
    (command, *_) = re.findall(r"^make perplexity POLICY=tova.py (.*)$", PAGE, re.M)
    given = dict(word.split("=") for word in command.split())
    assert sorted(given) == ["BUDGET", "CONTEXT", "WINDOWS"]
    options = ["--policy", str(tova), "--budget", "16", "--context", "32", "--windows", "2"]
    options += ["--model", str(folder), "--text", str(tmp_path / "text.txt")]
    result = CliRunner().invoke(main, ["perplexity", *options])
    assert result.exit_code == 0, result.output
    assert "30 of 30" in result.output


def variables(command: str) -> dict[str, str]:
    """Return the variables of the page's one command that begins with these words."""
    (line,) = {line for name, line in COMMANDS if name == "policy" and line.startswith(command)}
    return dict(word.split("=", 1) for word in shlex.split(line)[2:])


def test_sweep_of_the_policy(tova: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the page's command on a small model, with smaller budgets."""
    given = variables("make explore")
    assert given["POLICY"] == "tova.py h2o" and parse_sweep(given["SWEEP"]).keys() == {"budget"}
    monkeypatch.setattr("systola.explore.HOME", tmp_path / "explore")
    monkeypatch.chdir(tova.parent)
    folder = write_small_model(tmp_path / "small")
    (tmp_path / "text.txt").write_text(" ".join(str(n * n % 41) for n in range(40)))
    given |= {"SWEEP": "budget=8,12", "CONTEXT": "24", "TEXT": "text.txt", "MODEL": str(folder)}
    result = CliRunner().invoke(main, ["explore", *options(given)])
    assert result.exit_code == 0, result.output
    for point in ("tova budget=8", "tova budget=12", "h2o budget=8", "h2o budget=12"):
        (row,) = [cells for cells in table_rows(result.output) if cells[0] == point]
        evictions = 24 - int(row[1]) - 1
        assert row[4] == f"{evictions} of {evictions}"
    assert (tmp_path / "explore/policies-tova-h2o/pareto-budget-perplexity.svg").is_file()


def test_text_with_the_policy(tova: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the page's command on a small model, with its own prompt."""
    monkeypatch.chdir(tova.parent)
    given = variables("make generate") | {"PROMPT": "3 1 4 1 5", "BUDGET": "12"}
    given["MODEL"] = str(write_small_model(tmp_path / "small"))
    result = CliRunner().invoke(main, ["generate", *options(given)])
    assert result.exit_code == 0, result.output
    tokens = int(given["TOKENS"])
    # Two layers with one cache each; the last token is not processed.
    assert ("evictions", str(2 * (5 + tokens - 1 - 12))) in table_rows(result.output)
    equal = 5 + tokens - 1 - 12 - 1
    assert ("evictions equal to float64", f"{equal} of {equal}") in table_rows(result.output)


def test_policy_next_to_accelerators(tova: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = variables("make compare")
    monkeypatch.chdir(tova.parent)
    model = SimpleNamespace(shape=SMOLLM2, digest="model")
    own, _h2o = (
        PolicyColumn.open(text, int(given["BUDGET"]), model) for text in given["POLICY"].split()
    )
    assert (own.title, own.cached) == ("tova, float32", 128)
    assert "POLICY=tova.py BUDGET=128" in str(own.command)


@pytest.mark.parametrize("verb", ["perplexity", "sim"])
def test_message_of_the_page_is_the_verbs(
    verb: str, tova: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_policy, in_verb = re.findall(r"^Error: (.*)$", PAGE, re.M)
    if verb == "perplexity":
        tova.write_text(tova.read_text().replace("importance, query", "importance"))
    monkeypatch.chdir(tova.parent)
    result = CliRunner().invoke(main, [verb, "--policy", "tova.py"])
    assert result.exit_code == 2
    message = in_policy if verb == "perplexity" else in_verb
    assert message in " ".join(result.output.split())


def test_code_of_the_rule_is_in_the_sources() -> None:
    """Each block of code that the page shows is in its file once."""
    _policy, field, rtl, model, _own = blocks("python")
    for name, code in (
        ("hdl/veda/voting/threshold_parameters.py", field),
        ("hdl/veda/voting/vote_comparator.py", rtl),
        ("golden/veda/voting/vote_threshold.py", model),
    ):
        assert f"`{name}`" in PAGE
        assert (ROOT / name).read_text().count(code) == 1


def table_rows(text: str) -> set[tuple[str, ...]]:
    """Return the rows of the tables that a verb prints."""
    lines = re.findall(r"^│(.*)│$", text, re.M)
    return {tuple(cell.strip() for cell in line.split("│")) for line in lines}


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's folder, in which the verbs write to ``build``."""
    for module in ("hdl.emitted", "systola.options", "systola.synthesis"):
        monkeypatch.setattr(f"{module}.BUILD", tmp_path / "build")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "build"


@pytest.mark.parametrize("content", [None, "module top; endmodule\n"])
def test_messages_on_libraries_are_the_verbs(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "cells.lib"
    if content:
        file.write_text(content)
    result = CliRunner().invoke(main, ["synth", "--top", "argmax", "--liberty", str(file)])
    messages = re.findall(r"^Error: (LIBERTY .*)$", TUTORIALS["library"], re.M)
    assert result.exit_code == 2
    wanted = messages[bool(content)].replace("/pdk/cells.lib", str(file))
    assert len(messages) == 2 and wanted in " ".join(result.output.split())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's project, as working directory."""
    assert set(saved(TUTORIALS["project"], tmp_path)) == {
        "greedy.py",
        "tb_greedy.py",
        "simulate.py",
        "test_argmax.py",
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_design_of_a_project_is_emitted_and_its_model_runs(project: Path, capsys: Any) -> None:
    runpy.run_path(str(project / "greedy.py"), run_name="__main__")
    assert capsys.readouterr().out == shown(TUTORIALS["project"], "venv/bin/python greedy.py")
    assert "module greedy(" in (project / "rtl" / "greedy.v").read_text()
    (unit,) = re.findall(r"synth\.measure '(.*)'", TUTORIALS["project"])
    assert build_unit(unit).signature.members["tokens"]


def test_term_that_the_page_deletes_is_in_the_design_once() -> None:
    (term,) = re.findall(r"delete `(.*)` in `greedy.py`", TUTORIALS["project"])
    assert TUTORIALS["project"].count(f"self.tokens.ready {term})") == 1


def run_file(name: str) -> subprocess.CompletedProcess[str]:
    """Run a file of the reader's project; its environment has no variable of a simulation."""
    return subprocess.run(
        [sys.executable, name],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_bench_and_unit_run_in_cocotbs_own_runner(project: Path) -> None:
    assert len((project / "test_argmax.py").read_text().splitlines()) < 60
    child = run_file("test_argmax.py")
    assert child.returncode == 0, child.stdout + child.stderr
    assert "TESTS=4 PASS=4 FAIL=0" in child.stdout
    figures = re.findall(r"cocotb\.systola +(.*\n)", child.stdout)
    assert figures[0] == shown(TUTORIALS["project"], "venv/bin/python test_argmax.py")


@pytest.mark.full
def test_difference_fails_in_cocotbs_own_runner(project: Path) -> None:
    file = project / "test_argmax.py"
    model = "from golden.nonlinear.argmax import argmax_of_slices\n"
    other = """
def argmax_of_slices(p, rows):
    results = right(p, rows)
    return results | {"index": results["index"] ^ (np.arange(200) == 77)}
"""
    code = file.read_text().replace(model, model.replace("\n", " as right\n"))
    file.write_text(code.replace("\n\n@cocotb.test", f"{other}\n\n@cocotb.test", 1))
    child = run_file("test_argmax.py")
    assert child.returncode == 1 and "TESTS=4 PASS=0 FAIL=4" in child.stdout
    assert "index [77]" in child.stdout and "(1 of 200 values differ)" in child.stdout


def test_manifest_defines_the_bits_of_a_payload(build: Path, capsys: Any) -> None:
    page = TUTORIALS["board"]
    (command,) = (line for name, line in COMMANDS if name == "board" and "verilog" in line)
    given = dict(word.split("=") for word in command.split()[2:])
    result = CliRunner().invoke(main, ["verilog", *options(given)])
    assert result.exit_code == 0, result.output
    names = {file.name for file in (build / "argmax/tiny/rtl_fpga").iterdir()}
    assert {"argmax.v", "argmax.f", "argmax.json", "argmax.h", "argmax_pkg.sv"} <= names
    found = runpy.run_path(str(saved(page, build.parent)["beat.py"]))
    assert capsys.readouterr().out == shown(page, ".venv/bin/python beat.py")
    layout = entry_named("argmax").parameters("tiny").slice_layout
    row = {name: np.array(value) for name, value in found["row"].items()}
    assert found["packed"](found["slices"]["type"], found["row"]) == to_integer(pack(layout, row))


@pytest.fixture
def row_argmax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the design with the AXI shell."""
    monkeypatch.chdir(tmp_path)
    file = saved(TUTORIALS["board"], tmp_path)["row_argmax.py"]
    spec = importlib.util.spec_from_file_location("row_argmax", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_design_with_the_shell_is_exported(row_argmax: Any, tmp_path: Path) -> None:
    runpy.run_path(row_argmax.__file__, run_name="__main__")
    assert (tmp_path / "board/vivado/synth.tcl").is_file()
    header = (tmp_path / "board/registers.h").read_text()
    macros = set(re.findall(r"`(SYSTOLA_\w+)`", TUTORIALS["board"]))
    assert len(macros) == 2 and macros <= set(re.findall(r"#define (\w+)", header))
    text = (tmp_path / "board/vivado/rtl/row_argmax.v").read_text()
    ports = set(re.findall(r"^  (?:in|out)put (?:\[.*\] )?(\w+);", text, re.M))
    assert {re.sub(r"_(axi)_(ar|r|).*", r"_\1_\2*", port) for port in ports} == {
        *("clk", "rst", "s_axi_*", "s_axi_ar*", "s_axi_r*", "m_axi_ar*", "m_axi_r*"),
        "interrupt_request",
    }


class Board:
    """A host at AXI4-Lite and a memory at AXI4, around the design of the page."""

    def __init__(self, module: Any) -> None:
        self.dut, self.bytes = module.RowArgmax(), module.MEMORY.data_bytes
        self.offsets = {one.name: one.offset for one in registers(module.HOST)}
        self.memory = np.random.default_rng(1).integers(0, 256, 1 << 14, np.uint8)
        self.bursts: list[tuple[int, int]] = []

    async def transfer(self, ctx: Any, valid: Any, ready: Any, *values: Any) -> Any:
        """Wait for a transfer whose other side the caller drives; return the values."""
        while True:
            *_, sent, taken, result = await ctx.tick().sample(
                valid, ready, values[0] if values else valid
            )
            if sent and taken:
                return result

    async def serve(self, ctx: Any) -> None:
        """Return the data of read bursts, one beat in two cycles."""
        axi = self.dut.m_axi
        while True:
            ctx.set(axi.arready, 1)
            *_, valid, address, length = await ctx.tick().sample(axi.arvalid, axi.araddr, axi.arlen)
            if not valid:
                continue
            ctx.set(axi.arready, 0)
            self.bursts.append((address, length + 1))
            for beat in range(length + 1):
                at = address + beat * self.bytes
                ctx.set(
                    axi.rdata, int.from_bytes(self.memory[at : at + self.bytes].tobytes(), "little")
                )
                ctx.set(axi.rlast, beat == length)
                ctx.set(axi.rvalid, 1)
                await self.transfer(ctx, axi.rvalid, axi.rready)
                ctx.set(axi.rvalid, 0)
                await ctx.tick()

    async def write(self, ctx: Any, register: str, value: int) -> int:
        """Write a register; return the response."""
        axi = self.dut.s_axi
        ctx.set(axi.awaddr, self.offsets[register])
        ctx.set(axi.wdata, value)
        ctx.set(axi.wstrb, 15)
        ctx.set(axi.bready, 1)
        for channel in ("aw", "w"):
            valid, ready = getattr(axi, f"{channel}valid"), getattr(axi, f"{channel}ready")
            ctx.set(valid, 1)
            await self.transfer(ctx, valid, ready)
            ctx.set(valid, 0)
        return (await self.transfer(ctx, axi.bvalid, axi.bready, axi.bresp)).value

    async def read(self, ctx: Any, register: str) -> int:
        """Read a register."""
        axi = self.dut.s_axi
        ctx.set(axi.araddr, self.offsets[register])
        ctx.set(axi.arvalid, 1)
        await self.transfer(ctx, axi.arvalid, axi.arready)
        ctx.set(axi.arvalid, 0)
        ctx.set(axi.rready, 1)
        return await self.transfer(ctx, axi.rvalid, axi.rready, axi.rdata)

    def run(self, host: Any) -> None:
        """Simulate until the host ends, at most 3,000 cycles."""
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(self.serve, background=True)
        simulator.add_testbench(self.limit, background=True)
        simulator.add_testbench(host)
        simulator.run()

    async def limit(self, ctx: Any) -> None:
        """Fail if the work does not end."""
        for _ in range(3000):
            await ctx.tick()
        raise AssertionError("the work must end")


ACCESSES = re.findall(r"^\| (read|write) \| `(\w+)` \| (.*) \|$", TUTORIALS["board"], re.M)


@pytest.mark.parametrize("flushed", [False, True])
def test_accesses_of_the_page_give_the_argmax(row_argmax: Any, flushed: bool) -> None:
    """Also after a flush in the middle of a row."""
    board = Board(row_argmax)
    numbers = {
        name: int(value.split(",")[0], 0) for kind, name, value in ACCESSES if kind == "write"
    }
    start, words = numbers["base_0_low"], numbers["token_in"]
    row = board.memory[start : start + words * board.bytes].view("<u2")
    index, _code = argmax(row_argmax.ROW.number_format, row)
    assert [name for _kind, name, _value in ACCESSES][-1] == "token_out" and len(ACCESSES) == 7

    async def host(ctx: Any) -> None:
        if flushed:
            for name, value in (("token_in", words), ("control", 1)):
                assert await board.write(ctx, name, value) == 0
            await ctx.tick().repeat(30)
            assert board.bursts and await board.read(ctx, "status") == 1
            assert await board.write(ctx, "control", 2) == 0
            while await board.read(ctx, "status"):
                pass
            board.bursts.clear()
        assert await board.write(ctx, "base_0_low", start + 4) == 2
        for kind, name, value in ACCESSES:
            if kind == "write":
                assert await board.write(ctx, name, numbers[name]) == 0
            elif name == "status":
                while await board.read(ctx, name):
                    pass
            elif name == "token_out":
                assert await board.read(ctx, name) == index
            else:
                assert await board.read(ctx, name) == int(value, 0)
        assert await board.read(ctx, "token_levels") >> 16 == 0

    board.run(host)
    assert len(board.bursts) == 2 and sum(beats for _address, beats in board.bursts) == words
