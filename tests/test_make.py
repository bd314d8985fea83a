"""The Makefile: unknown goals, values with quotes, and what ends when make is ended."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hdl.paths import ROOT
from systola.termination import descendants

ENVIRONMENT = {name: value for name, value in os.environ.items() if "MAKE" not in name}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("goal", "nearest"), [("tests", "'test'"), ("docs", "'doctor'"), ("lis't", "'list'")]
)
def test_an_unknown_goal_ends_with_2_and_the_nearest_verb(goal: str, nearest: str) -> None:
    result = make(goal)
    assert result.returncode == 2
    assert f"No such command {goal!r}" in result.stderr
    assert nearest in result.stderr


@pytest.mark.parametrize("value", ["it's", 'a"$b `c`;\\ *', "-x"])
def test_a_value_arrives_as_it_was_typed(value: str) -> None:
    result = make("verilog", f"TOP={value}")
    assert result.returncode == 2
    assert f"not {value!r}" in result.stderr


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
