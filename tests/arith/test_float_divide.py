"""FP16 division and reciprocal: correct rounding by exact rationals, and the RTL."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arith.float_divide import divide, reciprocal
from hdl.arith.float_divide import FloatDivide, FloatReciprocal, SerialFloatDivide
from hdl.arith.float_format import BINARY16
from testbenches.arith.bank import run_bank

FP16 = np.arange(1 << 16, dtype=np.uint16)

CORNERS = np.array(
    sorted(
        {0, 1, 2, 3, 0x1FF, 0x200, 0x201, 0x3FE, 0x3FF, 0x7BFE, 0x7BFF, 0x7C00, 0x7C01, 0x7E00}
        | {0x7DFF, 0x7FFF}
        | {(exponent << 10) + near for exponent in range(1, 31) for near in (-1, 0, 1)}
        | {(exponent << 10) + 0x155 * (exponent % 4) for exponent in range(1, 31)}
    ),
    np.uint16,
)


def corner_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Return the cross product of the corner cases, each with both signs."""
    signed = np.concatenate([CORNERS, CORNERS | 0x8000])
    a, b = np.meshgrid(signed, signed)
    return a.ravel(), b.ravel()


def random_pairs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random codes, a quarter of them subnormal."""
    pairs = np.random.default_rng(seed).integers(0, 1 << 16, (2, count)).astype(np.uint16)
    pairs[0, : count // 4] &= 0x83FF
    pairs[1, count // 8 : count * 3 // 8] &= 0x83FF
    return pairs[0], pairs[1]


def exact_quotient(a: int, b: int) -> int:
    """Return the quotient by IEEE 754, computed with rationals."""
    sign = (a ^ b) & 0x8000
    if BINARY16.is_nan(a) or BINARY16.is_nan(b):
        return 0x7E00
    infinite_a, infinite_b = BINARY16.is_infinite(a), BINARY16.is_infinite(b)
    zero_a, zero_b = a & 0x7FFF == 0, b & 0x7FFF == 0
    if (infinite_a and infinite_b) or (zero_a and zero_b):
        return 0x7E00
    if infinite_a or zero_b:
        return sign | 0x7C00
    if infinite_b or zero_a:
        return sign
    quotient = abs(Fraction(BINARY16.to_fraction(a)) / BINARY16.to_fraction(b))
    return sign | BINARY16.from_fraction(quotient)


def test_model_is_correctly_rounded() -> None:
    """Test random pairs and a random part of the corner cases."""
    a, b = random_pairs(6000, 1)
    corner_a, corner_b = corner_pairs()
    some = np.random.default_rng(2).integers(0, len(corner_a), 6000)
    a, b = np.concatenate([a, corner_a[some]]), np.concatenate([b, corner_b[some]])
    expected = [exact_quotient(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert np.array_equal(divide(a, b), expected)


def test_reciprocal_model_is_correctly_rounded() -> None:
    """Test all positive numbers; negative ones give negated results."""
    expected = [exact_quotient(BINARY16.one, bits) for bits in range(0x8000)]
    assert np.array_equal(reciprocal(FP16[:0x8000]), expected)
    number = FP16[:0x7C01]
    assert np.array_equal(reciprocal(number | 0x8000), reciprocal(number) | 0x8000)


def test_saturating_mode_has_no_special_values() -> None:
    """x/0 is the largest number, 0/0 is zero, and the largest exponent code is a number."""
    pairs = np.array(
        [[0x3C00, 0], [0xBC00, 0], [0, 0], [0x7BFF, 1], [0x7C00, 0x7800], [0x3C00, 0x7C00]],
        np.uint16,
    )
    results = divide(pairs[:, 0], pairs[:, 1], saturate=True)
    assert results.tolist() == [0x7BFF, 0xFBFF, 0, 0x7BFF, 0x4000, 0x0100]
    a, b = random_pairs(100_000, 3)
    assert (divide(a, b, saturate=True) & 0x7C00 != 0x7C00).all()


def test_rtl_equals_model() -> None:
    """Test reciprocals of all numbers, quotients of all corner cases and 500,000 random pairs."""
    a, b = (
        np.concatenate(parts)
        for parts in zip(corner_pairs(), random_pairs(500_000, 4), strict=True)
    )
    operators = {
        "reciprocal": FloatReciprocal(),
        "reciprocal_saturated": FloatReciprocal(saturate=True, stages=4),
        "quotient": FloatDivide(),
        "quotient_pipelined": FloatDivide(stages=16),
        "quotient_saturated": FloatDivide(saturate=True, stages=5, enable=True),
        "from_one": FloatDivide(divisor_from_one=True),
        "from_one_saturated": FloatDivide(saturate=True, divisor_from_one=True, stages=16),
    }
    operands = {
        name: {"a": a, "b": b} if "b" in operator.signature.members else {"a": FP16}
        for name, operator in operators.items()
    }
    large = (b & 0x7FFF >= BINARY16.one) & (b & 0x7FFF != 0x7C00)
    for name in ("from_one", "from_one_saturated"):
        operands[name] = {"a": a[large], "b": b[large]}
    results = run_bank(operators, operands)
    for name, operator in operators.items():
        model = divide if "b" in operands[name] else reciprocal
        expected = model(*operands[name].values(), saturate=operator.saturate)
        assert np.array_equal(results[name]["result"], expected), name


@pytest.mark.parametrize(("digits", "from_one"), [(1, False), (2, True), (4, False), (13, False)])
def test_serial_divider_equals_the_model(digits: int, from_one: bool) -> None:
    """Test corner cases and random pairs, with and without idle cycles between divisions."""
    unit = SerialFloatDivide(digits=digits, divisor_from_one=from_one)
    a, b = (
        np.concatenate(codes)
        for codes in zip(random_pairs(300, 7), chosen_corners(200), strict=True)
    )
    if from_one:
        b = np.where(b & 0x7FFF < BINARY16.one, b ^ 0x4000, b) | (b & 0x7FFF == 0x7C00)
    quotients = divide(a, b).tolist()
    got: list[int] = []

    async def bench(ctx: Any) -> None:
        for number, (dividend, divisor) in enumerate(zip([*a, 0, 0], [*b, 0, 0], strict=True)):
            ctx.set(unit.a.as_value(), int(dividend))
            ctx.set(unit.b.as_value(), int(divisor))
            cycles = 1
            while ctx.get(unit.busy):
                await ctx.tick()
                cycles += 1
            assert number == 0 or cycles == SerialFloatDivide.cycles(digits)
            if number % 7 == 0:
                await ctx.tick()
            ctx.set(unit.enable, 1)
            await ctx.tick()
            ctx.set(unit.enable, 0)
            if number > 0:
                got.append(ctx.get(unit.result.as_value()))

    simulator = Simulator(unit)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert got[: len(quotients)] == quotients


def chosen_corners(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random pairs of corner cases."""
    a, b = corner_pairs()
    chosen = np.random.default_rng(11).choice(len(a), count, replace=False)
    return a[chosen], b[chosen]
