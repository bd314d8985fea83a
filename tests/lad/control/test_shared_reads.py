"""Shared reads: the model against its description, and the parameters' rules."""

import re
from typing import Any

import numpy as np
import pytest

from golden.lad.control.shared_reads import Turns, answer, answers
from hdl.lad.control.shared_reads import SharedReadsParameters

TINY: dict[str, Any] = {
    "request_bits": 6,
    "answer_bits": 8,
    "tiles": 3,
    "waiting": 3,
    "parts": 4,
    "step": 2,
}


@pytest.mark.parametrize(("amount", "parts"), [(1, 1), (3, 1), (4, 2), (6, 2), (7, 3)])
def test_an_answer_has_a_part_for_each_step_that_was_begun(amount: int, parts: int) -> None:
    given = answer((9, amount), 1, 0, step=3, bits=70)
    assert len(given) == len(set(given)) == parts
    assert all(0 <= part < 1 << 70 for part in given)
    assert max(part.bit_length() for part in answer((9, 60), 1, 0, step=1, bits=70)) > 64


def test_no_two_answers_are_equal() -> None:
    """Answers to equal requests differ by tile and number."""
    reads = [(5, 4), (5, 4), (6, 4)]
    given = [answers(reads, tile, step=1, bits=64) for tile in range(2)]
    every = [part for tile in given for parts in tile for part in parts]
    assert len(set(every)) == len(every) == 2 * 3 * 4


def test_arbiter_passes_over_tiles_without_request() -> None:
    turns = Turns(4)
    asking = [True, False, True, True]
    assert [turns.cycle(asking, True) for _ in range(5)] == [0, 2, 3, 0, 2]
    # The search begins after the last tile granted, not at the first tile.
    assert turns.cycle([True, True, False, False], True) == 0
    assert turns.cycle([False] * 4, True) is None
    assert turns.cycle([True, True, False, False], True) == 1


def test_grant_is_held_until_accepted() -> None:
    turns = Turns(3)
    assert turns.cycle([False, False, True], False) is None
    assert turns.cycle([True, True, True], False) is None
    assert turns.cycle([True, True, True], True) == 2
    assert turns.cycle([True, True, True], True) == 0


def test_no_tile_is_passed_over_twice() -> None:
    """With permanent requests of any tiles: between two grants of one, every other is granted."""
    rng = np.random.default_rng(1)
    turns, asking = Turns(5), [True] * 5
    passed: list[dict[int, int]] = [{} for _ in range(5)]
    for _ in range(2000):
        served = turns.cycle(asking, bool(rng.random() < 0.6))
        if served is not None:
            for tile in range(5):
                if asking[tile] and tile != served:
                    passed[tile][served] = passed[tile].get(served, 0) + 1
                    assert passed[tile][served] < 2
            passed[served] = {}
            asking[served] = False
        # A tile requests until it is served.
        asking = [ask or bool(rng.random() < 0.5) for ask in asking]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tiles": 1}, "tiles must be an integer from 2 to 16, not 1"),
        ({"waiting": 0}, "waiting must be an integer from 1 to 1024, not 0"),
        ({"parts": 0}, "parts must be an integer from 1 to 65536, not 0"),
        ({"step": 65}, "step must be an integer from 1 to 64, not 65"),
        ({"request_bits": 65}, "request_bits must be an integer from 1 to 64, not 65"),
        ({"answer_bits": 0}, "answer_bits must be an integer from 1 to 16384, not 0"),
        (
            {"waiting": 1024, "parts": 1025},
            "waiting * parts must be at most 1048576, not 1049600",
        ),
    ],
)
def test_illegal_parameters_are_rejected(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SharedReadsParameters(**TINY | changes)


def test_amounts_and_tiles_have_the_bits_that_they_need() -> None:
    p = SharedReadsParameters(**TINY)
    assert p.asked_layout.const({"item": 63, "amount": 8}).as_value().value == 63 | 8 << 6
    assert p.request_layout.const({"item": 63, "tile": 2}).as_value().value == 63 | 2 << 6
    assert (p.asked_layout.size, p.request_layout.size) == (10, 8)
