"""Adder tree: proved for all inputs where it is small, sampled at its ends where it is large."""

import numpy as np
import pytest

from golden.arith.adder_tree import adder_tree
from hdl.arith.adder_tree import AdderTree
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps


@pytest.mark.parametrize(
    ("count", "width", "signed", "bits"),
    [(1, 5, True, 5), (2, 8, True, 9), (5, 4, True, 7), (6, 3, False, 6), (8, 6, True, 9)],
)
def test_proved(count: int, width: int, signed: bool, bits: int) -> None:
    """Against a plain sum; `bits` is the narrowest width that holds it."""
    cast = "$signed" if signed else "$unsigned"
    operands = [f"{cast}(a[{i * width + width - 1}:{i * width}])" for i in range(count)]
    keyword = "signed" if signed else ""
    prove_equivalent(
        AdderTree(count=count, width=width, signed_operands=signed),
        f"""
        module specification(
          input [{count * width - 1}:0] a, output {keyword} [{bits - 1}:0] result
        );
          assign result = {" + ".join(operands)};
        endmodule
        """,
    )


@pytest.mark.parametrize("stages", [0, 1, 3, 9])
@pytest.mark.parametrize("enable", [False, True])
def test_pipelined(stages: int, enable: bool) -> None:
    """Any number of ranks, with and without pauses; the extreme sums included."""
    random = np.random.default_rng(stages)
    operands = random.integers(-128, 128, (60, 11))
    operands[0], operands[1] = -128, 127
    unit = AdderTree(count=11, width=8, stages=stages, enable=enable)
    results = run_steps(unit, {"a": operands})
    assert np.array_equal(results["result"], adder_tree(operands))


def test_wide_operands_do_not_overflow() -> None:
    """64-bit operands, beyond any machine integer."""
    low = -(1 << 63)
    results = run_steps(AdderTree(count=3, width=64), {"a": np.array([[low] * 3], dtype=object)})
    assert results["result"][0] == 3 * low


def test_count_out_of_range() -> None:
    """A worded error."""
    with pytest.raises(ValueError, match="count must be an integer from 1 to 4096, not 0"):
        AdderTree(count=0, width=8)
