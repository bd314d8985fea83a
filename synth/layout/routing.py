"""Routing of a placed design by qrouter."""

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from hdl.errors import UserError
from hdl.paths import ROOT
from synth.layout.lef import Lef
from synth.layout.tools import Router

POLL_SECONDS = 0.5
"""Time between two looks at the router's log."""


def route_script(router: Router, lef: Lef, *, cleanup: bool = True) -> str:
    """Return the router's commands, which read ``placed.def`` and write ``routed.def``.

    With `cleanup`, the router routes each net twice more when all nets have routes: the wires are
    then about 6 % shorter, and routing takes four times as long.
    """
    text = (ROOT / "synth" / "scripts" / "route.tcl").read_text()
    values = {
        "library": str(router.library),
        "lef": str(lef.path),
        "power": lef.rail("POWER"),
        "ground": lef.rail("GROUND"),
        "no_cleanup": "false" if cleanup else "true",
    }
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def route(router: Router, script: str, directory: Path, progress: Callable[[str], None]) -> Path:
    """Route ``placed.def`` in a directory, and return the routed DEF.

    Raises
    ------
    UserError
        If the router stops, or nets remain open.
    """
    routed, log = directory / "routed.def", directory / "route.log"
    routed.unlink(missing_ok=True)
    (directory / "route.tcl").write_text(script)
    with log.open("w") as output:
        child = subprocess.Popen(
            [router.program.path, "route.tcl"],
            cwd=directory,
            env=os.environ | router.program.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        try:
            while child.poll() is None:
                progress(_state(log))
                time.sleep(POLL_SECONDS)
        finally:
            child.kill()
            child.wait()
    text = log.read_text(errors="replace")
    if "Final: No failed routes!" not in text or not routed.exists():
        left = re.findall(r"Final: (.*)", text)
        reason = f"it left {left[-1]}" if left else f"it stopped with {child.returncode}"
        raise UserError(
            f"qrouter must route all nets: {reason}, see '{log}'; a lower DENSITY gives more space"
        )
    return routed


def _state(log: Path) -> str:
    """Return the router's stage and the number of open nets, from the end of its log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4000))
        text = file.read().decode(errors="replace")
    left = re.findall(r"Nets remaining: (\d+)", text)
    return f"routing, {left[-1]} nets left in this pass" if left else "routing"
