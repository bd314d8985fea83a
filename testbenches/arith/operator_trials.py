"""Trials of single operators: many operands within each contract, and the results of the model.

Inside a unit an operator receives the unit's operands, of which few are hard. A trial covers the
whole contract: corner cases, numbers that cancel or tie, random numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from golden.arith.float_add import float_add
from golden.arith.float_compare import float_compare, float_extreme
from golden.arith.float_convert import float_convert
from golden.arith.float_divide import divide, reciprocal
from golden.arith.float_exp import exp
from golden.arith.float_multiply import float_multiply
from golden.arith.float_round import encode, read
from golden.arith.float_sqrt import reciprocal_sqrt, sqrt
from golden.arith.float_to_fixed import float_to_fixed
from golden.arith.integer_to_float import integer_to_float
from golden.arith.requantiser import requantised
from golden.arith.saturating_add import saturating_add
from golden.arith.takagi_reciprocal import reciprocal as takagi_reciprocal
from golden.p3llm.npu.epsilon_steps import epsilon_steps
from golden.p3llm.quantisers.scaled_quotient import scaled_quotient
from hdl.arith.float_add import FloatAdd
from hdl.arith.float_compare import FloatCompare, FloatExtreme
from hdl.arith.float_convert import FloatConvert
from hdl.arith.float_divide import FloatDivide, FloatReciprocal
from hdl.arith.float_exp import FloatExp
from hdl.arith.float_format import BINARY16, FloatFormat
from hdl.arith.float_multiply import FloatMultiply
from hdl.arith.float_normal_add import FloatNormalAdd
from hdl.arith.float_normal_multiply import FloatNormalMultiply
from hdl.arith.float_sqrt import FloatReciprocalSqrt, FloatSqrt
from hdl.arith.float_to_fixed import FloatToFixed
from hdl.arith.integer_to_float import IntegerToFloat
from hdl.arith.operator import Operator
from hdl.arith.requantiser import Requantiser
from hdl.arith.saturating_add import SaturatingAdd
from hdl.arith.takagi_reciprocal import TakagiReciprocal
from hdl.p3llm.npu.epsilon_steps import EpsilonSteps
from hdl.p3llm.quantisers.scaled_quotient import ScaledQuotient
from testbenches.arith.float_operands import (
    floats_near_integers,
    integers_of_all_sizes,
    normal_products,
    normal_sums,
    pairs,
    random_codes,
    random_near,
)

COUNT = 400_000
"""Number of random operand sets, in addition to the corner cases."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Trial:
    """Operands of each input, and the model's values of each output."""

    operands: Arrays
    expected: Arrays

    def difference(self, results: Arrays) -> str:
        """Describe the first difference from the model; empty if there is none."""
        for name, expected in self.expected.items():
            differ = np.flatnonzero(results[name] != expected)
            if len(differ):
                first = differ[0]
                given = ", ".join(f"{k} 0x{int(v[first]):X}" for k, v in self.operands.items())
                got, wanted = int(results[name][first]), int(expected[first])
                return f"{name} of {given} is 0x{got:X}, not 0x{wanted:X}"
        return ""


def trial(operator: Operator, *, seed: int = 1) -> Trial | None:
    """Generate operands for an operator; None if it has no trial.

    Parameters
    ----------
    operator : Operator
        Operator with any parameters.
    seed : int
        Seed of the random operands.
    """
    generate = TRIALS.get(type(operator))
    return generate and generate(operator, np.random.default_rng(seed))


def _near_pairs(number_format: FloatFormat, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return the cross product of the corner cases, and numbers whose sums are hard."""
    corner_a, corner_b = pairs(number_format)
    a = random_codes(number_format, COUNT, rng)
    b = random_near(number_format, number_format.decode(a), rng)
    return np.concatenate([corner_a, a]), np.concatenate([corner_b, b])


def _factors(number_format: FloatFormat, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return the cross product of the corner cases, factors of few digits, and random factors.

    Products of factors with few digits tie. A quarter of the random factors has products next to
    numbers whose last digits are all ones, where a carry propagates far.
    """
    corner_a, corner_b = pairs(number_format)
    a, b = (random_codes(number_format, COUNT, rng) for _operand in range(2))
    bits = number_format.mantissa_bits
    half = bits // 2
    b[::4] &= ~np.uint64((1 << bits - half + 1) - 1)
    a[::4] &= ~np.uint64((1 << half - 1) - 1)
    ones = (np.uint64(1) << rng.integers(1, bits + 1, COUNT).astype(np.uint64)) - np.uint64(1)
    wanted = number_format.decode(random_codes(number_format, COUNT, rng) | ones)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = encode(number_format, wanted / number_format.decode(a))
    b[1::4] = near[1::4]
    return np.concatenate([corner_a, a]), np.concatenate([corner_b, b])


def _add(unit: FloatAdd, rng: np.random.Generator) -> Trial:
    a, b = _near_pairs(unit.number_format, rng)
    operands = {"a": a, "b": b}
    if "subtract" in unit.signature.members:
        operands["subtract"] = rng.integers(0, 2, len(a)).astype(np.uint64)
    result = float_add(unit.number_format, *operands.values(), saturate=unit.saturate)
    return Trial(operands, {"result": result})


def _normal_add(unit: FloatNormalAdd, rng: np.random.Generator) -> Trial:
    a, b = normal_sums(unit.number_format, *_near_pairs(unit.number_format, rng))
    return Trial({"a": a, "b": b}, {"result": float_add(unit.number_format, a, b)})


def _normal_multiply(unit: FloatNormalMultiply, rng: np.random.Generator) -> Trial:
    a, b = normal_products(unit.number_format, *_factors(unit.number_format, rng))
    return Trial({"a": a, "b": b}, {"result": float_multiply(unit.number_format, a, b)})


def _multiply(unit: FloatMultiply, rng: np.random.Generator) -> Trial:
    number_format, longer, extra = unit.number_format, unit.longer_format, unit.extra_bits
    a, b = _factors(number_format, rng)
    exponent = b >> np.uint64(number_format.mantissa_bits) & np.uint64(number_format.exponent_mask)
    # Subnormal and special operands have no extra mantissa bits.
    normal = (exponent > 0) & (exponent < number_format.exponent_mask)
    below = np.where(normal, rng.integers(0, 1 << extra, len(b)), 0).astype(np.uint64)
    b = b << np.uint64(extra) | below
    with np.errstate(invalid="ignore"):
        exact = read(number_format, a, saturate=unit.saturate)
        exact = exact * read(longer, b, saturate=unit.saturate)
    expected = {"result": encode(number_format, exact, saturate=unit.saturate)}
    if unit.exact:
        factors = []
        for code, form in ((a, number_format), (b, longer)):
            stored = code >> np.uint64(form.mantissa_bits) & np.uint64(form.exponent_mask)
            leading = (stored > 0).astype(np.uint64) << np.uint64(form.mantissa_bits)
            factors.append(code & np.uint64(form.mantissa_mask) | leading)
        expected["product"] = factors[0] * factors[1]
    return Trial({"a": a, "b": b}, expected)


def _divide(unit: FloatDivide, rng: np.random.Generator) -> Trial:
    a, b = _factors(BINARY16, rng)
    if unit.divisor_from_one:
        kept = (b & 0x7FFF >= BINARY16.one) & (b & 0x7FFF != 0x7C00)
        a, b = a[kept], b[kept]
    return Trial({"a": a, "b": b}, {"result": divide(a, b, saturate=unit.saturate)})


def _convert(unit: FloatConvert, rng: np.random.Generator) -> Trial:
    a, _b = _factors(unit.source, rng)
    # Numbers of the target, and values next to the midpoints between them.
    target = unit.source if unit.widens else unit.target
    some = target.decode(random_codes(target, len(a), rng))
    some = some * (1 + rng.integers(-2, 3, len(a)) * 2.0 ** -(target.mantissa_bits + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        a = np.concatenate([a, encode(unit.source, some)])
    result = float_convert(unit.source, unit.target, a, saturate=unit.saturate)
    return Trial({"a": a}, {"result": result})


def _compare(unit: FloatCompare, rng: np.random.Generator) -> Trial:
    a, b = _near_pairs(unit.number_format, rng)
    return Trial({"a": a, "b": b}, float_compare(unit.number_format, a, b, saturate=unit.saturate))


def _extreme(unit: FloatExtreme, rng: np.random.Generator) -> Trial:
    a, b = _near_pairs(unit.number_format, rng)
    options = {"maximum": unit.maximum, "saturate": unit.saturate}
    return Trial({"a": a, "b": b}, {"result": float_extreme(unit.number_format, a, b, **options)})


def _every_code(model: Callable[..., np.ndarray], *names: str) -> Callable[..., Trial]:
    """Return the trial of an operator with one FP16 operand, whose model has the named options."""

    def generate(unit: Any, _rng: np.random.Generator) -> Trial:
        a = np.arange(1 << BINARY16.width, dtype=np.uint64)
        options = {name: getattr(unit, name) for name in names}
        return Trial({"a": a}, {"result": model(a, **options)})

    return generate


def _requantise(unit: Requantiser, rng: np.random.Generator) -> Trial:
    low, high = -(1 << unit.width - 1), (1 << unit.width - 1) - 1
    places = rng.integers(0, unit.width, COUNT)
    values = rng.integers(low, high, COUNT, endpoint=True) >> places
    bits = rng.integers(0, unit.scale_width + 1, COUNT)
    scale = rng.integers(0, (1 << bits) - 1, endpoint=True)
    # Shifts that leave about as many bits as a result has, and random ones.
    left = unit.width - places + bits - rng.integers(0, 20, COUNT)
    any_shift = rng.integers(0, unit.width + unit.scale_width, COUNT)
    shift = np.where(rng.random(COUNT) < 0.8, left, any_shift)
    shift = np.clip(shift, 0, unit.width + unit.scale_width - 1)
    result = requantised(values, scale, shift)
    operands = {"a": values, "scale": scale, "shift": shift}
    return Trial(_unsigned(unit, operands), _unsigned(unit, {"result": result}))


def _saturating_add(unit: SaturatingAdd, rng: np.random.Generator) -> Trial:
    width, signed = unit.shape.width, unit.shape.signed
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    a = rng.integers(low, high, COUNT, endpoint=True)
    # Half of the sums are near an end of the range.
    near = np.where(rng.integers(0, 2, COUNT) == 0, low, high) - a + rng.integers(-2, 3, COUNT)
    b = rng.integers(low, high, COUNT, endpoint=True)
    b = np.where(rng.integers(0, 2, COUNT) == 0, np.clip(near, low, high), b)
    result, saturated = saturating_add(a, b, width=width, signed=signed)
    expected = {"result": result, "saturated": saturated}
    return Trial(_unsigned(unit, {"a": a, "b": b}), _unsigned(unit, expected))


def _integer_to_float(unit: IntegerToFloat, rng: np.random.Generator) -> Trial:
    numbers = integers_of_all_sizes(min(unit.width, 53), COUNT, rng)
    point = rng.integers(-140, 200, len(numbers))
    result = integer_to_float(numbers, point).view(np.uint32)
    return Trial(_unsigned(unit, {"a": numbers, "point": point}), {"result": result})


def _float_to_fixed(unit: FloatToFixed, rng: np.random.Generator) -> Trial:
    numbers, point = floats_near_integers(COUNT, rng)
    result = _unsigned(unit, {"result": float_to_fixed(numbers, point)})
    return Trial({"a": numbers.view(np.uint32), **_unsigned(unit, {"point": point})}, result)


def _scaled_quotient(unit: ScaledQuotient, rng: np.random.Generator) -> Trial:
    codes = rng.integers(0, 0x7C00, COUNT).astype(np.uint16)
    codes = np.where(rng.random(COUNT) < 0.2, codes & 0x3FF, codes)
    codes >>= np.where(codes < 0x400, rng.integers(0, 11, COUNT), 0).astype(np.uint16)
    magnitudes = codes.view(np.float16).astype(np.float32)
    # Quotients of few digits, exact or off by a last place of the scale, and random ones.
    halves = rng.integers(0, 32, COUNT) + 0.5
    halves *= np.exp2(rng.integers(0, 3, COUNT) - (unit.steps - 2))
    near = np.maximum(magnitudes / halves, 1e-6).astype(np.float32)
    near = near.view(np.uint32) + rng.integers(-2, 3, COUNT)
    least, most = (int(np.float32(size).view(np.uint32)) for size in (1e-6, 8736))
    anything = rng.integers(least, most, COUNT)
    scale = np.clip(np.where(rng.random(COUNT) < 0.7, near, anything), least, most)
    scales = scale.astype(np.uint32).view(np.float32)
    rounded, excess = scaled_quotient(magnitudes, scales, unit.steps)
    significand = scale & 0x7FFFFF | 1 << 23
    operands = {"a": codes, "scale": (scale >> 23) << 24 | significand}
    return Trial(operands, {"rounded": rounded, "excess": excess})


def _epsilon_steps(unit: EpsilonSteps, rng: np.random.Generator) -> Trial:
    # All values in random order.
    points = rng.permutation(np.arange(-512, 512))
    return Trial(_unsigned(unit, {"point": points}), {"steps": epsilon_steps(unit.width, points)})


def _unsigned(unit: Any, numbers: Arrays) -> Arrays:
    """Return integers as unsigned numbers of their ports' widths."""
    widths = {name: len(getattr(unit, name)) for name in numbers}
    return {
        name: (np.asarray(values).astype(np.int64) & ((1 << widths[name]) - 1)).astype(np.uint64)
        for name, values in numbers.items()
    }


TRIALS: dict[type[Operator], Callable[[Any, np.random.Generator], Trial]] = {
    EpsilonSteps: _epsilon_steps,
    FloatAdd: _add,
    FloatCompare: _compare,
    FloatConvert: _convert,
    FloatDivide: _divide,
    FloatExp: _every_code(exp, "domain", "saturate"),
    FloatExtreme: _extreme,
    FloatMultiply: _multiply,
    FloatNormalAdd: _normal_add,
    FloatNormalMultiply: _normal_multiply,
    FloatReciprocal: _every_code(reciprocal, "saturate"),
    FloatReciprocalSqrt: _every_code(reciprocal_sqrt, "saturate"),
    FloatSqrt: _every_code(sqrt, "saturate"),
    FloatToFixed: _float_to_fixed,
    IntegerToFloat: _integer_to_float,
    Requantiser: _requantise,
    SaturatingAdd: _saturating_add,
    ScaledQuotient: _scaled_quotient,
    TakagiReciprocal: _every_code(takagi_reciprocal, "entry_bits", "saturate"),
}
"""Generator of the trial of each class of operators."""
