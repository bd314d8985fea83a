"""The Makefile: unknown goals, values of variables, and programs that end when make ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hdl.paths import ROOT
from systola.termination import descendants

ENVIRONMENT = {name: value for name, value in os.environ.items() if "MAKE" not in name}


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("goal", "nearest"), [("tests", "'test'"), ("doctr", "'doctor'"), ("lis't", "'list'")]
)
def test_an_unknown_goal_ends_with_2_and_the_nearest_verb(goal: str, nearest: str) -> None:
    result = make(goal)
    assert result.returncode == 2
    assert f"No such command {goal!r}" in result.stderr
    assert nearest in result.stderr


@pytest.fixture
def arguments(tmp_path: Path) -> Callable[..., list[str]]:
    """Run the Makefile in a folder whose Python prints what the command line would receive."""
    (tmp_path / "systola").mkdir()
    (tmp_path / "systola" / "environment.py").touch()
    (tmp_path / "print.py").write_text(
        "import json, os, sys\n"
        "from systola import make\n"
        "def show(arguments, program):\n"
        "    own = {name: os.environ.get(name) for name in sys.argv[1].split(',')}\n"
        "    print(json.dumps([arguments, own]))\n"
        "make.start = show\n"
        "make.main(sys.argv[4:])\n"
    )
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)

    def run(*given: str, names: str = "TOP", **environment: str) -> Any:
        python.write_text(f'#!/bin/sh\nexec {sys.executable} print.py {names} "$@"\n')
        python.chmod(0o755)
        result = subprocess.run(
            ["make", "-s", "-f", str(ROOT / "Makefile"), *given],
            cwd=tmp_path,
            env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)} | environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        lines = [json.loads(line) for line in result.stdout.splitlines() if line[:1] == b"["]
        assert len(lines) == 1, result.stdout
        return lines[0] if "," in names else lines[0][0]

    return run


CHARACTERS = "a \n\t\r\\'\"$(){}`#%=:;-*~é\u00a0\U0001f600"


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.text(st.sampled_from(CHARACTERS), max_size=12), min_size=30, max_size=30))
@example(
    [
        "",
        "  two\nlines  ",
        "\n\n x",
        "$(shell echo expanded) $(open $$ ${HOME}",
        " -- X0=1",
        "x\\",
        "a  b\t" * 12_000,
    ]
)
def test_every_value_arrives_unchanged(
    arguments: Callable[..., list[str]], values: list[str]
) -> None:
    found = arguments("list", *(f"X{number}={value}" for number, value in enumerate(values)))
    expected = [f"--x{number}={value}" for number, value in enumerate(values)]
    assert found[0] == "list" and sorted(found[1:]) == sorted(expected)


def test_bytes_that_are_no_utf_8_arrive_unchanged(arguments: Callable[..., list[str]]) -> None:
    value = os.fsdecode(b"\xff\xe9")
    assert arguments("list", f"PROMPT={value}") == ["list", f"--prompt={value}"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["list"], ["list"]),
        ([], ["help"]),
        (["-j4", "-k", "list", "PACKET_BITS=64"], ["list", "--packet-bits=64"]),
        (["A=1", "list", "TOP=x", "A=2"], ["list", "--a=2", "--top=x"]),
        (["list", "TOP:=x", "PYTHON=python3"], ["list", "--top=x"]),
        (["--eval=X = y -- TOP=1", "list"], ["list"]),
        (["-e", "list", "SET= TOP=y"], ["list", "--set= TOP=y"]),
        (["lis't"], ["lis't"]),
    ],
)
def test_variables_of_the_command_line_become_options(
    arguments: Callable[..., list[str]], given: list[str], expected: list[str]
) -> None:
    found = arguments(*given, TOP="of the environment", PROMPT="$(error expanded)")
    assert (found[0], sorted(found[1:])) == (expected[0], sorted(expected[1:]))


def test_variables_of_makeflags_become_options(arguments: Callable[..., list[str]]) -> None:
    """An outer make passes its variables in MAKEFLAGS."""
    found = arguments("list", "TOP= x", MAKEFLAGS=r"s -- TOP=outer PROMPT=a\ \\\ $$b")
    assert sorted(found[1:]) == ["--prompt=a \\ $b", "--top= x"]


def test_a_verb_inherits_neither_makeflags_nor_variables(arguments: Callable[..., Any]) -> None:
    names = (
        "TOP,MAKEFLAGS,MFLAGS,MAKELEVEL,SYSTOLA_VARIABLES,PYTHONSAFEPATH,SYSTOLA_BUILD,VERILATOR"
    )
    given = ["-k", "list", "TOP=x", "SYSTOLA_BUILD=a b", "VERILATOR=$v"]
    found, own = arguments(*given, names=names, PYTHONSAFEPATH="1")
    assert found == ["list", "--top=x"]
    expected = dict.fromkeys(names.split(",")) | {"SYSTOLA_BUILD": "a b", "VERILATOR": "$v"}
    assert own == expected


def test_a_dry_run_starts_nothing(tmp_path: Path) -> None:
    result = make("-n", "verilog", "TOP=a\nb", f"OUT={tmp_path}/out")
    assert result.returncode == 0 and "systola.make 'verilog'" in result.stdout
    assert not (tmp_path / "out").exists()


def test_make_starts_the_command_line_with_a_safe_path() -> None:
    result = make("list", "TOP= it's\n", PYTHONSAFEPATH="1")
    assert result.returncode == 2
    assert f"not {' it' + chr(39) + 's' + chr(10)!r}" in result.stderr


def test_what_make_started_ends_with_make(tmp_path: Path) -> None:
    """A program under a test, under a worker, under pytest, under the verb, under make."""
    file = tmp_path / "test_sleep.py"
    file.write_text(
        "import subprocess\n"
        "def test_sleep():\n    subprocess.run(['sh', '-c', 'sleep 300; echo the end'])\n"
    )
    with subprocess.Popen(
        ["make", "test", f"ONLY={file}"], cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL
    ) as verb:
        wait_for(lambda: "sleep" in map(name_of, descendants(verb.pid)))
        running = descendants(verb.pid)
        verb.send_signal(signal.SIGTERM)
        assert verb.wait(20) == -signal.SIGTERM
    wait_for(lambda: not any(map(name_of, running)))


def name_of(process: int) -> str:
    """Return the name of a process that runs; nothing if it ended."""
    try:
        name, _, state = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state.split()[0] == "Z" else name


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for a minute")
