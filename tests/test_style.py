"""Style and types are clean, and the tree says nothing of any machine."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hdl.paths import ROOT

BIN = Path(sys.executable).parent
LONGEST_FILE = 420
LONGEST_BODY = 59
HELD = ("arith", "stream", "memory", "nonlinear", "kelle", "veda", "p3llm", "meadow", "lad")
"""Folders of hardware whose bodies and comments are counted: a paper joins when it is complete."""

LEAST_COMMENTS = 0.03
"""Of the lines of code in a folder of hardware."""


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


def docstrings(tree: ast.AST) -> set[int]:
    """Return the lines of all strings that stand by themselves."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def test_hardware_bodies_are_short() -> None:
    """From the first statement behind the docstring to the last line."""
    for file in (file for folder in HELD for file in (ROOT / "hdl" / folder).rglob("*.py")):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                where = f"{file.relative_to(ROOT)}: {node.name}"
                assert lines <= LONGEST_BODY, f"{where} has {lines} lines"


def test_hardware_is_commented() -> None:
    """Comment lines over lines of code, in each floor and each paper's folder."""
    for folder in HELD:
        comments = code = 0
        for file in (ROOT / "hdl" / folder).rglob("*.py"):
            text = file.read_text()
            told = docstrings(ast.parse(text))
            for number, line in enumerate(text.splitlines(), 1):
                comments += line.strip().startswith("#")
                code += bool(line.strip()) and number not in told
        code -= comments
        enough = comments >= LEAST_COMMENTS * code
        assert enough, f"{folder}: {comments} lines of comments in {code} of code"


def test_nothing_names_a_machine() -> None:
    forbidden = re.compile(r"/(root|home|work)/\w|\.\./shared")
    for file in tracked():
        if file.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".lock"} and file != Path(
            __file__
        ):
            assert not forbidden.search(file.read_text()), file.relative_to(ROOT)
