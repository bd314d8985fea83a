"""Two dot products in shared multipliers: a proof of their separation, extremes, random vectors."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed

from hdl.arith.paired_dot_product import FIELD, LONGEST, PairedDotProduct, ProductCascade, split
from hdl.target import Target, writing_for
from testbenches.arith.step import run_steps
from testbenches.formal import Assert, Assume, prove


def test_split_returns_all_pairs_of_sums() -> None:
    """Prove that no two pairs of sums of eight products have one number."""
    m = Module()
    high, low = Signal(signed(19)), Signal(signed(19))
    total = Signal(signed(FIELD + 19))
    above, carry, below = split(m, "low", total)
    m.d.comb += [
        Assume(low >= -LONGEST * 128 * 127),
        Assume(low <= LONGEST * 128 * 128),
        total.eq(high.shift_left(FIELD) + low),
        Assert(below == low),
        Assert((above + carry)[:19].as_signed() == high),
    ]
    prove(m, inputs=[high, low], depth=1, induction=False)


@pytest.mark.parametrize(
    ("target", "count", "stages", "enable"),
    [
        (Target.FPGA, 64, 3, True),
        (Target.FPGA, LONGEST + 1, 2, False),
        (Target.FPGA, 3, 0, False),
        (Target.ASIC, LONGEST + 1, 3, True),
        (Target.ASIC, 3, 0, False),
    ],
)
def test_pairs_equal_integers(target: Target, count: int, stages: int, enable: bool) -> None:
    random = np.random.default_rng(count)
    x, a, b = vectors = random.integers(-128, 128, (3, 40, count))
    # All combinations of extremes, then mixed extremes.
    for row in range(8):
        for bit, vector in enumerate(vectors):
            vector[row] = 127 if row >> bit & 1 else -128
    vectors[:, 8:24] = np.where(vectors[:, 8:24] < 0, -128, 127)
    with writing_for(target):
        unit = PairedDotProduct(count=count, stages=stages, enable=enable)
        results = run_steps(unit, {"x": x, "a": a, "b": b})
    for name, vector in (("x_a", a), ("x_b", b)):
        found = np.asarray(results[name]).astype(np.int64)
        assert np.array_equal(found, (x * vector).sum(axis=1)), name


def test_parameters_out_of_range() -> None:
    with pytest.raises(ValueError, match="count must be an integer from 1 to 8, not 9"):
        ProductCascade(count=9)
    with pytest.raises(ValueError, match="count must be an integer from 1 to 1024, not 0"):
        PairedDotProduct(count=0)
