"""The adder without subnormal numbers: emitted Verilog against SoftFloat and the adder's model."""

import numpy as np
import pytest

from golden.arith.float_add import float_add
from hdl.arith.float_format import BINARY32, FP8_E4M3FN, FP29
from hdl.arith.float_normal_add import FloatNormalAdd
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import chunks, normal_sums, pairs, random_codes, random_near
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, assert_same, canonical

pytestmark = pytest.mark.depends()


def check(a: np.ndarray, b: np.ndarray) -> None:
    """Compare the hardware with SoftFloat."""
    expected = canonical(BINARY32, softfloat("f32_add", a, b))
    assert_same(BINARY32, run_bulk(FloatNormalAdd(), {"a": a, "b": b})["result"], expected, a, b)


def test_all_pairs_of_corners() -> None:
    a, b = normal_sums(BINARY32, *pairs(BINARY32))
    assert len(a) > 90_000
    check(a, b)


@pytest.mark.parametrize("count", COUNTS)
def test_random_pairs(count: int) -> None:
    generator = np.random.default_rng(1)
    for size in chunks(count):
        a = random_codes(BINARY32, size, generator)
        a, b = normal_sums(BINARY32, a, random_near(BINARY32, BINARY32.decode(a), generator))
        assert len(a) > size // 2
        check(a, b)


def test_sums_of_29_bits() -> None:
    """FP29 has no library reference: round the float64 sum and its residue here."""
    generator = np.random.default_rng(3)
    a = random_codes(FP29, 50_000, generator)
    a, b = normal_sums(FP29, a, random_near(FP29, FP29.decode(a), generator))
    # Every second term is half of the other one's last place, which gives a tie.
    half = np.uint64((FP29.mantissa_bits + 1) << FP29.mantissa_bits)
    scale = a & np.uint64(FP29.magnitude_mask & ~FP29.mantissa_mask)
    ties = np.flatnonzero(scale > half)[::2]
    b[ties] = (a[ties] & ~np.uint64(FP29.mantissa_mask)) - half
    a, b = normal_sums(FP29, a, b)
    x, y = FP29.decode(a), FP29.decode(b)
    finite = np.isfinite(x) & np.isfinite(y) & (np.abs(x + y) < 2.0**63)
    a, b, x, y = (values[finite] for values in (a, b, x, y))
    total = x + y
    back = total - x
    left = (x - (total - back)) + (y - back)
    dropped = 52 - FP29.mantissa_bits
    bits = np.abs(total).view(np.uint64)
    low, tie = bits & np.uint64((1 << dropped) - 1), np.uint64(1 << (dropped - 1))
    odd = (bits >> np.uint64(dropped)) & np.uint64(1)
    outwards = left * np.sign(total)
    up = (low > tie) | ((low == tie) & ((outwards > 0) | ((outwards == 0) & (odd == 1))))
    magnitude = (((bits >> np.uint64(dropped)) + up) << np.uint64(dropped)).view(np.float64)
    rounded = np.copysign(magnitude, total)
    assert ((low == tie) & (left == 0)).sum() > 5000
    result = run_bulk(FloatNormalAdd(number_format=FP29), {"a": a, "b": b})["result"]
    assert np.array_equal(FP29.decode(result), rounded)


def test_neutral_element() -> None:
    """A number plus -0 is that number, also for +0 and -0."""
    a = np.array([0, BINARY32.sign_mask, BINARY32.one, BINARY32.infinity], np.uint64)
    b = np.full_like(a, BINARY32.sign_mask)
    result = run_bulk(FloatNormalAdd(), {"a": a, "b": b})["result"]
    assert_same(BINARY32, result, a, a, b)


def test_pipelined() -> None:
    generator = np.random.default_rng(2)
    a = random_codes(BINARY32, 50_000, generator)
    a, b = normal_sums(BINARY32, a, random_near(BINARY32, BINARY32.decode(a), generator))
    units = {f"stages_{stages}": FloatNormalAdd(stages=stages) for stages in (1, 2, 3, 5)}
    results = run_bank(units, {name: {"a": a, "b": b} for name in units})
    for name in units:
        assert_same(BINARY32, results[name]["result"], float_add(BINARY32, a, b), a, b)


def test_paused() -> None:
    a, b = normal_sums(BINARY32, *pairs(BINARY32))
    unit = FloatNormalAdd(stages=3, enable=True)
    result = run_bulk(unit, {"a": a, "b": b}, pauses=1)["result"]
    assert_same(BINARY32, result, float_add(BINARY32, a, b), a, b)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"number_format": FP8_E4M3FN}, "number_format must be a signed IEEE format"),
        ({"stages": -1}, "stages must be an integer from 0 to 64, not -1"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatNormalAdd(**arguments)
