"""The fused multiply-add: model against SoftFloat, emitted Verilog against both."""

import numpy as np
import pytest

from golden.arith.float_fma import float_fma
from hdl.arith.float_fma import FloatFma
from hdl.arith.float_format import BINARY16, BINARY32, FP8_E4M3FN, FloatFormat
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import chunks, corners, random_codes, random_near
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, PARTS, VARIANTS, assert_same, canonical, one_in

pytestmark = pytest.mark.depends()


def hard_triples(
    number_format: FloatFormat, count: int, generator: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Return random factors, and an addend near their product."""
    a, b = (random_codes(number_format, count, generator) for _factor in range(2))
    with np.errstate(invalid="ignore"):
        product = number_format.decode(a) * number_format.decode(b)
    return a, b, random_near(number_format, product, generator)


def check(number_format: FloatFormat, triples: tuple[np.ndarray, ...]) -> None:
    """Compare model and hardware with SoftFloat."""
    expected = canonical(number_format, softfloat(f"f{number_format.width}_mulAdd", *triples))
    assert_same(number_format, float_fma(number_format, *triples), expected, *triples)
    operands = dict(zip("abc", triples, strict=True))
    result = run_bulk(FloatFma(number_format=number_format), operands)["result"]
    assert_same(number_format, result, expected, *triples)


@pytest.mark.parametrize("part", PARTS)
def test_triples_of_corners(part: int) -> None:
    values = corners(BINARY16)
    total = len(values) ** 3
    assert total > 2_000_000
    chosen = one_in(part, total, 1)
    for some in np.array_split(chosen, -(-len(chosen) // 2_000_000)):
        c, b, a = (values[index] for index in np.unravel_index(some, (len(values),) * 3))
        check(BINARY16, (a, b, c))


@pytest.mark.parametrize("count", COUNTS)
def test_random_triples(count: int) -> None:
    generator = np.random.default_rng(2)
    for size in chunks(count):
        check(BINARY16, hard_triples(BINARY16, size, generator))


@pytest.mark.full
def test_binary32() -> None:
    check(BINARY32, hard_triples(BINARY32, 200_000, np.random.default_rng(3)))


@pytest.mark.parametrize("variants", VARIANTS)
def test_saturating_and_pipelined(variants: list[tuple[bool, int]]) -> None:
    triples = hard_triples(BINARY16, 100_000, np.random.default_rng(4))
    operands = dict(zip("abc", triples, strict=True))
    units = {
        f"saturate_{saturate}_stages_{stages}": FloatFma(saturate=saturate, stages=stages)
        for saturate, stages in variants
    }
    results = run_bank(units, dict.fromkeys(units, operands))
    for name, unit in units.items():
        expected = float_fma(BINARY16, *triples, saturate=unit.saturate)
        assert_same(BINARY16, results[name]["result"], expected, *triples)
        if unit.saturate:
            assert np.all((expected & 0x7FFF) <= BINARY16.max_finite)


def test_paused() -> None:
    triples = hard_triples(BINARY16, 50_000, np.random.default_rng(5))
    unit = FloatFma(stages=5, enable=True)
    result = run_bulk(unit, dict(zip("abc", triples, strict=True)), pauses=1)["result"]
    assert_same(BINARY16, result, float_fma(BINARY16, *triples), *triples)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"number_format": FP8_E4M3FN}, "number_format must be a signed IEEE format"),
        ({"saturate": "no"}, "saturate must be one of False, True, not 'no'"),
        ({"stages": 99}, "stages must be an integer from 0 to 64, not 99"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatFma(**arguments)
