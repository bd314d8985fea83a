"""Verilator lint of the emitted Verilog of every unit, with named waivers.

`faulty_blocks` adds one rule to those of Verilator.

Verilator flattens a design before it reports most messages. The designs of the published sizes
contain some modules hundreds of times, and their lint takes minutes. `lint_modules` lints each
module once, with its instances replaced by modules that have ports only. `lint_files` lints a whole
design, and also finds combinational loops through several modules.
"""

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from hdl.catalog import CATALOG
from hdl.emit import Emission, write_verilog
from hdl.paths import BUILD
from hdl.target import Target
from hdl.verilog_names import KEYWORDS
from testbenches import simulators

_BLOCK = re.compile(r"^ *always @\*(?: begin)?\n(?P<body>.*?)(?=^ {0,2}\S)", re.M | re.S)
_TARGET = re.compile(r"(?:\{[^{}]*\}|\w+(?:\[[^][]*\])?)\s*\Z")
_NAME = re.compile(r"(?<![\w'$])[A-Za-z_]\w*")
_NO_SIGNALS = KEYWORDS | {"_start_"}


_MODULE = re.compile(
    r"^module (?P<name>\w+)(?P<ports>\([^;]*\));\n(?P<body>.*?)^endmodule$", re.M | re.S
)
_PORT = re.compile(r"^  (?:input|output) .*;\n", re.M)
_INSTANCE = re.compile(r"^(?P<start>  )(?P<module>\w+)(?P<end> \w+ \()$", re.M)

_CLEAN = BUILD / "lint"
"""Folder with an empty file for each module without messages, named by what `_digest` covers."""


def lint_unit(top: str, emission: Emission) -> str:
    """Return the messages of `lint_files` about a design; empty if it is clean."""
    with tempfile.TemporaryDirectory() as scratch:
        return lint_files(top, write_verilog(emission, Path(scratch, "rtl"))[:-1])


def lint_files(top: str, files: Sequence[Path]) -> str:
    """Return messages of Verilator and `faulty_blocks` about files; empty if they are clean."""
    messages = [_verilator("--top-module", top, *map(str, files))]
    for file in files:
        messages += [f"{file.name}: {block}" for block in faulty_blocks(file.read_text())]
    return "\n".join(filter(None, messages))


def lint_modules(files: Sequence[Path]) -> str:
    """Return messages about the modules in files, each of which is linted by itself.

    A module that was clean before, with the same submodules' ports and the same tools, is not
    linted again on this machine.

    Parameters
    ----------
    files : Sequence[Path]
        Verilog of a design as `hdl.emit` writes it.

    Returns
    -------
    str
        Messages of Verilator and `faulty_blocks`; empty if all modules are clean.
    """
    texts = {file.name: file.read_text() for file in files}
    headers = {
        found["name"]: f"{found['ports']};\n{''.join(_PORT.findall(found['body']))}"
        for text in texts.values()
        for found in _MODULE.finditer(text)
    }
    with tempfile.TemporaryDirectory() as scratch:
        messages, new = list[str](), dict[Path, Path]()
        for name, text in texts.items():
            alone = _without_submodules(text, headers)
            clean = _CLEAN / _digest(alone)
            if not clean.exists():
                file = Path(scratch, name)
                file.write_text(alone)
                new[file] = clean
                messages += [f"{name}: {block}" for block in faulty_blocks(text)]
        if new:
            messages.append(_verilator("-Wno-MULTITOP", *map(str, new)))
    message = "\n".join(filter(None, messages))
    if not message:
        _CLEAN.mkdir(parents=True, exist_ok=True)
        for clean in new.values():
            clean.touch()
    return message


def _without_submodules(text: str, headers: Mapping[str, str]) -> str:
    """Return Verilog whose instances are of modules with ports only, which follow it.

    A module that the design does not contain stays, and Verilator reports it.
    """
    used = {found["module"] for found in _INSTANCE.finditer(text)} & headers.keys()
    own = _MODULE.search(text)
    assert own is not None
    # Several files may have submodules in common.
    names = {name: f"{name}_of_{own['name']}" for name in sorted(used)}
    text = _INSTANCE.sub(
        lambda found: (
            f"{found['start']}{names.get(found['module'], found['module'])}{found['end']}"
        ),
        text,
    )
    empty = [f"module {names[name]}{headers[name]}endmodule\n" for name in names]
    return "".join([text, "// verilator lint_off UNDRIVEN\n", *empty])


def _digest(text: str) -> str:
    """Return a digest of all that decides the messages about a module, comments excluded."""
    program = simulators.verilator_executable()
    version = simulators.verilator_version(program)
    tools = [program, version, *simulators.LINT_FLAGS, Path(__file__).read_text()]
    code = re.sub(r"^//(?! verilator).*\n", "", text, flags=re.M)
    return hashlib.sha256("\n".join([*tools, code]).encode()).hexdigest()


def _verilator(*arguments: str) -> str:
    """Run Verilator's lint; return its messages, or nothing if there are none."""
    with simulators.environment():
        command = [simulators.verilator_executable(), "--lint-only", *simulators.LINT_FLAGS]
        child = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            check=False,
        )
    return child.stdout + child.stderr if child.returncode else ""


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
    """Lint the modules of every unit, preset and target; return the number of faulty designs."""
    wrong = 0
    for entry in CATALOG:
        for preset in entry.presets:
            for target in Target:
                emission = Emission(top=entry.build(preset), name=entry.top, target=target)
                with tempfile.TemporaryDirectory() as scratch:
                    files = write_verilog(emission, Path(scratch, "rtl"))[:-1]
                    message = lint_modules(files)
                if message:
                    where = f"{entry.top} / {preset} / {target}"
                    Console(stderr=True).print(f"{where}\n{message}", markup=False)
                    wrong += 1
    return wrong
