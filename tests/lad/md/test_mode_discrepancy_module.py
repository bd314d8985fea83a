"""MD module: a step computed position by position, the paper's example, real decoding."""

import re
from typing import Any

import numpy as np
import pytest

from golden.arith.float_values import codes, values
from golden.lad.md.mode_discrepancy_module import Positions, discrepancies
from golden.lad.vpu.vector_processing_unit import dot_product
from hdl.catalog import entry_named
from hdl.emit import Emission
from hdl.lad.interval_table import EIGHT, FIVE
from hdl.lad.md.md_parameters import ModeDiscrepancyModuleParameters
from hdl.lad.md.mode_discrepancy_module import ModeDiscrepancyModule
from testbenches.lad.md.tb_mode_discrepancy_module import random_steps
from testbenches.lad.vectors import head_vectors
from testbenches.lint import lint_unit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 9}, "lanes must be an integer from 1 to 8, not 9"),
        ({"table": 5}, "table must be an IntervalTable, not 5"),
    ],
)
def test_illegal_parameters_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ModeDiscrepancyModuleParameters(**change)


def test_vector_units_can_be_outside() -> None:
    p = entry_named("mode_discrepancy_module").parameters("tiny")
    unit = ModeDiscrepancyModule(parameters=p, shared=True)
    emission = Emission(top=unit, name="shared")
    assert any(port.name.startswith("units_1_") for port in emission.modules[-1].ports)
    assert not lint_unit("shared", emission)


def one_by_one(step: Any, table: Any) -> list[tuple[Any, ...]]:
    """Return mode, count, counters and update of each position, as described in the paper."""
    results = []
    lowers = values(np.array(table.lowers))
    before = step.before
    for j in range(len(step.position)):
        s = np.float16(values(dot_product(step.query, step.keys[j])))
        with np.errstate(invalid="ignore", over="ignore"):
            x = s - np.uint16(step.maximum).view(np.float16)
        interval = sum(bool(low < x) for low in lowers)
        counters = [int(count) for count in before.counters[j]]
        mode = int(before.mode[j])
        if before.recent[j]:
            counters[interval] = min(counters[interval] + 1, 4095)
            if before.graduates[j]:
                results.append((interval, counters[interval], counters, True))
            else:
                results.append((0, 0, counters, False))
            continue
        counters[mode] = int(before.count[j])
        counters[interval] = min(counters[interval] + 1, 4095)
        update = interval != mode and counters[interval] > counters[mode]
        mode = interval if update else mode
        results.append((mode, counters[mode], counters, update))
    return results


@pytest.mark.parametrize("table", [FIVE, EIGHT])
def test_every_position_by_itself_agrees(table: Any) -> None:
    p = ModeDiscrepancyModuleParameters(table=table, slots=64)
    rng = np.random.default_rng(9)
    for step in (step for _ in range(6) for step in random_steps(p, rng)):
        got = discrepancies(step.query, step.keys, step.maximum, step.before, table=table)
        for j, (mode, count, counters, update) in enumerate(one_by_one(step, table)):
            assert (got.mode[j], got.count[j], bool(got.update[j])) == (mode, count, update)
            assert got.counters[j].tolist() == counters


def test_the_paper_s_example() -> None:
    """Figure 3: a difference of -5.34 with mode 1 is in interval 2."""
    before = Positions(
        np.array([1]),
        np.array([9]),
        np.array([[0, 3, 2, 0, 0]]),
        np.zeros(1, bool),
        np.zeros(1, bool),
    )
    key = codes(np.array([[-5.34, 0.0]]))
    got = discrepancies(codes(np.array([1.0, 0])), key, 0, before, table=FIVE)
    assert got.interval.tolist() == [2]
    assert (got.mode.tolist(), got.count.tolist(), got.update.tolist()) == ([1], [9], [False])
    assert got.counters.tolist() == [[0, 9, 3, 0, 0]]
    lines = [values(np.array(line)) for line in (FIVE.a, FIVE.b)]
    assert values(got.alpha)[0] == pytest.approx(lines[0][2] - lines[0][1], rel=2.0**-10)
    assert values(got.beta)[0] == pytest.approx(lines[1][2] - lines[1][1], rel=2.0**-10)
    assert values(got.alpha_score)[0] == pytest.approx(values(got.alpha)[0] * -5.34, rel=2.0**-9)


def test_a_false_positive_changes_nothing_but_its_count() -> None:
    before = Positions(
        np.array([4]), np.array([7]), np.zeros((1, 5), int), np.zeros(1, bool), np.zeros(1, bool)
    )
    got = discrepancies(codes(np.array([1.0])), codes(np.array([[-0.5]])), 0, before, table=FIVE)
    assert (got.mode[0], got.count[0], bool(got.update[0])) == (4, 8, False)
    assert (got.alpha[0], got.beta[0], got.alpha_score[0] & 0x7FFF) == (0, 0, 0)


def test_counters_add_up_to_a_position_s_age_in_real_decoding() -> None:
    """With all positions active in every step of SmolLM2's decoding, nothing is counted twice."""
    queries, keys = (head_vectors(name, 64) for name in "qk")
    queries = codes(values(queries) / 8)
    steps, size = 60, 40
    counters = np.zeros((steps, 5), np.int64)
    mode, count = np.zeros(steps, np.int64), np.zeros(steps, np.int64)
    for step in range(size):
        n = step + 1
        there = np.arange(n)
        recent, graduates = there >= n - 16, there == n - 16
        scores = dot_product(queries[step], keys[:n])
        maximum = int(codes(values(scores).max()))
        before = Positions(mode[:n], count[:n], counters[:n], recent, graduates)
        got = discrepancies(queries[step], keys[:n], maximum, before, table=FIVE)
        mode[:n], count[:n], counters[:n] = got.mode, got.count, got.counters
        assert np.array_equal(counters[:n].sum(axis=1), n - there)
        old = ~recent | graduates
        assert np.array_equal(count[:n][old], counters[there, mode[:n]][old])
