"""Saturating addition: proof for all inputs, and its model against Python integers."""

import numpy as np
import pytest

from golden.arith.saturating_add import saturate, saturating_add
from hdl.arith.saturating_add import SaturatingAdd
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps


@pytest.mark.parametrize("width", [1, 2, 8, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_proved(width: int, signed: bool) -> None:
    """Compare with comparisons of a wide sum."""
    keyword = "signed" if signed else ""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    prove_equivalent(
        SaturatingAdd(width=width, signed_operands=signed),
        f"""
        module specification(
          input {keyword} [{width - 1}:0] a, input {keyword} [{width - 1}:0] b,
          output {keyword} [{width - 1}:0] result, output saturated
        );
          wire signed [31:0] sum = {"a + b" if signed else "{1'b0, a} + {1'b0, b}"};
          assign result = sum > {high} ? {high} : sum < {low} ? {low} : sum;
          assign saturated = sum > {high} || sum < {low};
        endmodule
        """,
    )


@pytest.mark.parametrize("signed", [False, True])
def test_model_and_pipeline(signed: bool) -> None:
    """Test all pairs of 4-bit integers; the RTL has two stages and pauses."""
    numbers = range(-8, 8) if signed else range(16)
    a, b = (grid.ravel() for grid in np.meshgrid(numbers, numbers))
    expected = [
        min(max(int(x) + int(y), numbers[0]), numbers[-1]) for x, y in zip(a, b, strict=True)
    ]
    result, saturated = saturating_add(a, b, width=4, signed=signed)
    assert list(result) == expected
    assert np.array_equal(saturated, result != a + b)
    unit = SaturatingAdd(width=4, signed_operands=signed, stages=2, enable=True)
    rtl = run_steps(unit, {"a": a, "b": b})
    assert np.array_equal(rtl["result"], result)
    assert np.array_equal(rtl["saturated"], saturated)


def test_model_clamp() -> None:
    """Test both limits, signed and unsigned."""
    values = np.array([-300, -129, -128, -1, 0, 127, 128, 255, 256])
    assert list(saturate(values, width=8)) == [-128, -128, -128, -1, 0, 127, 127, 127, 127]
    assert list(saturate(values, width=8, signed=False)) == [0, 0, 0, 0, 0, 127, 128, 255, 255]


def test_stages_out_of_range() -> None:
    """The constructor reports the range."""
    with pytest.raises(ValueError, match="stages must be an integer from 0 to 64, not -1"):
        SaturatingAdd(width=8, stages=-1)
