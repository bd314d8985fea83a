"""Each fault in a floating-point operator is found by that operator's tests."""

from pathlib import Path

import pytest

from testbenches.faults import Fault, faulty_copy, proof_finds

SUM = "hdl/arith/float_sum.py"
SHIFT = "hdl/arith/float_shift.py"
CUT = "hdl/arith/float_cut.py"
UNPACK = "hdl/arith/float_unpack.py"
MULTIPLY = "hdl/arith/float_multiply.py"

FAULTS = [
    ("add", Fault("ties go up", SUM, "total.sticky | some | last", "total.sticky | some | 1")),
    ("add", Fault("the bit carried along is lost", SUM, "| (behind & last)", "")),
    (
        "add",
        Fault("x - x is -0", SUM, "(terms.sign ^ negative) & ~nothing", "terms.sign ^ negative"),
    ),
    ("add", Fault("inf - inf is inf", CUT, "(a.infinite & b.infinite &", "(a.infinite & b.nan &")),
    ("add", Fault("subnormals weigh half", UNPACK, "exponent[0] | ~normal", "exponent[0]")),
    ("add", Fault("overflow by rounding is a NaN", UNPACK, "& mantissa.all() & increment", "& 0")),
    ("fma", Fault("a far addend is not sticky", SHIFT, "lost.append(far & value.any())", "pass")),
    (
        "fma",
        Fault(
            "a subnormal factor's last bits are cut off",
            "hdl/arith/float_fma.py",
            "leading=number_format.significand_bits",
            "leading=number_format.significand_bits - 1",
        ),
    ),
    (
        "fma",
        Fault(
            "a zero product hides the addend",
            "hdl/arith/float_fma.py",
            "exponent, a.zero | b.zero)",
            "exponent)",
        ),
    ),
    ("fma", Fault("0 * inf is inf", CUT, "(a.infinite & b.zero) | ", "")),
    (
        "fma",
        Fault(
            "a carry of the product is lost",
            "hdl/arith/unsigned_multiply.py",
            "(a & b) | (c & half)",
            "(a & b) | (c & a)",
        ),
    ),
    (
        "mixed",
        Fault(
            "products of two subnormals lose bits",
            "hdl/arith/float_mixed.py",
            "leading=2 * (STEP - 1) + 1",
            "leading=STEP - 1",
        ),
    ),
    (
        "multiply",
        Fault(
            "subnormal results are not shifted far enough",
            MULTIPLY,
            "Mux(subnormal, bits - weight",
            "Mux(subnormal, bits - 1 - weight",
        ),
    ),
    (
        "multiply",
        Fault("a dropped one is forgotten", MULTIPLY, "guard & (rest |", "guard & (sticky |"),
    ),
    (
        "multiply",
        Fault(
            "the first result survives a pause",
            "hdl/arith/operator.py",
            "with self._m.If(self._enable):",
            "with self._m.If(1):",
        ),
    ),
    (
        "convert",
        Fault(
            "FP16 subnormals keep their exponent in FP32",
            "hdl/arith/float_normalise.py",
            "operand.exponent - zeros",
            "operand.exponent",
        ),
    ),
    (
        "convert",
        Fault(
            "a number far too small comes back",
            "hdl/arith/float_convert.py",
            "least - a.exponent, 0)",
            "(least - a.exponent)[:6], 0)",
        ),
    ),
    (
        "compare",
        Fault(
            "two negatives compare as two positives",
            "hdl/arith/float_compare.py",
            "below ^ a.sign",
            "below",
        ),
    ),
    (
        "compare",
        Fault("the two zeros differ", "hdl/arith/float_compare.py", " | (a.zero & b.zero)", ""),
    ),
    (
        "tree",
        Fault(
            "the first term is left alone instead of the last",
            "hdl/arith/float_tree.py",
            "alone.cut(terms[-1])",
            "alone.cut(terms[0])",
        ),
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("stem", "fault"), FAULTS, ids=[f"{stem}: {fault.meaning}" for stem, fault in FAULTS]
)
def test_fault_is_found(stem: str, fault: Fault, tmp_path: Path) -> None:
    assert proof_finds(faulty_copy(fault, tmp_path), f"tests/arith/test_float_{stem}.py")
