"""Whether a mutated operator, by itself, still does what its model says.

A mutant inside an operator that the unit's testbench does not find may need operands that the unit
rarely gives. The operator's own trial, which the suite runs, gives it all that it accepts.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hdl.emit import EmittedModule
from hdl.yosys import run_yosys
from testbenches.arith.bulk import run_bulk
from testbenches.arith.operator_trials import TRIALS, trial
from testbenches.mutant_proof import modules_around, write_module

Operators = Mapping[str, tuple[Any, ...]]
"""Identities of the operators that have trials, by their modules' names."""


def operators_among(modules: Sequence[EmittedModule]) -> Operators:
    """Return the operators that have trials."""
    return {module.name: module.identity for module in modules if module.identity[0] in TRIALS}


def found_by_trial(
    top: str, command: str, directory: Path, number: int, operators: Operators
) -> str:
    """Run the trial of the operator around a mutated cell, and say what it finds, if anything.

    Parameters
    ----------
    top : str
        The unit.
    command : str
        Mutates the flat design.
    directory : Path
        Where ``design.il`` is.
    number : int
        The mutant's.
    operators : Operators
        Those of the design.
    """
    design = directory / "design.il"
    for around in modules_around(top, command, design):
        module, change = around.module, around.change
        if module not in operators:
            continue
        kind, *configuration = operators[module]
        unit = kind(**dict(configuration))
        drawn = trial(unit)
        assert drawn
        folder = directory / f"trial_{number}"
        folder.mkdir()
        try:
            write_module(top, module, design, folder)
            commands = ["read_rtlil module.il", change, f"rename {module} operator"]
            run_yosys([*commands, "write_verilog -noattr operator.v"], directory=folder)
            results = run_bulk(unit, drawn.operands, verilog=folder / "operator.v")
        finally:
            shutil.rmtree(folder)
        if told := drawn.difference(results):
            return f"{kind.__name__} by itself: {told}"
    return ""
