"""Leading-zero count: proved for all inputs."""

import numpy as np
import pytest

from golden.arith.leading_zeros import leading_zeros
from hdl.arith.leading_zeros import LeadingZeros
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps


@pytest.mark.parametrize("width", [1, 2, 7, 8, 11, 24, 33])
def test_proved(width: int) -> None:
    """Compare with a loop from the lowest bit up: the last one found is the highest."""
    bits = width.bit_length()
    prove_equivalent(
        LeadingZeros(width=width),
        f"""
        module specification(input [{width - 1}:0] a, output reg [{bits - 1}:0] result);
          integer i;
          always @* begin
            result = {width};
            for (i = 0; i < {width}; i = i + 1) if (a[i]) result = {width - 1} - i;
          end
        endmodule
        """,
    )


def test_model_and_pipeline() -> None:
    """Compare all 10-bit words with Python's `bit_length`; test the RTL with a stage and pauses."""
    words = np.arange(1 << 10)
    expected = [10 - int(word).bit_length() for word in words]
    assert list(leading_zeros(words, width=10)) == expected
    some = words[::17]
    rtl = run_steps(LeadingZeros(width=10, stages=1, enable=True), {"a": some})
    assert np.array_equal(rtl["result"], leading_zeros(some, width=10))


def test_width_out_of_range() -> None:
    """The constructor reports the range."""
    with pytest.raises(ValueError, match="width must be an integer from 1 to 128, not 0"):
        LeadingZeros(width=0)
