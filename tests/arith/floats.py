"""Common functions of the floating-point tests: comparison of arrays of codes."""

import numpy as np
import pytest

from hdl.arith.float_format import FloatFormat

COUNTS = [
    pytest.param(1_000_000, id="tenth"),
    pytest.param(10_000_000, id="all", marks=pytest.mark.full),
]
"""Number of random operand sets: a tenth by default."""

PARTS = [
    pytest.param(10, id="tenth"),
    pytest.param(1, id="all", marks=pytest.mark.full),
]
"""Reciprocal of the random fraction of a cross product to test."""


VARIANTS = [
    pytest.param([(True, 3), (False, 1), (False, 4)], id="some"),
    pytest.param(
        [(True, 0), (True, 2), *((False, stages) for stages in range(1, 8))],
        id="all",
        marks=pytest.mark.full,
    ),
]
"""Saturation and register ranks of the variants to test together."""


def canonical(number_format: FloatFormat, codes: np.ndarray) -> np.ndarray:
    """Return codes with every NaN replaced by the one that the operators return."""
    wide = codes.astype(np.uint64)
    nan = (wide & np.uint64(number_format.magnitude_mask)) > np.uint64(number_format.infinity or 0)
    return np.where(nan, np.uint64(number_format.quiet_nan or 0), wide)


def assert_same(
    number_format: FloatFormat, result: np.ndarray, expected: np.ndarray, *operands: np.ndarray
) -> None:
    """Require equal codes; report the first difference with its operands."""
    assert len(result) == len(expected) > 0
    wrong = np.flatnonzero(result.astype(np.uint64) != expected.astype(np.uint64))
    if len(wrong):
        first = wrong[0]
        given = ", ".join(f"0x{int(operand[first]):X}" for operand in operands)
        shown, right = (number_format.show(int(codes[first])) for codes in (result, expected))
        raise AssertionError(
            f"{len(wrong)} of {len(result)} differ: ({given}) gave {shown}, not {right}"
        )


def one_in(part: int, count: int, seed: int) -> np.ndarray:
    """Return sorted random indices below `count`, one in `part` of them."""
    if part == 1:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, count // part, replace=False))
