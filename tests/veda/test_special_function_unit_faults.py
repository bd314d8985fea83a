"""Each fault in how the special function unit's operators are shared is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

TOP = "hdl/veda/special_function_unit.py"
NORMALIZATION = "hdl/veda/normalization_unit.py"
LAYERNORM = "hdl/veda/element_serial_layernorm.py"
ACTIVATION = "hdl/veda/element_serial_activation.py"
ROTARY = "hdl/veda/element_serial_rotary.py"
SUMS = "hdl/veda/element_sums.py"
DIVIDE = "hdl/arith/float_divide.py"
FAULTS = [
    Fault(
        "a function does not wait for its turn",
        TOP,
        "loan.granted.eq(owner[index] & ~leaving)",
        "loan.granted.eq(~leaving)",
    ),
    Fault(
        "operators change hands with something in them",
        TOP,
        "(owner & (busy | (wants & ~leaving.replicate(len(loans)))))",
        "(owner & wants & ~leaving.replicate(len(loans)))",
    ),
    Fault(
        "operators change hands although their owner wants them",
        TOP,
        "(owner & (busy | (wants & ~leaving.replicate(len(loans)))))",
        "(owner & busy)",
    ),
    Fault(
        "nobody lets go at the end of a vector",
        TOP,
        "leaving.eq((wants & ~owner).any())",
        "leaving.eq(0)",
    ),
    Fault(
        "a function lets go at the end of a vector although nobody waits",
        TOP,
        "leaving.eq((wants & ~owner).any())",
        "leaving.eq(1)",
    ),
    Fault(
        "a function that lets go begins another vector",
        TOP,
        "loan.granted.eq(owner[index] & ~leaving)",
        "loan.granted.eq(owner[index])",
    ),
    Fault(
        "a function that has let go lets go again when it has its turn",
        TOP,
        "m.d.sync += leaving.eq(0)",
        "pass",
    ),
    Fault(
        "a vector that is reduced has no end",
        LAYERNORM,
        "lent.ends.eq(ends | used)",
        "lent.ends.eq(used)",
    ),
    Fault(
        "a vector that is normalised has no end",
        LAYERNORM,
        "lent.ends.eq(ends | used)",
        "lent.ends.eq(ends)",
    ),
    Fault("the third in turn is never served", TOP, "range(1, len(loans))", "range(1, 3)"),
    Fault(
        "operators move for a function that does not have them",
        TOP,
        "(owner & Cat(loan.enable for loan in loans)).any()",
        "Cat(loan.enable for loan in loans).any()",
    ),
    Fault("operands of all functions are mixed", TOP, "Mux(owns, code, 0)", "code"),
    Fault(
        "the norm's flag is not cleared",
        TOP,
        "layernorm.clear_undefined.eq(self.clear_flags)",
        "layernorm.clear_undefined.eq(0)",
    ),
    Fault(
        "only what leaves the softmax counts as under way",
        NORMALIZATION,
        "lent.busy.eq(valid.any())",
        "lent.busy.eq(valid[-1])",
    ),
    Fault(
        "what is normalised does not count as under way",
        LAYERNORM,
        "lent.busy.eq(moving)",
        "lent.busy.eq(0)",
    ),
    Fault(
        "a vector is normalised out of turn",
        LAYERNORM,
        "elements.valid & scales.valid & lent.granted, valid",
        "elements.valid & scales.valid, valid",
    ),
    Fault(
        "products of others are added to the squares",
        SUMS,
        "self.square & strobe.replicate(22)",
        "self.square",
    ),
    Fault(
        "what is activated does not count as under way",
        ACTIVATION,
        "lent.busy.eq(valid.any())",
        "lent.busy.eq(valid[-1])",
    ),
    Fault(
        "an element does not wait for the divider",
        ACTIVATION,
        "& ~(dividing & divide.busy)",
        "",
    ),
    Fault(
        "a result is taken twice while a division lasts",
        ACTIVATION,
        "m.d.sync += valid[-1].eq(0)",
        "pass",
    ),
    Fault(
        "the first digit of a dividend comes down again", DIVIDE, "digit.eq(0),", "digit.eq(digit),"
    ),
]
MORE_RANKS = [
    Fault(
        "only what leaves the rotary embedding counts as under way",
        ROTARY,
        "lent.busy.eq(there.any())",
        "lent.busy.eq(there[-1])",
    ),
]
"""With two ranks, as at `tiny`, the last is never empty before the first."""


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, "special_function_unit", "tiny")


@pytest.mark.full
@pytest.mark.parametrize("fault", MORE_RANKS, ids=lambda fault: fault.meaning)
def test_fault_is_found_with_more_ranks(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, "special_function_unit", "tiny_lanes")
