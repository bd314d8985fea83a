"""FP16 to FP32 and back: model against SoftFloat and numpy, emitted Verilog against the model."""

import numpy as np
import pytest

from golden.arith.float_convert import float_convert
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_format import BINARY16, BINARY32, FP8_E4M3FN, FloatFormat
from testbenches.arith.bank import run_bank
from testbenches.arith.bulk import run_bulk
from testbenches.arith.float_operands import chunks, corners, random_codes
from testbenches.arith.softfloat import softfloat
from tests.arith.floats import COUNTS, assert_same, canonical

pytestmark = pytest.mark.depends()

BFLOAT16 = FloatFormat(exponent_bits=8, mantissa_bits=7, bias=127)
FP16 = np.arange(1 << 16, dtype=np.uint64)


def hard_wide(count: int, generator: np.random.Generator) -> np.ndarray:
    """Return FP32 codes: uniform ones, and codes at or next to midpoints of FP16 numbers."""
    halfway = softfloat("f16_to_f32", random_codes(BINARY16, count, generator)).astype(np.int64)
    halfway += generator.choice([0x1000, 0x2000, 0x800000], count)
    halfway += generator.integers(-1, 2, count)
    uniform = random_codes(BINARY32, count, generator).astype(np.int64)
    codes = np.where(generator.integers(0, 4, count) == 0, uniform, halfway)
    return (codes & 0xFFFFFFFF).astype(np.uint64)


def test_every_code_widened() -> None:
    expected = canonical(BINARY32, softfloat("f16_to_f32", FP16))
    assert_same(BINARY32, float_convert(BINARY16, BINARY32, FP16), expected, FP16)
    units = {
        f"saturate_{saturate}_stages_{stages}": FloatConvert(
            source=BINARY16, target=BINARY32, saturate=saturate, stages=stages
        )
        for saturate in (False, True)
        for stages in (0, 1, 2, 3)
    }
    results = run_bank(units, {key: {"a": FP16} for key in units})
    for name, unit in units.items():
        expected = float_convert(BINARY16, BINARY32, FP16, saturate=unit.saturate)
        assert_same(BINARY32, results[name]["result"], expected, FP16)


@pytest.mark.parametrize("count", COUNTS)
def test_narrowed(count: int) -> None:
    generator = np.random.default_rng(1)
    unit = FloatConvert(source=BINARY32, target=BINARY16)
    for size in chunks(count):
        a = np.concatenate([corners(BINARY32), hard_wide(size, generator)])
        expected = canonical(BINARY16, softfloat("f32_to_f16", a))
        assert_same(BINARY16, float_convert(BINARY32, BINARY16, a), expected, a)
        assert_same(BINARY16, run_bulk(unit, {"a": a})["result"], expected, a)


def test_round_trip_preserves_every_code() -> None:
    wide = run_bulk(FloatConvert(source=BINARY16, target=BINARY32), {"a": FP16})["result"]
    back = run_bulk(FloatConvert(source=BINARY32, target=BINARY16), {"a": wide})["result"]
    assert_same(BINARY16, back, canonical(BINARY16, FP16), FP16)


@pytest.mark.parametrize("target", [BINARY16, BFLOAT16], ids=["binary16", "bfloat16"])
def test_narrowed_with_other_parameters(target: FloatFormat) -> None:
    a = np.concatenate([corners(BINARY32), hard_wide(100_000, np.random.default_rng(2))])
    units = {
        f"saturate_{saturate}_stages_{stages}": FloatConvert(
            source=BINARY32, target=target, saturate=saturate, stages=stages
        )
        for saturate, stages in [(True, 0), (True, 2), (False, 1), (False, 2), (False, 3)]
    }
    results = run_bank(units, {key: {"a": a} for key in units})
    for name, unit in units.items():
        expected = float_convert(BINARY32, target, a, saturate=unit.saturate)
        assert_same(target, results[name]["result"], expected, a)


def test_paused() -> None:
    a = hard_wide(20_000, np.random.default_rng(3))
    unit = FloatConvert(source=BINARY32, target=BINARY16, stages=2, enable=True)
    result = run_bulk(unit, {"a": a}, pauses=1)["result"]
    assert_same(BINARY16, result, float_convert(BINARY32, BINARY16, a), a)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"source": FP8_E4M3FN, "target": BINARY16}, "source must be a signed IEEE format"),
        ({"source": BINARY16, "target": FP8_E4M3FN}, "target must be a signed IEEE format"),
        ({"source": BINARY16, "target": BFLOAT16}, "target must be wider or narrower than source"),
        ({"source": BINARY16, "target": BINARY16}, "target must be wider or narrower than source"),
        ({"source": BINARY16, "target": BINARY32, "stages": -2}, "stages must be an integer"),
    ],
)
def test_bad_arguments(arguments: dict, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FloatConvert(**arguments)
