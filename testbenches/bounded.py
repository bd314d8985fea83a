"""Bounded proofs of Amaranth assertions by ABC: for designs with too many states for an SMT solver.

The search covers all states that are reachable from reset in a number of cycles. Yosys converts the
design to an and-inverter graph; ABC, which the package of Yosys contains, unrolls it.
"""

import re
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]
from amaranth.hdl import ClockDomain, Elaboratable, Module

from hdl.yosys import run_yosys
from testbenches.formal import PASSES, ProofError

# An import of pyosys would prevent one of matplotlib in the same process.
_SPEC = find_spec("pyosys")
ABC = Path(_SPEC.origin if _SPEC and _SPEC.origin else "").with_name("yosys-abc")
"""The program ABC, which the package of Yosys contains."""

TO_GRAPH = (
    *PASSES,
    "chformal -lower",
    "opt_clean",
    "techmap",
    "simplemap",
    # Bits without a value are free.
    "setundef -undriven -anyseq",
    "dffunmap",
    "aigmap",
    "opt_clean",
    "write_aiger -I -B -zinit -no-startoffset design.aig",
)
"""Yosys passes from Amaranth's output to an and-inverter graph with assertions as outputs."""


def first_failure(design: Elaboratable, *, depth: int) -> int | None:
    """Return the first cycle after reset in which an assertion can fail, or None.

    Parameters
    ----------
    design : Elaboratable
        Design with `Assert` and `Assume`; it is never reset.
    depth : int
        Number of cycles searched from reset.

    Raises
    ------
    ProofError
        If the search gives no result.
    """
    top: Any = Module()
    clock: Any = ClockDomain("sync", reset_less=True)
    top.domains.sync = clock
    top.submodules.design = design
    text = rtlil.convert(top, name="top", ports=[clock.clk])
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "design.il").write_text(text)
        run_yosys([*TO_GRAPH], directory=Path(scratch))
        commands = f"read_aiger design.aig; fold; strash; bmc3 -F {depth}"
        run = subprocess.run(
            [ABC, "-c", commands], cwd=scratch, capture_output=True, text=True, check=False
        )
    if found := re.search(r"asserted in frame (\d+)", run.stdout):
        return int(found[1])
    if f"No output asserted in {depth} frames" not in run.stdout:
        raise ProofError(f"the search gave no result:\n{run.stdout[-1000:]}{run.stderr[-1000:]}")
    return None


def prove_bounded(design: Elaboratable, *, depth: int) -> None:
    """Prove that no assertion of a design fails in a number of cycles after reset.

    Raises
    ------
    ProofError
        If an assertion fails, with the cycle, or the search gives no result.
    """
    cycle = first_failure(design, depth=depth)
    if cycle is not None:
        raise ProofError(f"an assertion fails in cycle {cycle}")
