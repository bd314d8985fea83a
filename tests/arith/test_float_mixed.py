"""FP16 factors and an FP32 addend: model against SoftFloat, emitted Verilog against both."""

import numpy as np
import pytest

from golden.arith.float_mixed import float_mixed
from hdl.arith.float_format import BINARY16, BINARY32, FP8_E4M3FN, FloatFormat
from hdl.arith.float_mixed import FloatMixed
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import chunks, corners, random_codes, random_near
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, VARIANTS, assert_same, canonical, one_in

pytestmark = pytest.mark.depends()


def hard_triples(count: int, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return random factors, and an addend near their product."""
    a, b = (random_codes(BINARY16, count, generator) for _factor in range(2))
    with np.errstate(invalid="ignore"):
        product = BINARY16.decode(a) * BINARY16.decode(b)
    return a, b, random_near(BINARY32, product, generator)


def check(triples: tuple[np.ndarray, ...]) -> None:
    """Compare model and hardware with SoftFloat: its FP32 operation on widened factors."""
    a, b, c = triples
    widened = (softfloat("f16_to_f32", factor) for factor in (a, b))
    expected = canonical(BINARY32, softfloat("f32_mulAdd", *widened, c))
    assert_same(BINARY32, float_mixed(BINARY16, BINARY32, *triples), expected, *triples)
    result = run_bulk(FloatMixed(), {"a": a, "b": b, "c": c})["result"]
    assert_same(BINARY32, result, expected, *triples)


@pytest.mark.parametrize(
    "part",
    [pytest.param(20, id="tenth"), pytest.param(2, id="all", marks=pytest.mark.full)],
)
def test_triples_of_corners(part: int) -> None:
    factors, addends = corners(BINARY16), corners(BINARY32)
    shape = (len(factors), len(factors), len(addends))
    chosen = one_in(part, int(np.prod(shape)), 1)
    assert len(chosen) * part > 2_000_000
    for some in np.array_split(chosen, -(-len(chosen) // 2_000_000)):
        a, b, c = np.unravel_index(some, shape)
        check((factors[a], factors[b], addends[c]))


@pytest.mark.parametrize("count", COUNTS)
def test_random_triples(count: int) -> None:
    generator = np.random.default_rng(2)
    for size in chunks(count):
        check(hard_triples(size, generator))


def test_tiny_factors() -> None:
    """Test products of two subnormals, with addends of similar magnitude."""
    generator = np.random.default_rng(3)
    bits = generator.integers(1, 11, (2, 200_000))
    a, b = (generator.integers(0, 1 << 10, 200_000) >> (10 - few) for few in bits)
    a |= generator.integers(0, 2, 200_000) << 15
    product = BINARY16.decode(a) * BINARY16.decode(b)
    check((a.astype(np.uint64), b.astype(np.uint64), random_near(BINARY32, product, generator)))


@pytest.mark.parametrize("variants", VARIANTS)
def test_saturating_and_pipelined(variants: list[tuple[bool, int]]) -> None:
    triples = hard_triples(100_000, np.random.default_rng(4))
    operands = dict(zip("abc", triples, strict=True))
    units = {
        f"saturate_{saturate}_stages_{stages}": FloatMixed(saturate=saturate, stages=stages)
        for saturate, stages in variants
    }
    results = run_bank(units, dict.fromkeys(units, operands))
    for name, unit in units.items():
        expected = float_mixed(BINARY16, BINARY32, *triples, saturate=unit.saturate)
        assert_same(BINARY32, results[name]["result"], expected, *triples)
        if unit.saturate:
            assert np.all((expected & 0x7FFFFFFF) <= BINARY32.max_finite)


def test_paused() -> None:
    triples = hard_triples(50_000, np.random.default_rng(5))
    unit = FloatMixed(stages=3, enable=True)
    result = run_bulk(unit, dict(zip("abc", triples, strict=True)), pauses=1)["result"]
    assert_same(BINARY32, result, float_mixed(BINARY16, BINARY32, *triples), *triples)


NARROW = FloatFormat(exponent_bits=8, mantissa_bits=7, bias=127)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"factor_format": FP8_E4M3FN}, "factor_format must be a signed IEEE format"),
        ({"sum_format": FP8_E4M3FN}, "sum_format must be a signed IEEE format"),
        ({"sum_format": NARROW}, "every product of two factors must be exact and normal"),
        ({"sum_format": BINARY16}, "every product of two factors must be exact and normal"),
        ({"stages": "3"}, "stages must be an integer from 0 to 64, not '3'"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatMixed(**arguments)
