"""Run Yosys passes in a child process, so that no state or message leaks into the caller."""

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
"""Free space that must remain after a tool has run. Yosys ignores errors when it writes a file, so
that a full disk would leave a part of a netlist and the status of success."""

_CHILD = """
import signal, sys
# Python ignores this signal, and Yosys the error that a write returns instead.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
from pyosys import libyosys
design = libyosys.Design()
for line in sys.stdin.read().splitlines():
    design.run_pass(line)
"""


class YosysError(RuntimeError):
    """Yosys or ABC refused a command; the message carries its last lines."""


def run_yosys(passes: Iterable[str], *, directory: Path, log: Path | None = None) -> str:
    """Run the passes one after another on one design.

    Parameters
    ----------
    passes : Iterable[str]
        Yosys commands, one line each.
    directory : Path
        Working directory; file names in the passes are relative to it.
    log : Path, optional
        Where to keep Yosys's output.

    Returns
    -------
    str
        What Yosys printed.

    Raises
    ------
    YosysError
        If a pass fails.
    UserError
        If a signal ends the tool, as at a limit of file sizes, or the disk is full.
    """
    command = [sys.executable, "-c", _CHILD]
    code, output = _run(command, passes, directory, log)
    if code != 0:
        raise YosysError(f"Yosys stopped:\n{_tail(output)}")
    return output


def abc() -> Path:
    """Return the path of ABC's program, which comes with Yosys."""
    # Found without an import, which would change how this process loads libraries.
    spec = find_spec("pyosys")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).with_name("yosys-abc")


def run_abc(commands: Iterable[str], *, directory: Path, log: Path | None = None) -> str:
    """Run ABC's commands one after another; parameters and errors as for `run_yosys`."""
    _code, output = _run([str(abc()), "-s", "-f", "/dev/stdin"], commands, directory, log)
    # ABC ends with 0 whatever happened.
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
        raise UserError(f"the tool must run to its end; signal {name} ended it in {directory}")
    if log is not None:
        log.write_text(output)
    return child.returncode, output


def _require_space(directory: Path) -> None:
    """Refuse a folder whose disk is full, because the files in it may be incomplete."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, SPARE_BYTES)
    except OSError as error:
        raise UserError(f"{directory} must be writable: {error.strerror}") from error


def _tail(output: str) -> str:
    """Return the last lines."""
    return "\n".join(output.strip().splitlines()[-5:])
