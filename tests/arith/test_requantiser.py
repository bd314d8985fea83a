"""The requantiser and its model against exact fractions."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from hypothesis import given
from hypothesis import strategies as st

from golden.arith.requantiser import requantised, scale_and_shift
from hdl.arith.requantiser import Requantiser
from hdl.target import Target, writing_for

VALUES = st.one_of(
    st.integers(-(1 << 47), (1 << 47) - 1),
    st.integers(-(1 << 17), 1 << 17),
    st.sampled_from([-(1 << 47), (1 << 47) - 1, 0, -1, 1]),
)


def exact(value: int, scale: int, shift: int) -> int:
    """Return the result computed with fractions, which Python rounds half to even."""
    return max(-(1 << 15), min((1 << 15) - 1, round(Fraction(value * scale, 1 << shift))))


@given(VALUES, st.integers(0, 65535), st.integers(0, 63))
def test_model_is_the_rounded_fraction(value: int, scale: int, shift: int) -> None:
    assert requantised(np.array(value), scale, shift) == exact(value, scale, shift)


@given(st.integers(-(1 << 15), 1 << 15), st.integers(1, 30))
def test_ties_resolve_to_even(half: int, shift: int) -> None:
    value = (2 * half + 1) << shift - 1
    assert requantised(np.array(value), 1, shift) == exact(value, 1, shift)


@given(st.floats(1e-12, 60000.0))
def test_scale_and_shift_are_nearest(factor: float) -> None:
    scale, shift = scale_and_shift(factor)
    assert 1 << 15 <= scale < 1 << 16
    assert abs(scale / 2.0**shift - factor) <= factor * 2.0**-16


@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_rejects_factors_that_are_not_positive(factor: float) -> None:
    with pytest.raises(ValueError, match="factor must be positive, not"):
        scale_and_shift(factor)


@pytest.mark.parametrize("factor", [1e6, 1e-20])
def test_rejects_factors_out_of_range(factor: float) -> None:
    with pytest.raises(ValueError, match=r"factor must be 2\*\*-48 to 2\*\*16, not"):
        scale_and_shift(factor)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 49}, "width must be an integer from 16 to 48, not 49"),
        ({"scale_width": 0}, "scale_width must be an integer from 1 to 16, not 0"),
        ({"scale_width": 1, "stages": 6}, "scale_width must be an integer from 2 to 16, not 1"),
    ],
)
def test_rejects_illegal_widths(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Requantiser(**arguments)


@pytest.mark.parametrize(
    ("stages", "target"),
    [
        (0, Target.ASIC),
        (1, Target.FPGA),
        (3, Target.FPGA),
        (5, Target.ASIC),
        (6, Target.ASIC),
        (8, Target.FPGA),
    ],
)
def test_unit_equals_its_model(stages: int, target: Target) -> None:
    unit = Requantiser(stages=stages)
    rng = np.random.default_rng(stages)
    count = 400
    values = rng.integers(-(1 << 47), 1 << 47, count) >> rng.integers(0, 47, count)
    scales, shifts = rng.integers(0, 1 << 16, count), rng.integers(0, 64, count)
    # A third of the products are ties.
    ties = rng.random(count) < 0.33
    shifts[ties] = rng.integers(1, 16, ties.sum())
    scales[ties] = 1
    values[ties] = (2 * rng.integers(-300, 300, ties.sum()) + 1) << shifts[ties] - 1
    expected = requantised(values, scales, shifts)

    async def bench(context: Any) -> None:
        got = []
        for i in range(count + stages):
            item = min(i, count - 1)
            context.set(unit.a, int(values[item]))
            context.set(unit.scale, int(scales[item]))
            context.set(unit.shift, int(shifts[item]))
            if stages:
                if i >= stages:
                    got.append(context.get(unit.result))
                await context.tick()
            else:
                await context.delay(1e-9)
                got.append(context.get(unit.result))
        assert got == expected.tolist()

    with writing_for(target):
        simulator = Simulator(unit)
    if stages:
        simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
