"""The tutorials' code runs, and their changes apply to the sources that they name."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from golden.policies.agreement import compare
from golden.policies.registry import policy_named
from hdl import emitted
from hdl.paths import ROOT
from synth.export import check_flow
from synth.fpga import find_device
from synth.measure import build_unit
from systola import synthesis
from systola.cli import main
from systola.make import options
from systola.options import choose
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
    if "TOP" in given:
        choose(given["TOP"], given.get("PRESET"), None, given.get("SET", ""))
    check_flow(given.get("FOR", "orfs"))
    find_device(given.get("DEVICE", "xcup"))


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


def test_message_of_the_page_is_the_verbs(tova: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tova.write_text(tova.read_text().replace("importance, query", "importance"))
    monkeypatch.chdir(tova.parent)
    result = CliRunner().invoke(main, ["perplexity", "--policy", "tova.py"])
    (message,) = re.findall(r"^Error: (.*)$", PAGE, re.M)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_changes_of_the_rule_apply_to_the_sources() -> None:
    """Each block of code that the page replaces or removes is in its file once."""
    _policy, old, new, removed = blocks("python")
    rtl = (ROOT / "hdl/veda/voting/vote_comparator.py").read_text()
    model = (ROOT / "golden/veda/voting/vote_threshold.py").read_text()
    assert (rtl.count(old), rtl.count(new), model.count(removed)) == (1, 0, 1)
    for name, code in (("rtl", rtl.replace(old, new)), ("model", model.replace(removed, ""))):
        compile(code, name, "exec")


def table_rows(text: str) -> set[tuple[str, ...]]:
    """Return the rows of the tables that a verb prints."""
    lines = re.findall(r"^│(.*)│$", text, re.M)
    return {tuple(cell.strip() for cell in line.split("│")) for line in lines}


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's folder, in which the verbs write to ``build``."""
    for module in (emitted, synthesis):
        monkeypatch.setattr(module, "BUILD", tmp_path / "build")
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


@pytest.mark.full
def test_figures_of_the_default_library_are_the_verbs(build: Path, capsys: Any) -> None:
    page = TUTORIALS["library"]
    result = CliRunner().invoke(main, ["synth", "--top", "argmax", "--preset", "tiny"])
    assert result.exit_code == 0, result.output
    if "Debian package qflow-tech-osu018" not in result.output or "fmax" not in result.output:
        pytest.skip("OSU018 or OpenSTA is not available")
    rows = table_rows(shown(page, "make synth TOP=argmax PRESET=tiny"))
    assert len(rows) == 10 and rows <= table_rows(result.output)
    runpy.run_path(str(saved(page, build.parent)["compare.py"]))
    assert capsys.readouterr().out in blocks("text", page)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's project, as working directory."""
    assert set(saved(TUTORIALS["project"], tmp_path)) == {
        "greedy.py",
        "tb_greedy.py",
        "simulate.py",
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


@pytest.mark.full
def test_simulation_of_a_project_passes(project: Path) -> None:
    child = subprocess.run(
        [sys.executable, "simulate.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout == shown(TUTORIALS["project"], "venv/bin/python simulate.py")
