"""Formal proof that a combinational operator is equivalent to a few lines of Verilog."""

import tempfile
from pathlib import Path

from hdl.emit import Emission
from hdl.unit import Unit
from hdl.yosys import run_yosys


def prove_equivalent(unit: Unit, specification: str) -> None:
    """Prove by SAT that a unit's outputs equal a specification's for all inputs.

    Parameters
    ----------
    unit : Unit
        A combinational unit.
    specification : str
        A Verilog module ``specification`` with the unit's ports.

    Raises
    ------
    hdl.yosys.YosysError
        If an input gives different outputs; the message contains it.
    """
    modules = Emission(top=unit, name="implementation").modules
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "unit.il").write_text("\n".join(module.rtlil for module in modules))
        Path(directory, "specification.v").write_text(specification)
        run_yosys(
            [
                "read_rtlil unit.il",
                "read_verilog -sv specification.v",
                "proc -norom",
                "miter -equiv -flatten -make_outputs implementation specification miter",
                "opt -full miter",
                "sat -verify -set-def-inputs -prove trigger 0 -show-ports miter",
            ],
            directory=Path(directory),
        )
