"""Each fault in the element-serial rotary embedding is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

FILE = "hdl/veda/element_serial_rotary.py"
FAULTS = [
    Fault("it turns the other way", FILE, "^ ~kinds[0][p.m", "^ kinds[0][p.m"),
    Fault("sine and cosine are exchanged", FILE, "Mux(second, pair.sine", "Mux(~second, pair.sine"),
    Fault(
        "y is turned by the wrong factor",
        FILE,
        "Mux(second, pair.cosine",
        "Mux(~second, pair.cosine",
    ),
    Fault("a pair is taken at once", FILE, "ready.eq(second & move)", "ready.eq(move)"),
    Fault("a stall splits a pair", FILE, "m.If(begins & move)", "m.If(begins)"),
    Fault(
        "both elements are the second",
        FILE,
        "output.payload.x.eq(first_x)",
        "output.payload.x.eq(add.result)",
    ),
    Fault("every element is a pair", FILE, "there[-1] & is_y", "there[-1]"),
    Fault("the output is overwritten", FILE, "move.eq(~output.valid | output.ready)", "move.eq(1)"),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, "element_serial_rotary", "tiny")
