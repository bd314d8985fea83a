"""Comparison, minimum and maximum: model against SoftFloat, emitted Verilog against the model."""

import numpy as np
import pytest

from golden.arith.float_compare import float_compare, float_extreme
from hdl.arith.float_compare import FloatCompare, FloatExtreme
from hdl.arith.float_format import BINARY16, BINARY32, FP8_S0E4M4, FloatFormat
from hdl.arith.operator import Operator
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import pairs, random_codes
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, assert_same

pytestmark = pytest.mark.depends()

FP16 = np.arange(1 << 16, dtype=np.uint64)


def hard_pairs(
    number_format: FloatFormat, count: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return random codes; a third of the pairs are adjacent, a third differ in sign only."""
    a, b = (random_codes(number_format, count, generator) for _operand in range(2))
    choice = generator.integers(0, 3, count)
    neighbour = (a + generator.integers(0, 3, count, np.uint64)) - np.uint64(1)
    neighbour &= np.uint64((1 << number_format.width) - 1)
    mirrored = a ^ np.uint64(number_format.sign_mask)
    return a, np.select([choice == 0, choice == 1], [neighbour, mirrored], b)


def units(number_format: FloatFormat) -> dict[str, Operator]:
    """Return the comparator and both extremes, each in both modes."""
    return {
        f"{name}_{saturate}": operator
        for saturate in (False, True)
        for name, operator in {
            "compare": FloatCompare(number_format=number_format, saturate=saturate),
            "minimum": FloatExtreme(number_format=number_format, maximum=False, saturate=saturate),
            "maximum": FloatExtreme(number_format=number_format, maximum=True, saturate=saturate),
        }.items()
    }


def check(number_format: FloatFormat, a: np.ndarray, b: np.ndarray) -> None:
    """Compare all units with the model, and the model's order with SoftFloat's."""
    order = float_compare(number_format, a, b)
    name = f"f{number_format.width}"
    assert np.array_equal(order["less"], softfloat(f"{name}_lt_quiet", a, b))
    assert np.array_equal(order["equal"], softfloat(f"{name}_eq", a, b))
    operators = units(number_format)
    results = run_bank(operators, {key: {"a": a, "b": b} for key in operators})
    for unit, outputs in results.items():
        kind, saturate = unit.split("_")
        if kind == "compare":
            expected = float_compare(number_format, a, b, saturate=saturate == "True")
            for relation, values in expected.items():
                assert np.array_equal(outputs[relation], values), (unit, relation)
        else:
            expected = float_extreme(
                number_format, a, b, maximum=kind == "maximum", saturate=saturate == "True"
            )
            assert_same(number_format, outputs["result"], expected, a, b)


@pytest.mark.parametrize("number_format", [BINARY16, BINARY32], ids=["binary16", "binary32"])
def test_all_pairs_of_corners(number_format: FloatFormat) -> None:
    check(number_format, *pairs(number_format))


@pytest.mark.parametrize("count", COUNTS)
def test_random_pairs(count: int) -> None:
    check(BINARY16, *hard_pairs(BINARY16, count // 5, np.random.default_rng(1)))


def test_every_code_with_some_others() -> None:
    for other in (0x0000, 0x8000, 0x0001, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00):
        check(BINARY16, FP16, np.full_like(FP16, other))


def test_model_orders_as_numpy() -> None:
    a, b = hard_pairs(BINARY32, 10_000, np.random.default_rng(2))
    x, y = (BINARY32.decode(codes) for codes in (a, b))
    for maximum, function in ((False, np.minimum), (True, np.maximum)):
        chosen = BINARY32.decode(float_extreme(BINARY32, a, b, maximum=maximum))
        assert np.array_equal(chosen, function(x, y), equal_nan=True)
    zeros = np.array([0x0000, 0x8000]), np.array([0x8000, 0x0000])
    assert list(float_extreme(BINARY16, *zeros, maximum=False)) == [0x8000, 0x8000]
    assert list(float_extreme(BINARY16, *zeros, maximum=True)) == [0x0000, 0x0000]


def test_paused() -> None:
    a, b = hard_pairs(BINARY16, 20_000, np.random.default_rng(3))
    extreme = run_bulk(
        FloatExtreme(maximum=True, stages=2, enable=True), {"a": a, "b": b}, pauses=1
    )
    assert_same(BINARY16, extreme["result"], float_extreme(BINARY16, a, b, maximum=True), a, b)
    order = run_bulk(FloatCompare(stages=1, enable=True), {"a": a, "b": b}, pauses=1)
    for relation, values in float_compare(BINARY16, a, b).items():
        assert np.array_equal(order[relation], values)


@pytest.mark.parametrize(
    ("unit", "arguments", "rule"),
    [
        (FloatCompare, {"number_format": FP8_S0E4M4}, "number_format must be a signed IEEE format"),
        (FloatCompare, {"stages": -1}, "stages must be an integer from 0 to 64, not -1"),
        (FloatExtreme, {"maximum": 2}, "maximum must be one of False, True, not 2"),
        (FloatExtreme, {"maximum": True, "saturate": 5}, "saturate must be one of False, True"),
    ],
)
def test_bad_arguments(unit: type[Operator], arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        unit(**arguments)
