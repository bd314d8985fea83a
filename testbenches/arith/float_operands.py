"""Operands that are hard on floating-point operators: corners, and random ones near each other."""

import itertools
from collections.abc import Iterator

import numpy as np

from golden.arith.float_round import encode
from hdl.arith.float_format import FloatFormat


def corners(number_format: FloatFormat) -> np.ndarray:
    """Return more than 200 codes of a signed IEEE format, of both signs.

    Zeros, both ends of the subnormals, powers of two with their neighbours, significands halfway
    between two of half the length, the largest numbers, infinities, quiet and signalling NaNs.
    """
    mantissa = number_format.mantissa_bits
    step = max((number_format.exponent_mask + 1) // 16, 1)
    exponents = {0, 1, 2, number_format.exponent_mask - 2, number_format.exponent_mask - 1}
    exponents |= {number_format.bias + near for near in range(-mantissa // 2, mantissa // 2 + 1, 2)}
    exponents |= set(range(0, number_format.exponent_mask, step))
    shapes = {0, 1, number_format.mantissa_mask, 1 << (mantissa // 2), (1 << mantissa // 2) - 1}
    codes = {(exponent << mantissa) + shape for exponent in exponents for shape in shapes}
    codes |= {1 << bit for bit in range(mantissa)} | {(1 << bit) - 1 for bit in range(mantissa + 1)}
    top = number_format.exponent_mask << mantissa
    codes |= {top, top + 1, top + (1 << (mantissa - 1)), top + number_format.mantissa_mask}
    positive = np.array(sorted(codes), np.uint64)
    return np.concatenate([positive, positive | np.uint64(number_format.sign_mask)])


def pairs(number_format: FloatFormat) -> tuple[np.ndarray, np.ndarray]:
    """Return the full cross product of the corners."""
    a, b = np.meshgrid(corners(number_format), corners(number_format))
    return a.ravel(), b.ravel()


def random_codes(
    number_format: FloatFormat, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Return uniform codes, of which every fourth is made subnormal or zero."""
    codes = generator.integers(0, 1 << number_format.width, count, np.uint64)
    tiny = np.uint64(number_format.sign_mask | number_format.mantissa_mask)
    shift = generator.integers(0, number_format.mantissa_bits, count, np.uint64)
    small = codes & tiny & ~(np.uint64(number_format.mantissa_mask) >> shift << shift)
    small |= codes & np.uint64(number_format.sign_mask)
    return np.where(generator.integers(0, 4, count) == 0, small, codes)


def random_near(
    number_format: FloatFormat, values: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Return codes that make a sum with the values hard.

    A third cancels the value but for a few units in the last place; a third lies within a hundred
    binades on either side, where one operand decides the other's rounding; the rest is random.
    """
    count = len(values)
    finite = np.where(np.isfinite(values), values, 1.0)
    magnitude_mask = np.uint64(number_format.magnitude_mask)
    cancelling = encode(number_format, -finite, saturate=True).astype(np.int64)
    cancelling += generator.integers(-2, 3, count)
    reach = 4 * number_format.significand_bits
    exponents = generator.integers(-reach // 2, reach // 2 + 1, count)
    with np.errstate(over="ignore"):
        scaled = np.ldexp(finite * generator.uniform(-2, 2, count), exponents)
    beside = encode(number_format, np.clip(scaled, -1e300, 1e300), saturate=True)
    few_ones = np.uint64(number_format.mantissa_mask >> (number_format.mantissa_bits // 2))
    beside = np.where(generator.integers(0, 2, count) == 0, beside & ~few_ones, beside)
    choice = generator.integers(0, 3, count)
    sign = cancelling.astype(np.uint64) & np.uint64(number_format.sign_mask)
    cancelling_codes = (cancelling.astype(np.uint64) & magnitude_mask) | sign
    other = np.where(choice == 1, beside, random_codes(number_format, count, generator))
    return np.where(choice == 0, cancelling_codes, other)


def chunks(count: int, size: int = 1_000_000) -> Iterator[int]:
    """Split a count into parts of at most `size`."""
    return itertools.chain(
        itertools.repeat(size, count // size), [count % size] if count % size else []
    )
