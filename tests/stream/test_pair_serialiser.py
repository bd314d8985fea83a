"""Rows come apart into pairs, and rows are made of items, whatever the pauses."""

import random

import pytest

from hdl.stream.pair_serialiser import PairSerialiser
from hdl.stream.row_collector import RowCollector
from testbenches.stream_trial import run_streams


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("busy", [1.0, 0.5])
def test_pairs_are_neighbours(seed: int, busy: float) -> None:
    rng = random.Random(seed)
    pairs = rng.randint(2, 5)
    rows, expected = [], []
    for _ in range(12):
        numbers = [rng.randrange(1 << 32) for _ in range(pairs)]
        tag, last = rng.randrange(2), rng.randrange(2)
        packed = sum(number << 32 * place for place, number in enumerate(numbers))
        rows.append(packed | (tag | last << 1) << 32 * pairs)
        for place, number in enumerate(numbers):
            ends = last and place == pairs - 1
            expected.append(number | (tag | ends << 1) << 32)
    got = run_streams(
        PairSerialiser(pairs=pairs), {"rows": rows}, {"pairs": len(expected)}, seed=seed, busy=busy
    )
    assert got["pairs"] == expected


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("busy", [1.0, 0.5])
def test_items_become_rows(seed: int, busy: float) -> None:
    rng = random.Random(seed)
    width, count = rng.randint(1, 33), rng.randint(2, 6)
    items, expected = [], []
    for _ in range(12):
        numbers = [rng.randrange(1 << width) for _ in range(count)]
        last = rng.randrange(2)
        items += [
            number | (last and place == count - 1) << width for place, number in enumerate(numbers)
        ]
        packed = sum(number << width * place for place, number in enumerate(numbers))
        expected.append(packed | last << width * count)
    unit = RowCollector(width=width, items=count)
    got = run_streams(unit, {"items": items}, {"rows": len(expected)}, seed=seed, busy=busy)
    assert got["rows"] == expected


def test_rows_cost_no_cycle() -> None:
    """A row follows the one before without a pause: as many cycles as pairs, and one more."""
    cycles = 0

    def count(ctx: object) -> None:
        nonlocal cycles
        cycles += 1

    unit = PairSerialiser(pairs=4)
    run_streams(unit, {"rows": [1, 2, 3]}, {"pairs": 12}, seed=0, busy=1.0, cycle=count)
    assert cycles == 12 + 1 + 19


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PairSerialiser(pairs=1), "pairs must be an integer from 2 to 4096, not 1"),
        (lambda: RowCollector(width=0, items=4), "width must be an integer from 1 to 64, not 0"),
        (lambda: RowCollector(width=8, items=1), "items must be an integer from 2 to 4096, not 1"),
    ],
)
def test_illegal_parameters_are_worded(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
