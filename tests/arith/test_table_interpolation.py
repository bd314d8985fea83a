"""Table interpolation: all operands against the model, the model against its definition."""

from fractions import Fraction
from math import floor

import mpmath
import numpy as np
import pytest

from golden.arith.table_interpolation import interpolate
from hdl.arith.table_interpolation import TableInterpolation, exact_breakpoints
from testbenches.arith.bank import run_bank
from testbenches.arith.step import run_steps

RISING = tuple(i * i for i in range(17))
MIXED = (-100, 3, 250, -7, 0, 99, -300, 511, 44)


def test_model_is_the_rounded_line() -> None:
    values = np.arange(8 << 5)
    model = interpolate(values, MIXED, offset_bits=5, guard_bits=3)
    for value, result in zip(values, model, strict=True):
        piece, offset = divmod(int(value), 32)
        line = MIXED[piece] + Fraction((MIXED[piece + 1] - MIXED[piece]) * offset, 32)
        assert result == floor(line / 8 + Fraction(1, 2))


@pytest.mark.parametrize("breakpoints", [RISING, MIXED, tuple(reversed(RISING))])
def test_rtl_equals_model_on_all_operands(breakpoints: tuple[int, ...]) -> None:
    operators = {
        f"stages_{stages}_guard_{guard}": TableInterpolation(
            breakpoints=breakpoints, offset_bits=6, guard_bits=guard, stages=stages
        )
        for stages in (0, 1, 2, 3)
        for guard in (1, 4)
    }
    values = np.arange((len(breakpoints) - 1) << 6)
    results = run_bank(operators, {name: {"a": values} for name in operators})
    for name, operator in operators.items():
        model = interpolate(values, breakpoints, offset_bits=6, guard_bits=operator.guard_bits)
        width = len(operator.result)
        assert np.array_equal(results[name]["result"], model & ((1 << width) - 1)), name


def test_disabled_cycles_hold_all_registers() -> None:
    unit = TableInterpolation(breakpoints=MIXED, offset_bits=4, guard_bits=2, stages=2, enable=True)
    values = np.random.default_rng(1).integers(0, 8 << 4, 60)
    model = interpolate(values, MIXED, offset_bits=4, guard_bits=2)
    assert list(run_steps(unit, {"a": values})["result"]) == list(model)


def test_breakpoints_are_rounded_values() -> None:
    breakpoints = exact_breakpoints(mpmath.exp, pieces=4, width=1, scale=1000)
    assert breakpoints == (1000, 1284, 1649, 2117, 2718)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"breakpoints": (1, 2, 3, 4)},
            "breakpoints must be one more than a power of two .*, not 4",
        ),
        ({"breakpoints": (1, 2)}, "breakpoints must be one more than a power of two .*, not 2"),
        ({"offset_bits": 0}, "offset_bits must be an integer from 1 to 24, not 0"),
        ({"guard_bits": 17}, "guard_bits must be an integer from 1 to 16, not 17"),
    ],
)
def test_rejects_illegal_parameters(change: dict[str, object], message: str) -> None:
    arguments: dict = {"breakpoints": RISING, "offset_bits": 4, "guard_bits": 2} | change
    with pytest.raises(ValueError, match=message):
        TableInterpolation(**arguments)
