"""P3-LLM's compute unit: its model against matrix products of numpy, and its parameters."""

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from golden.p3llm.pim.operand_decoder import real
from golden.p3llm.pim.pim_compute_unit import Unit
from golden.p3llm.pim.real_operands import (
    Operands,
    group_scales,
    linear,
    probabilities_and_values,
    queries_and_keys,
)
from hdl.p3llm.pim.operand_decoder import Mode
from hdl.p3llm.pim.pim_compute_unit import PimComputeUnitParameters
from testbenches.p3llm.pim.unit_commands import product, scaled_product

PAPER = PimComputeUnitParameters()


def test_registers_have_the_size_of_hbm_pim() -> None:
    """Column and metadata of 256 bits, inputs of 2,048, sums of 2,048."""
    assert PAPER.column_bits == 256
    assert PAPER.words * PAPER.column_bits == 2048
    assert PAPER.pumps * PAPER.steps * 4 == 256
    assert 2 * PAPER.pumps * PAPER.elements * 32 == 2048


def values_of(operands: Operands) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and weights in float64, by `ml_dtypes` and numpy alone."""
    if operands.mode is Mode.PV:
        inputs = (operands.inputs.astype(np.uint16) << 6).view(np.float16).astype(float)
    else:
        inputs = operands.inputs.view(ml_dtypes.float8_e4m3fn).astype(float)
    if operands.mode is not Mode.LINEAR:
        return inputs, operands.codes.astype(float) - operands.group_bits
    plain = np.ascontiguousarray(operands.codes).view(ml_dtypes.float4_e2m1fn).astype(float)
    special = np.array([5.0, -5.0, 8.0, -8.0])[operands.group_bits]
    return inputs, np.where(operands.codes == 8, special, plain)


@pytest.mark.parametrize(
    "operands",
    [
        pytest.param(lambda: linear(0, "k_proj", outputs=40, inputs=64, tokens=2), id="linear"),
        pytest.param(lambda: queries_and_keys(14, 1, tokens=50, heads=2), id="keys"),
        pytest.param(lambda: probabilities_and_values(29, 2, tokens=203, heads=2), id="values"),
    ],
)
def test_products_are_exact_in_float64(operands: Any) -> None:
    """Sums from DRAM bytes by commands are equal to float64 products of the values."""
    operands = operands()
    unit = Unit(PAPER)
    unit.run(product(PAPER, operands))
    inputs, weights = values_of(operands)
    expected = inputs @ weights.T
    outputs = len(operands.codes)
    got = np.array(unit.results).reshape(-1, 2, 16).swapaxes(0, 1).reshape(2, -1)
    assert np.array_equal(real(operands.mode, got[:, :outputs]), expected)
    assert not unit.nan


@pytest.mark.parametrize(
    ("groups", "largest"), [(1, False), (2, False), (9, False), (12, False), (12, True)]
)
def test_totals_are_exact_in_float64(groups: int, *, largest: bool) -> None:
    """Totals of groups times scales are equal to float64 products of the values."""
    shape: dict[str, int] = {"outputs": 40, "inputs": groups * 128, "group": 128}
    operands = linear(14, "down_proj", tokens=2, **shape)
    scales = group_scales(14, "down_proj", **shape)
    assert scales.shape == (40, groups)
    if largest:
        # 448 everywhere, and the largest scale.
        operands = replace(operands, inputs=np.full_like(operands.inputs, 0x7E))
        scales = np.full_like(scales, 255)
    unit = Unit(PAPER)
    unit.run(scaled_product(unit.p, operands, scales))
    inputs, weights = values_of(operands)
    expected = inputs @ (weights * np.repeat(scales.astype(float), 128, axis=1)).T
    high, lower, upper = np.array(unit.results).reshape(-1, 2, 3, 8).transpose(2, 1, 0, 3)
    above = np.stack([high & 0xFFFF, high >> 16], axis=-1).astype(np.uint16).view(np.int16)
    low = np.concatenate([lower, upper], axis=-1)
    got = (above.reshape(low.shape).astype(np.int64) << 32 | low).reshape(2, -1)
    assert np.array_equal(real(Mode.LINEAR, got[:, :40]), expected)
    # Totals need more bits than sums, but few totals of real inputs do.
    assert not largest or np.abs(got).max() >= 1 << 31


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"elements": 12}, "elements must be a power of two between 4 and 16, not 12"),
        ({"pumps": 3}, "pumps must be an integer from 1 to 2, not 3"),
        ({"steps": 8}, "steps must be at least the elements, 16, not 8"),
        ({"steps": 128}, "steps must be a power of two between 4 and 64, not 128"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PimComputeUnitParameters(**change)
