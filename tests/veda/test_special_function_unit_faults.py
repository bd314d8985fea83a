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
        "loan.granted.eq(owner[index])",
        "loan.granted.eq(1)",
    ),
    Fault(
        "operators change hands with something in them",
        TOP,
        "(owner & (wants | Cat(loan.busy for loan in loans)))",
        "(owner & wants)",
    ),
    Fault(
        "operators change hands although their owner wants them",
        TOP,
        "(owner & (wants | Cat(loan.busy for loan in loans)))",
        "(owner & Cat(loan.busy for loan in loans))",
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
        "lent.busy.eq(sums.squaring | moving)",
        "lent.busy.eq(sums.squaring)",
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


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, "special_function_unit", "tiny")
