"""The floating-point adder tree: the order of additions, and the emitted Verilog."""

import numpy as np
import pytest

from golden.arith.float_add import float_add
from golden.arith.float_tree import float_tree
from hdl.arith.float_format import BINARY16, BINARY32, FP8_E4M3FN, FloatFormat
from hdl.arith.float_tree import FloatTree
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import corners, random_codes


def packed(number_format: FloatFormat, terms: np.ndarray) -> np.ndarray:
    """Convert rows of codes to rows of little-endian 32-bit words."""
    rows, count = terms.shape
    codes = terms.astype(f"<u{number_format.width // 8}")
    padding = -count * codes.itemsize % 4 // codes.itemsize
    return np.ascontiguousarray(np.pad(codes, [(0, 0), (0, padding)])).view("<u4").reshape(rows, -1)


def hard_terms(number_format: FloatFormat, rows: int, count: int) -> np.ndarray:
    """Return numbers of similar magnitude, which round at every level, and corner cases."""
    generator = np.random.default_rng(count)
    near_one = number_format.one + generator.integers(-(1 << 13), 1 << 10, (rows, count))
    signs = generator.integers(0, 2, (rows, count)) * number_format.sign_mask
    rows_of_corners = generator.choice(corners(number_format), (rows // 4, count))
    anything = random_codes(number_format, rows // 4 * count, generator).reshape(-1, count)
    return np.concatenate([(near_one | signs).astype(np.uint64), rows_of_corners, anything])


def operand(number_format: FloatFormat, terms: np.ndarray) -> np.ndarray:
    """Return the terms in the format of the bulk program."""
    words = packed(number_format, terms)
    if terms.shape[1] * number_format.width > 64:
        return words
    wide = np.pad(words, [(0, 0), (0, 2 - words.shape[1])]).astype(np.uint64)
    return wide[:, 0] | (wide[:, 1] << np.uint64(32))


@pytest.mark.parametrize(
    ("number_format", "terms", "stages", "saturate"),
    [
        (BINARY16, 2, 0, False),
        (BINARY16, 3, 2, False),
        (BINARY16, 7, 3, True),
        (BINARY16, 9, 8, False),
        (BINARY16, 16, 4, False),
        (BINARY32, 6, 0, False),
        (BINARY32, 3, 4, False),
    ],
)
def test_hardware(number_format: FloatFormat, terms: int, stages: int, saturate: bool) -> None:
    values = hard_terms(number_format, 8000, terms)
    unit = FloatTree(number_format=number_format, terms=terms, stages=stages, saturate=saturate)
    result = run_bulk(unit, {"terms": operand(number_format, values)})["result"]
    assert np.array_equal(result, float_tree(number_format, values, saturate=saturate))


def test_paused() -> None:
    values = hard_terms(BINARY16, 4000, 6)
    unit = FloatTree(terms=6, stages=4, enable=True)
    result = run_bulk(unit, {"terms": operand(BINARY16, values)}, pauses=1)["result"]
    assert np.array_equal(result, float_tree(BINARY16, values))


def test_order_of_eight_and_of_five() -> None:
    def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return float_add(BINARY16, a, b)

    t = list(hard_terms(BINARY16, 2000, 8).T)
    eight = add(add(add(t[0], t[1]), add(t[2], t[3])), add(add(t[4], t[5]), add(t[6], t[7])))
    assert np.array_equal(float_tree(BINARY16, np.stack(t, -1)), eight)
    five = add(add(add(t[0], t[1]), add(t[2], t[3])), t[4])
    assert np.array_equal(float_tree(BINARY16, np.stack(t[:5], -1)), five)
    serial = t[0]
    for term in t[1:]:
        serial = add(serial, term)
    assert not np.array_equal(eight, serial)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"terms": 1}, "terms must be an integer from 2 to 1024, not 1"),
        ({"terms": 2.0}, "terms must be an integer from 2 to 1024, not 2.0"),
        ({"terms": 4, "number_format": FP8_E4M3FN}, "number_format must be a signed IEEE format"),
        ({"terms": 4, "stages": 65}, "stages must be an integer from 0 to 64, not 65"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatTree(**arguments)
