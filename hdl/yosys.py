"""Functions that run Yosys and ABC in a child process, which isolates their state and output."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from hdl.errors import UserError

SPARE_BYTES = 1 << 16
"""Free space, in bytes, that must remain after a tool has run. Yosys ignores write errors: on a
full disk it would write a partial netlist and report success."""

_CHILD = """
import signal, sys
# Python ignores this signal, and Yosys ignores the write error that results.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
from pyosys import libyosys
design = libyosys.Design()
for line in sys.stdin.read().splitlines():
    design.run_pass(line)
"""


class YosysError(RuntimeError):
    """Yosys or ABC rejected a command; the message contains the last lines of the tool's output."""


def run_yosys(passes: Iterable[str], *, directory: Path, log: Path | None = None) -> str:
    """Run passes sequentially on one design.

    Parameters
    ----------
    passes : Iterable[str]
        Yosys commands, one per item.
    directory : Path
        Working directory; file names in the passes are relative to it.
    log : Path, optional
        File for Yosys's output.

    Returns
    -------
    str
        Yosys's output.

    Raises
    ------
    YosysError
        If a pass fails.
    UserError
        If a signal ends the tool, for example at a file-size limit, or the disk is full.
    """
    command = [sys.executable, "-c", _CHILD]
    code, output = _run(command, passes, directory, log)
    if code != 0:
        raise YosysError(f"Yosys stopped:\n{_tail(output)}")
    return output


def abc() -> Path:
    """Return the path of ABC's program, which the Yosys package contains."""
    # An import of pyosys would change how this process loads libraries.
    spec = find_spec("pyosys")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).with_name("yosys-abc")


def run_abc(commands: Iterable[str], *, directory: Path, log: Path | None = None) -> str:
    """Run ABC commands sequentially; parameters and errors are those of `run_yosys`."""
    _code, output = _run([str(abc()), "-s", "-f", "/dev/stdin"], commands, directory, log)
    # ABC's exit status is always 0.
    if "** cmd error" in output:
        raise YosysError(f"ABC stopped:\n{_tail(output)}")
    return output


def _run(
    command: list[str], script: Iterable[str], directory: Path, log: Path | None
) -> tuple[int, str]:
    """Run a tool that reads its script from standard input; return its status and its output."""
    child = subprocess.run(
        command,
        input="\n".join([*script, ""]),
        capture_output=True,
        text=True,
        cwd=directory,
        check=False,
    )
    output = child.stdout + child.stderr
    _require_space(directory)
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        raise UserError(f"the tool must run to completion; signal {name} ended it in {directory}")
    if log is not None:
        log.write_text(output)
    return child.returncode, output


def _require_space(directory: Path) -> None:
    """Check that the folder's disk is not full; otherwise its files may be incomplete."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, SPARE_BYTES)
    except OSError as error:
        raise UserError(f"{directory} must be writable: {error.strerror}") from error


def _tail(output: str) -> str:
    """Return the last five lines."""
    return "\n".join(output.strip().splitlines()[-5:])
