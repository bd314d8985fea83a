"""Fixed point: the format against exact rationals, the converter against the model."""

from fractions import Fraction

import numpy as np
import pytest

from golden.arith.fixed_point import convert, quantise, to_float
from hdl.arith.fixed_point import FixedPoint, FixedPointConvert
from hdl.arith.rounding import Rounding
from testbenches.arith.step import run_steps

Q6_10 = FixedPoint(integer_bits=6, fraction_bits=10)
UQ1_15 = FixedPoint(integer_bits=1, fraction_bits=15, signed=False)
Q5_1 = FixedPoint(integer_bits=5, fraction_bits=1)


def test_description() -> None:
    assert (Q6_10.width, str(Q6_10), str(UQ1_15)) == (16, "Q6.10", "UQ1.15")
    assert (Q6_10.minimum, Q6_10.maximum) == (-32, 32 - Fraction(1, 1024))
    assert (UQ1_15.minimum, UQ1_15.maximum) == (0, 2 - Fraction(1, 1 << 15))
    # The operand of P3-LLM's weights: -16 to 16 half-units in six bits.
    assert Q5_1.minimum <= -8 and Q5_1.maximum >= 8 and Q5_1.width == 6
    assert Q6_10.show(Q6_10.from_fraction(3)) == "0x0C00 (3.0 in Q6.10)"
    assert Q6_10.show(-1) == "0xFFFF (-0.0009765625 in Q6.10)"


def test_bits_and_raw_values_are_one_to_one() -> None:
    for fixed in (Q5_1, FixedPoint(integer_bits=2, fraction_bits=4, signed=False)):
        raws = [fixed.from_bits(bits) for bits in range(1 << fixed.width)]
        assert [fixed.to_bits(raw) for raw in raws] == list(range(1 << fixed.width))
        assert [fixed.from_fraction(fixed.to_fraction(raw)) for raw in raws] == raws


@pytest.mark.parametrize("rounding", Rounding)
def test_quantiser_is_exact(rounding: Rounding) -> None:
    """Test values in steps of an eighth, far beyond both limits, against the scalar format."""
    values = np.arange(-400, 400) / 16
    for fixed in (Q5_1, FixedPoint(integer_bits=3, fraction_bits=2, signed=False)):
        exact = [fixed.from_fraction(Fraction(float(value)), rounding) for value in values]
        assert list(quantise(values, fixed, rounding)) == exact
        assert list(to_float(np.array(exact), fixed)) == [
            float(fixed.to_fraction(raw)) for raw in exact
        ]


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (Q6_10, Q5_1),
        (Q5_1, Q6_10),
        (Q6_10, UQ1_15),
        (UQ1_15, FixedPoint(integer_bits=0, fraction_bits=8)),
        (Q5_1, Q5_1),
    ],
)
def test_converter(source: FixedPoint, target: FixedPoint, rounding: Rounding) -> None:
    """The RTL equals the model, and the model equals exact conversion."""
    low, high = int(source.minimum / source.resolution), int(source.maximum / source.resolution)
    step = max((high - low) // 400, 1) | 1
    raw = np.concatenate([np.arange(low, high + 1, step), [high, 0, high // 2]])
    result, saturated = convert(raw, source, target, rounding)
    exact = [target.from_fraction(source.to_fraction(int(item)), rounding) for item in raw]
    assert list(result) == exact
    unit = FixedPointConvert(source=source, target=target, rounding=rounding, stages=1)
    rtl = run_steps(unit, {"a": raw})
    assert np.array_equal(rtl["result"], result)
    assert np.array_equal(rtl["saturated"], saturated)


def test_illegal_formats() -> None:
    with pytest.raises(
        ValueError, match=r"integer_bits \+ fraction_bits must be .* 1 to 64, not 0"
    ):
        FixedPoint(integer_bits=0, fraction_bits=0)
    with pytest.raises(ValueError, match=r"a raw value of Q5.1 must be from -32 to 31, not 32"):
        Q5_1.to_fraction(32)
