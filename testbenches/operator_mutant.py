"""Trial of a mutated operator against its model.

A mutant inside an operator that the unit's testbench does not detect may need operands that rarely
occur in the unit. The operator's own trial, which is part of the test suite, uses all operands of
its contract.
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
"""Identities of the operators that have trials, by the names of their modules."""


def operators_among(modules: Sequence[EmittedModule]) -> Operators:
    """Return the operators of a design that have trials."""
    return {module.name: module.identity for module in modules if module.identity[0] in TRIALS}


def found_by_trial(
    top: str, command: str, directory: Path, number: int, operators: Operators
) -> str:
    """Run the trial of the operator that encloses a mutated cell; return the first difference.

    Parameters
    ----------
    top : str
        Name of the top module.
    command : str
        Yosys command that mutates the flat design.
    directory : Path
        Directory of ``design.il``.
    number : int
        Number of the mutant.
    operators : Operators
        Operators of the design.
    """
    design = directory / "design.il"
    for around in modules_around(top, command, design):
        module, change = around.module, around.change
        if module not in operators:
            continue
        kind, *configuration = operators[module]
        unit = kind(**dict(configuration))
        stimuli = trial(unit)
        assert stimuli
        folder = directory / f"trial_{number}"
        folder.mkdir()
        try:
            write_module(top, module, design, folder)
            commands = ["read_rtlil module.il", change, f"rename {module} operator"]
            run_yosys([*commands, "write_verilog -noattr operator.v"], directory=folder)
            results = run_bulk(unit, stimuli.operands, verilog=folder / "operator.v")
        finally:
            shutil.rmtree(folder)
        if difference := stimuli.difference(results):
            return f"{kind.__name__} alone: {difference}"
    return ""
