"""Each fault in the element-serial activation is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

FILE = "hdl/veda/element_serial_activation.py"
FAULTS = [
    Fault("a gate below zero is not damped", FILE, "Mux(gate[-1], Value", "Mux(0, Value"),
    Fault("a gate above zero is damped", FILE, "Mux(gate[-1], Value", "Mux(1, Value"),
    Fault("the divisor lacks its one", FILE, "one = Const(BINARY16.one", "one = Const(0"),
    Fault(
        "the gate comes a cycle late",
        FILE,
        "valid[p.exp_stages - 1]",
        "valid[p.exp_stages]",
    ),
    Fault("the up projection comes late", FILE, "valid[-1 - p.multiply_stages]", "valid[-1]"),
    Fault("the mark of the end comes early", FILE, "last = later", "later = last"),
    Fault(
        "the output is overwritten",
        FILE,
        "(~output.valid | output.ready) & ~(dividing & divide.busy)",
        "~(dividing & divide.busy)",
    ),
    Fault(
        "a stalled operand is kept twice",
        FILE,
        "takes.eq(self.operands.valid & self.operands.ready)",
        "takes.eq(self.operands.valid)",
    ),
    Fault(
        "a waiting value is dropped in a stall",
        FILE,
        "valid[-1 - p.multiply_stages] & move",
        "valid[-1 - p.multiply_stages]",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, "element_serial_activation", "tiny")
