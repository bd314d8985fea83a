"""APID module: the model against float64 and the paper's example; bounds; parameters."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from golden.arith.float_values import codes, values
from golden.lad.apid.active_position_module import exact_interval, identify
from golden.llm import open_trace
from hdl.lad.apid.apid_parameters import ActivePositionModuleParameters
from hdl.lad.interval_table import EIGHT, FIVE, TWELVE, IntervalTable
from testbenches.lad.vectors import LAYERS, TOKENS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 0}, "lanes must be an integer from 1 to 32, not 0"),
        ({"slots": 1}, "slots must be an integer from 2 to 65536, not 1"),
        ({"table": None}, "table must be an IntervalTable, not None"),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ActivePositionModuleParameters(**change)


@pytest.mark.parametrize(
    ("lowers", "message"),
    [((0xBC00, 0xC200), "lower bounds must ascend"), ((), "the number of intervals must be")],
)
def test_illegal_tables_are_rejected(lowers: tuple[int, ...], message: str) -> None:
    lines = tuple([0] * (len(lowers) + 1))
    with pytest.raises(ValueError, match=message):
        IntervalTable(lowers=lowers, a=lines, b=lines)


@pytest.mark.parametrize("table", [FIVE, EIGHT, TWELVE])
def test_lines_are_those_of_least_squares(table: IntervalTable) -> None:
    """Compare with a fit over a fine grid, which is independent of integrals."""
    bounds = [*values(np.array(table.lowers)), 0.0]
    assert (table.a[0], table.b[0]) == (0, 0)
    for index, (low, high) in enumerate(pairwise(bounds), start=1):
        x = np.linspace(low, high, 20001)
        slope, intercept = np.polyfit(x, np.exp(x), 1)
        assert values(table.a[index]) == pytest.approx(slope, rel=2.0**-10, abs=2.0**-24)
        assert values(table.b[index]) == pytest.approx(intercept, rel=2.0**-10, abs=2.0**-24)


def test_codes_of_the_paper_s_intervals() -> None:
    assert FIVE.a == (0x0000, 0x1004, 0x2313, 0x30C8, 0x38FA)
    assert FIVE.b == (0x0000, 0x1CA4, 0x2CFD, 0x3753, 0x3B8B)


def test_the_paper_s_example() -> None:
    """Figure 3: -5.34 is in interval 2, hence active with mode 1; -7.95 is in interval 1."""
    scores, modes = codes(np.array([-5.34, -7.95, 0.0])), np.array([1, 1, 4])
    found = identify(scores, 0, modes, np.zeros(3, int), table=FIVE, recent=1)
    assert found.active.tolist() == [True, False, True]
    assert exact_interval(values(scores), FIVE).tolist() == [2, 1, 4]


def test_a_bound_belongs_to_the_interval_below() -> None:
    for index, bound in enumerate(FIVE.lowers):
        scores = np.array([bound, bound, 0])
        modes = np.array([index, index + 1, 4])
        found = identify(scores, 0, modes, np.zeros(3, int), table=FIVE, recent=1)
        assert found.active[:2].tolist() == [False, True]


def test_scores_beyond_all_bounds_are_in_outer_intervals() -> None:
    for code, mode, active in (
        (0xFC00, 0, False),
        (0x7C00, 4, False),
        (0x4900, 4, False),
        (0x7E00, 0, True),
        (0x7E00, 4, True),
        (0xFC00, 4, True),
    ):
        found = identify([code, 0], 0, [mode, 0], [0, 0], table=FIVE, recent=1)
        assert bool(found.active[0]) is active, hex(code)


def test_decisions_on_real_scores_are_float64_s() -> None:
    """Compare FP16 scores with float64; only scores within one rounding of a bound may differ."""
    trace = open_trace(text="prose", tokens=TOKENS, layers=LAYERS)
    rng = np.random.default_rng(5)
    wrong = 0
    for layer in LAYERS:
        row = codes(trace.attention_trace(layer, 1).scores[-1])
        maximum = int(codes(values(row).max()))
        modes = rng.integers(0, 8, TOKENS)
        found = identify(row, maximum, modes, np.zeros(TOKENS, int), table=EIGHT, recent=16)
        exact = exact_interval(values(row) - values(maximum), EIGHT) != modes
        exact[-16:] = True
        difference = values(row) - values(maximum)
        near = np.abs(difference[:, None] - values(np.array(EIGHT.lowers))) < 2.0**-7
        assert not np.any((found.active != exact) & ~near.any(axis=1))
        wrong += int(np.sum(found.active != exact))
    assert wrong <= 2
