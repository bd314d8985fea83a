"""Verilator lint of the emitted Verilog of every unit, with named waivers.

`faulty_blocks` adds one rule to those of Verilator.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hdl.catalog import CATALOG
from hdl.emit import Emission, write_verilog
from hdl.verilog_names import KEYWORDS
from testbenches import simulators

_BLOCK = re.compile(r"^ *always @\*(?: begin)?\n(?P<body>.*?)(?=^ {0,2}\S)", re.M | re.S)
_TARGET = re.compile(r"(?:\{[^{}]*\}|\w+(?:\[[^][]*\])?)\s*\Z")
_NAME = re.compile(r"(?<![\w'$])[A-Za-z_]\w*")
_NO_SIGNALS = KEYWORDS | {"_start_"}


def lint_unit(top: str, emission: Emission) -> str:
    """Return the messages of `lint_files` about a design; empty if it is clean."""
    with tempfile.TemporaryDirectory() as scratch:
        return lint_files(top, write_verilog(emission, Path(scratch, "rtl"))[:-1])


def lint_files(top: str, files: Sequence[Path]) -> str:
    """Return messages of Verilator and `faulty_blocks` about files; empty if they are clean."""
    with simulators.environment():
        command = [simulators.verilator_executable(), "--lint-only", *simulators.LINT_FLAGS]
        child = subprocess.run(
            [*command, "--top-module", top, *map(str, files)],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            check=False,
        )
    messages = [child.stdout + child.stderr] if child.returncode else []
    for file in files:
        messages += [f"{file.name}: {block}" for block in faulty_blocks(file.read_text())]
    return "\n".join(messages)


def faulty_blocks(text: str) -> list[str]:
    """Return the blocks of emitted Verilog whose outputs a simulator may leave unknown or stale.

    A block ``always @*`` runs when a signal that it reads changes. It must read at least one, and
    none that it drives itself: its own changes do not start it again.

    Parameters
    ----------
    text : str
        Verilog as `hdl.emit` writes it.

    Returns
    -------
    list[str]
        For each block that breaks the rule, one message with the block.
    """
    messages = []
    for block in _BLOCK.finditer(re.sub(r"//.*|\(\*.*?\*\)", "", text)):
        reads, drives = set[str](), set[str]()
        for statement in block["body"].split(";"):
            left, assigns, right = re.sub("[=!<>]=+", "", statement).partition("=")
            target = _TARGET.search(left) if assigns else None
            drives.update(_NAME.findall(target[0]) if target else ())
            reads.update(_NAME.findall((left[: target.start()] if target else left) + right))
        reads -= _NO_SIGNALS
        if not reads:
            messages.append(f"a block must read a signal:\n{block[0]}")
        elif own := reads & drives:
            names = ", ".join(sorted(own))
            messages.append(f"a block must not read what it drives, as {names}:\n{block[0]}")
    return messages


def lint_verilog() -> int:
    """Lint every unit with every preset; return the number of designs with messages."""
    wrong = 0
    for entry in CATALOG:
        for preset in entry.presets:
            emission = Emission(top=entry.build(preset), name=entry.top)
            if message := lint_unit(entry.top, emission):
                Console(stderr=True).print(f"{entry.top} / {preset}\n{message}", markup=False)
                wrong += 1
    return wrong
