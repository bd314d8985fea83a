"""Multiply-add: proof for small operands, comparison with integers for wide ones."""

import numpy as np
import pytest
from amaranth.hdl import signed, unsigned

from hdl.arith.multiply_add import MultiplyAdd
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps


@pytest.mark.parametrize("signs", ["sss", "sus", "uuu", "usu"])
def test_proved(signs: str) -> None:
    """Test all operands of five and four bits, with an addend wider than the product."""
    kinds = [signed if sign == "s" else unsigned for sign in signs]
    a, b, c = (kind(width) for kind, width in zip(kinds, (5, 4, 10), strict=True))
    zero = "1'b0"
    wide = {
        name: f"$signed({name})" if shape.signed else f"$signed({{{zero}, {name}}})"
        for name, shape in (("a", a), ("b", b), ("c", c))
    }
    prove_equivalent(
        MultiplyAdd(a=a, b=b, c=c, constant=8, width=12),
        f"""
        module specification(input [4:0] a, input [3:0] b, input [9:0] c, output [11:0] result);
          wire signed [13:0] total = {wide["a"]} * {wide["b"]} + {wide["c"]} + 14'sd8;
          assign result = total[11:0];
        endmodule
        """,
    )


@pytest.mark.parametrize(
    ("a_bits", "b_bits", "stages", "enable"), [(19, 16, 0, False), (26, 17, 1, True)]
)
def test_wide_operands(a_bits: int, b_bits: int, stages: int, enable: bool) -> None:
    """Test extremes and random operands."""
    random = np.random.default_rng(a_bits)
    operands = {
        name: np.append(random.integers(low, high, 200), [low, low, high - 1, high - 1])
        for name, low, high in (
            ("a", -(1 << a_bits - 1), 1 << a_bits - 1),
            ("b", 0, 1 << b_bits),
            ("c", -(1 << a_bits), 1 << a_bits),
        )
    }
    unit = MultiplyAdd(
        a=signed(a_bits),
        b=unsigned(b_bits),
        c=signed(a_bits + 1),
        constant=-5,
        stages=stages,
        enable=enable,
    )
    results = run_steps(unit, operands)["result"]
    expected = operands["a"] * operands["b"] + operands["c"] - 5
    assert np.array_equal(np.asarray(results).astype(np.int64), expected)


def test_widths_out_of_range() -> None:
    """The constructor reports the ranges."""
    with pytest.raises(ValueError, match="bits of a must be an integer from 1 to 64, not 65"):
        MultiplyAdd(a=signed(65), b=signed(4))
    with pytest.raises(ValueError, match="width must be an integer from 1 to 128, not 0"):
        MultiplyAdd(a=signed(5), b=signed(4), width=0)
