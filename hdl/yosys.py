"""Run Yosys passes in a child process, so that no state or message leaks into the caller."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_CHILD = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for line in sys.stdin.read().splitlines():
    design.run_pass(line)
"""


class YosysError(RuntimeError):
    """Yosys refused a pass; the message carries its last lines."""


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
    """
    script = "\n".join(passes)
    child = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=script,
        capture_output=True,
        text=True,
        cwd=directory,
        check=False,
    )
    output = child.stdout + child.stderr
    if log is not None:
        log.write_text(output)
    if child.returncode != 0:
        tail = "\n".join(output.strip().splitlines()[-5:])
        raise YosysError(f"Yosys stopped:\n{tail}")
    return output
