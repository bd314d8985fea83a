"""Each fault in the element-serial layernorm is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

SUMS = "hdl/veda/element_sums.py"
DEVIATION = "hdl/veda/deviation_reciprocal.py"
TOP = "hdl/veda/element_serial_layernorm.py"
FAULTS = [
    Fault(
        "the squares of one vector remain for the next",
        SUMS,
        "squares & goes_on.replicate(len(squares))",
        "squares",
    ),
    Fault(
        "the count of one vector remains for the next",
        SUMS,
        "(count & goes_on.replicate(len(count))) + aligned",
        "count + aligned",
    ),
    Fault("subnormal elements count double", SUMS, "value.exponent - normal", "value.exponent"),
    Fault(
        "an infinity is forgotten",
        SUMS,
        "(undefined & goes_on) | spoils",
        "spoils",
    ),
    Fault(
        "an infinity spoils the next vector",
        SUMS,
        "(undefined & goes_on) | spoils",
        "undefined | spoils",
    ),
    Fault(
        "negative elements are one too small", SUMS, "Cat(negative, term)", "Cat(Const(0, 1), term)"
    ),
    Fault(
        "the sum of one vector remains for the next",
        SUMS,
        "total & goes_on.replicate(p.sum_width)",
        "total",
    ),
    Fault("what came before a reset is added", SUMS, "(begins & ~aligned)", "0"),
    Fault("there is no epsilon", DEVIATION, "prefix_sum(m, work, epsilon)", "work"),
    Fault("odd powers of two are missed", DEVIATION, "work[-2:].any()", "work[-1:].any()"),
    Fault(
        "the root has a digit less", DEVIATION, "steps.eq(ROOT_DIGITS)", "steps.eq(ROOT_DIGITS - 1)"
    ),
    Fault("what the reciprocal drops is forgotten", DEVIATION, "| inexact)", ")"),
    Fault(
        "the variance may be negative",
        DEVIATION,
        "variance & ~difference[-1].replicate(len(variance))",
        "variance",
    ),
    Fault("the mean has the wrong sign", DEVIATION, "Cat(code, negative)", "Cat(code, ~negative)"),
    Fault("the mean is rounded down", DEVIATION, "average[:11] + up", "average[:11]"),
    Fault(
        "sticky bits of the mean are lost",
        DEVIATION,
        "sticky.eq(sticky | guard)",
        "sticky.eq(guard)",
    ),
    Fault(
        "two vectors are reduced at a time",
        TOP,
        "(complete != p.vectors) & ~reducing",
        "(complete != p.vectors)",
    ),
    Fault("the output is overwritten", TOP, "move.eq(~output.valid | output.ready)", "move.eq(1)"),
    Fault(
        "an undefined vector gives numbers",
        DEVIATION,
        "scale | Cat(Const(0, 9), undefined.replicate(6))",
        "scale",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, "element_serial_layernorm", "tiny_mean")
