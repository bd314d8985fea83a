"""The testbench of VEDA's array finds faults in the hardware."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

ARRAY = "hdl/veda/flexible_pe_array.py"
ELEMENT = "hdl/veda/processing_element.py"
SEQUENCER = "hdl/veda/array_sequencer.py"
ACCUMULATOR = "hdl/veda/inner_product_accumulator.py"
FAULTS = [
    Fault(
        "the planes are added in a split product too",
        ARRAY,
        "other = Mux(split, nothing, elements",
        "other = Mux(0, nothing, elements",
    ),
    Fault(
        "an element of type B never takes a foreign product",
        ELEMENT,
        "own = Mux(transmits, self.transmitted_product, product)",
        "own = Mux(0, self.transmitted_product, product)",
    ),
    Fault(
        "nothing is +0 instead of -0",
        ELEMENT,
        "return Cat(joined[:-1], joined[-1] | nothing)",
        "return Cat(joined[:-1], joined[-1])",
    ),
    Fault(
        "an outer product enters a cycle before the tree is empty",
        SEQUENCER,
        "m.d.sync += draining.eq(p.drain)",
        "m.d.sync += draining.eq(p.drain - 1)",
    ),
    Fault(
        "the next row enters while the last one is folded",
        SEQUENCER,
        "folded = (ended == 0) | (ended > p.fold)",
        "folded = (ended == 0) | (ended > p.fold - 1)",
    ),
    Fault(
        "an element of a row goes to whatever partial sum is there",
        SEQUENCER,
        "in_turn = beat.first | (open_row & (away == 0))",
        "in_turn = beat.first | open_row",
    ),
    Fault(
        "a row may end before its predecessor is taken",
        SEQUENCER,
        "finishes = ~beat.last | ((ended == 0) & ~self.results_valid)",
        "finishes = ~beat.last | (ended == 0)",
    ),
    Fault(
        "a dot product more than there is room for",
        SEQUENCER,
        "room = Mux(beat.last, promised != p.dot_depth, 1)",
        "room = 1",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """By the simulation of preset `tiny`."""
    assert simulation_finds(faulty_copy(fault, tmp_path), "flexible_pe_array", "tiny")
