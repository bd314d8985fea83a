"""The references for P3-LLM's processing element compute the specified results."""

from typing import Any

import numpy as np
from amaranth.sim import Simulator

from golden.arith.bitmod_fp4 import SPECIALS, code_table
from synth.reference.mixed_elements import BITMOD_LANES, GUARD, BitmodElement, MantElement

CYCLES = 600


def run(unit: Any, cycles: list[dict[str, Any]], latency: int, signal: Any) -> list[int]:
    """Return the output for the operands of every cycle."""
    seen = []

    async def bench(ctx) -> None:
        for given in [*cycles, *[{"valid": 0}] * latency]:
            for name, value in given.items():
                ctx.set(getattr(unit, name), value)
            await ctx.tick()
            seen.append(ctx.get(signal))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen[latency - 1 : latency - 1 + len(cycles)]


def test_mant_is_exact() -> None:
    rng = np.random.default_rng(1)
    given, expected, total = [], [], 0
    for cycle in range(CYCLES):
        inputs, codes = rng.integers(-128, 128, 2), rng.integers(0, 16, 2)
        if cycle % 50 == 0:
            inputs[:] = -128
        coefficient = int(rng.integers(0, 128))
        valid, first = bool(rng.random() < 0.8), bool(cycle == 0 or rng.random() < 0.1)
        weights = (1 - 2 * (codes >> 3)) * (coefficient * (codes & 7) + (1 << (codes & 7)))
        if valid or cycle == 0:
            total = (0 if first else total) + int((inputs * weights).sum())
        given.append(
            {
                "inputs": inputs.tolist(),
                "codes": codes.tolist(),
                "coefficient": coefficient,
                "valid": valid or cycle == 0,
                "first": first,
            }
        )
        expected.append(total)
    unit = MantElement()
    assert run(unit, given, 3, unit.sum) == expected


def aligned(numbers: np.ndarray, signs: np.ndarray, powers: np.ndarray, some: np.ndarray) -> float:
    """Return the sum of terms, each cut below the largest exponent's last bits."""
    values = numbers.astype(np.float64) * np.exp2(powers) * (1 - 2 * signs) * some
    # Of a subnormal number it is that of the smallest normal one.
    exponents = np.maximum(np.frexp(numbers.astype(np.float64))[1] - 1, -14) + powers
    largest = max((e for e, there in zip(exponents, some, strict=True) if there), default=0)
    step = np.exp2(largest - 10.0 - GUARD)
    return float((np.trunc(values / step) * step).sum())


def test_bitmod_is_rounded_once_a_sum() -> None:
    rng = np.random.default_rng(2)
    given, expected, total = [], [], np.float32(0)
    for cycle in range(CYCLES):
        spread = np.exp2(rng.integers(-20, 10, BITMOD_LANES) if cycle % 3 else 0)
        numbers = (rng.normal(size=BITMOD_LANES) * spread).astype(np.float16)
        signs, powers = rng.integers(0, 2, BITMOD_LANES), rng.integers(0, 5, BITMOD_LANES)
        some = rng.random(BITMOD_LANES) < 0.8
        first = cycle == 0 or bool(rng.random() < 0.1)
        terms = [
            {"some": bool(s), "sign": int(n), "power": int(p)}
            for s, n, p in zip(some, signs, powers, strict=True)
        ]
        given.append(
            {
                "inputs": numbers.view(np.uint16).tolist(),
                "terms": terms,
                "valid": 1,
                "first": first,
            }
        )
        own = np.float32(aligned(numbers, signs, powers, some))
        total = own + (np.float32(0) if first else total)
        expected.append(int(total.view(np.uint32)) if total else 0)
    unit = BitmodElement()
    seen = run(unit, given, 4, unit.sum.as_value())
    assert [bits & (1 << 31) - 1 and bits for bits in seen] == expected


def test_a_bitmod_weight_is_two_terms() -> None:
    """So that four lanes do two multiply-adds a cycle."""
    for select in range(len(SPECIALS)):
        for half_units in np.abs(code_table(select).astype(int)).tolist():
            assert half_units.bit_count() <= 2
            assert half_units < 1 << 5
