"""Rounding shifts: proof for all inputs, and the model against exact rationals."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from golden.arith.rounding import rounded, rounded_right
from hdl.arith.rounding import Rounding, RoundingShift, VariableRoundingShift
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps

EXACT = {
    Rounding.HALF_EVEN: round,
    Rounding.HALF_UP: lambda value: floor(value + Fraction(1, 2)),
    Rounding.FLOOR: floor,
}

# `twice` is twice the remainder, `unit` the divisor: their comparison decides.
SPECIFIED = {
    Rounding.HALF_EVEN: "floor + ((twice > unit) || (twice == unit && floor[0]))",
    Rounding.HALF_UP: "floor + (twice >= unit)",
    Rounding.FLOOR: "floor",
}


def specification(
    width: int, signed: bool, result_width: int, rounding: Rounding, shift: str
) -> str:
    """Return Verilog for a division with remainder, with sufficiently wide words."""
    keyword = "signed" if signed else ""
    port = "" if shift.isdigit() else "input [2:0] shift,"
    return f"""
        module specification(
          input {keyword} [{width - 1}:0] a, {port} output {keyword} [{result_width - 1}:0] result
        );
          wire signed [31:0] wide = {"a" if signed else "{1'b0, a}"};
          wire signed [31:0] unit = 32'd1 << {shift};
          wire signed [31:0] floor = wide >>> {shift};
          wire signed [31:0] twice = 2 * (wide - (floor << {shift}));
          assign result = {SPECIFIED[rounding]};
        endmodule
        """


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize(
    ("signed", "shift"), [(True, 0), (True, 1), (True, 5), (False, 3), (True, 9)]
)
def test_constant_shift_is_proved(rounding: Rounding, signed: bool, shift: int) -> None:
    """Test all 9-bit operands."""
    unit = RoundingShift(width=9, shift=shift, rounding=rounding, signed_operand=signed)
    result_width = max(9 - shift, 1) + (rounding is not Rounding.FLOOR and shift > 0)
    prove_equivalent(unit, specification(9, signed, result_width, rounding, str(shift)))


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("signed", [False, True])
def test_variable_shift_is_proved(rounding: Rounding, signed: bool) -> None:
    """Test all 6-bit operands and all shifts from 0 to 7, which exceed the operand's width."""
    unit = VariableRoundingShift(width=6, largest_shift=7, rounding=rounding, signed_operand=signed)
    prove_equivalent(unit, specification(6, signed, 6, rounding, "shift"))


@pytest.mark.parametrize("rounding", Rounding)
def test_model_is_exact(rounding: Rounding) -> None:
    """Test integers and floats with all shifts."""
    values = np.arange(-200, 200)
    for shift in range(10):
        exact = [EXACT[rounding](Fraction(int(value), 1 << shift)) for value in values]
        assert list(rounded_right(values, shift, rounding)) == exact
        assert list(rounded(values / 2.0**shift, rounding)) == exact


@pytest.mark.parametrize("rounding", Rounding)
def test_pipelined(rounding: Rounding) -> None:
    """Test both units with stages and pauses."""
    random = np.random.default_rng(4)
    a, shift = random.integers(-(1 << 31), 1 << 31, 100), random.integers(0, 25, 100)
    unit = VariableRoundingShift(
        width=32, largest_shift=24, rounding=rounding, stages=3, enable=True
    )
    variable = run_steps(unit, {"a": a, "shift": shift})
    assert np.array_equal(variable["result"], rounded_right(a, shift, rounding))
    constant = run_steps(RoundingShift(width=32, shift=7, rounding=rounding, stages=2), {"a": a})
    assert np.array_equal(constant["result"], rounded_right(a, 7, rounding))


def test_rejects_illegal_parameters() -> None:
    """The constructor reports the rules."""
    with pytest.raises(ValueError, match="shift must be an integer from 0 to 8, not 9"):
        RoundingShift(width=8, shift=9)
    with pytest.raises(ValueError, match=r"rounding must be one of .* not 'floor'"):
        VariableRoundingShift(width=8, largest_shift=3, rounding="floor")  # pyright: ignore
