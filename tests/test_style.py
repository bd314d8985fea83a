"""Style and types are clean, and the tree says nothing of any machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hdl.paths import ROOT

BIN = Path(sys.executable).parent
LONGEST_FILE = 420


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check"], ["pyright", "--warnings"]],
    ids=" ".join,
)
def test_tool_finds_nothing(command: list[str]) -> None:
    run = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_files_hold_one_idea() -> None:
    for file in tracked():
        if file.suffix == ".py":
            lines = len(file.read_text().splitlines())
            assert lines <= LONGEST_FILE, f"{file.relative_to(ROOT)} has {lines} lines"


def test_nothing_names_a_machine() -> None:
    forbidden = re.compile(r"/(root|home|work)/\w|\.\./shared")
    for file in tracked():
        if file.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".lock"} and file != Path(
            __file__
        ):
            assert not forbidden.search(file.read_text()), file.relative_to(ROOT)
