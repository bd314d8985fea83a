"""Each fault in the element-serial softmax is found by the simulation."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, simulation_finds

REDUCTION = "hdl/veda/reduction_unit.py"
SUM = "hdl/veda/exponential_sum.py"
MULTIPLY = "hdl/arith/float_multiply.py"
NORMALIZATION = "hdl/veda/normalization_unit.py"
TOP = "hdl/veda/element_serial_softmax.py"
FIFO = "hdl/stream/memory_fifo.py"
FAULTS = [
    Fault("the maximum ignores signs", REDUCTION, "~code[-1])", "code[-1])"),
    Fault(
        "the maximum of one head remains for the next",
        REDUCTION,
        "Mux(begins | greater, score.value, running)",
        "Mux(greater, score.value, running)",
    ),
    Fault(
        "a NaN spoils the next head",
        REDUCTION,
        "nans.eq(nan | (nan_before & ~begins))",
        "nans.eq(nan | nan_before)",
    ),
    Fault(
        "a NaN is forgotten",
        REDUCTION,
        "nans.eq(nan | (nan_before & ~begins))",
        "nans.eq(nan)",
    ),
    Fault(
        "a tile never raises the maximum",
        REDUCTION,
        "rises.eq(~first_tile & (greater | rose_before))",
        "rises.eq(0)",
    ),
    Fault(
        "the score that gave its place away is lost",
        REDUCTION,
        "Mux(owed & is_maximum, first, element.value)",
        "element.value",
    ),
    Fault(
        "the first score is owed although it is the maximum",
        REDUCTION,
        "owed.eq(rescale & ~is_maximum)",
        "owed.eq(rescale)",
    ),
    Fault(
        "what a score was owed before a reset is paid after it",
        REDUCTION,
        "owed = Signal()",
        "owed = Signal(reset_less=True)",
    ),
    Fault(
        "the next tile does not wait for the rescaling",
        REDUCTION,
        "pause_next.eq(total.rescale_cycles - 1)",
        "pause_next.eq(total.rescale_cycles - 6)",
    ),
    Fault(
        "the next head does not wait for the division",
        REDUCTION,
        "busy.eq(pause_next + total.reciprocal_cycles(p))",
        "busy.eq(pause_next + total.reciprocal_cycles(p) - 2)",
    ),
    Fault(
        "the earlier sum is lost",
        SUM,
        "Mux(first_of_head, 0, Mux(rescale, term, one))",
        "Mux(rescale, term, 0)",
    ),
    Fault(
        "the earlier sum of another head is kept",
        SUM,
        "Mux(first_of_head, 0, Mux(rescale, term, one))",
        "Mux(rescale, term, one)",
    ),
    Fault("the maximum's own exponential is lost", SUM, "Mux(rescale, one, term)", "term"),
    Fault(
        "a reciprocal is not rounded to odd",
        SUM,
        "quotient[0] | remainder.any()",
        "quotient[0]",
    ),
    Fault(
        "subnormal exponentials count double", SUM, "(code.exponent - normal)", "(code.exponent)"
    ),
    Fault(
        "the reciprocal of a power of two is half of it", SUM, "exponent + quotient[-1]", "exponent"
    ),
    Fault(
        "what a product drops is forgotten",
        MULTIPLY,
        "sticky | integer[: self.extra_bits].any()",
        "sticky",
    ),
    Fault(
        "subnormal probabilities are one place off",
        MULTIPLY,
        "Mux(subnormal, bits - weight, bits - zeros)",
        "Mux(subnormal, bits + 1 - weight, bits - zeros)",
    ),
    Fault(
        "the output is overwritten",
        NORMALIZATION,
        "(~output.valid | output.ready) & ~missing",
        "~missing",
    ),
    Fault(
        "scores do not wait for their sum",
        NORMALIZATION,
        "missing = due & ~self.reciprocals.valid",
        "missing = due & 0",
    ),
    Fault(
        "a head without a softmax gives numbers",
        NORMALIZATION,
        "reciprocal.exponent | nan.replicate(5)",
        "reciprocal.exponent",
    ),
    Fault(
        "more heads are let in than there is room for",
        TOP,
        "complete != p.heads",
        "(complete == complete)",
    ),
    Fault("the buffer is overwritten", FIFO, "ready.eq(~(meet & turned))", "ready.eq(1)"),
]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.meaning)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    copy = faulty_copy(fault, tmp_path)
    assert simulation_finds(copy, "element_serial_softmax", "tiny")
