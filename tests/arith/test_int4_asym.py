"""INT4 with a zero point: the formula, its clipping, and the operand decoder."""

import numpy as np
import torch

from golden.arith.int4_asym import operand, quantise
from hdl.arith.int4_asym import Int4AsymOperand
from testbenches.arith.equivalence import prove_equivalent
from testbenches.arith.step import run_steps


def test_decoder_is_proved() -> None:
    prove_equivalent(
        Int4AsymOperand(),
        """
        module specification(input [3:0] code, zero_point, output signed [4:0] result);
          integer difference;
          always @* difference = code - zero_point;
          assign result = difference;
        endmodule
        """,
    )


def test_decoder_equals_model() -> None:
    """Test all 256 pairs, with a register."""
    code, zero = (grid.ravel() for grid in np.meshgrid(np.arange(16), np.arange(16)))
    rtl = run_steps(Int4AsymOperand(stages=1), {"code": code, "zero_point": zero})
    assert np.array_equal(rtl["result"], operand(code, zero))
    assert rtl["result"].min() == -15 and rtl["result"].max() == 15


def test_quantiser_equals_the_formula_in_torch() -> None:
    """torch, which the authors use, also rounds half to even."""
    values = np.random.default_rng(5).normal(size=(200, 128)).astype(np.float32)
    values[0], values[1], values[2] = 0, np.abs(values[1]) + 3, -np.abs(values[2]) - 3
    x = torch.from_numpy(values)
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    scale = ((high - low) / 15).clamp(min=1e-6)
    zero = torch.round(-low / scale).clamp(0, 15)
    code = (torch.round(x / scale) + zero).clamp(0, 15)
    quantised = quantise(values)
    assert np.array_equal(quantised.codes, code.numpy())
    assert np.array_equal(quantised.zero_points, zero.numpy())
    assert np.array_equal(quantised.scales, scale.numpy())
    assert np.array_equal(quantised.values(), ((code - zero) * scale).numpy())


def test_groups_of_one_sign_clip() -> None:
    """If all values are positive, the zero point is 0 and values above 15 steps are clipped."""
    quantised = quantise(np.linspace(3, 4, 128))
    assert quantised.zero_points[0] == 0 and set(quantised.codes) == {15}
    quantised = quantise(np.linspace(-4, -3, 128))
    assert quantised.zero_points[0] == 15 and set(quantised.codes) == {0}


def test_error_is_half_a_step_where_nothing_clips() -> None:
    """Separate rounding of value and zero point causes an error of at most one step."""
    values = np.random.default_rng(6).uniform(-1, 1, (100, 64)).astype(np.float32)
    quantised = quantise(values)
    inner = (quantised.codes > 0) & (quantised.codes < 15)
    error = np.abs(quantised.values() - values)
    assert (error <= quantised.scales * 0.5001)[inner].all()
    assert (error <= quantised.scales * 1.0001).all()
