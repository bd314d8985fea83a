"""Hard operands for floating-point operators: corner cases, and random values near each other."""

import itertools
from collections.abc import Iterator

import numpy as np

from golden.arith.float_add import float_add
from golden.arith.float_round import encode
from hdl.arith.float_format import FloatFormat


def corners(number_format: FloatFormat) -> np.ndarray:
    """Return more than 200 codes of a signed IEEE format, of both signs.

    The codes include zeros, both ends of the subnormals, powers of two and their neighbours,
    significands halfway between two of half the length, the largest numbers, infinities, and quiet
    and signalling NaNs.
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
    """Return the full cross product of the corner cases."""
    a, b = np.meshgrid(corners(number_format), corners(number_format))
    return a.ravel(), b.ravel()


def random_codes(
    number_format: FloatFormat, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Return uniform codes, of which a quarter is made subnormal or zero."""
    codes = generator.integers(0, 1 << number_format.width, count, np.uint64)
    tiny = np.uint64(number_format.sign_mask | number_format.mantissa_mask)
    shift = generator.integers(0, number_format.mantissa_bits, count, np.uint64)
    small = codes & tiny & ~(np.uint64(number_format.mantissa_mask) >> shift << shift)
    small |= codes & np.uint64(number_format.sign_mask)
    return np.where(generator.integers(0, 4, count) == 0, small, codes)


def random_near(
    number_format: FloatFormat, values: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Return codes whose sums with the given values are hard.

    A third cancels the value except for a few units in the last place. A third is within a hundred
    binades of it, where one operand determines the other's rounding. The rest is random.
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
    scaled_codes = encode(number_format, np.clip(scaled, -1e300, 1e300), saturate=True)
    few_ones = np.uint64(number_format.mantissa_mask >> (number_format.mantissa_bits // 2))
    shortened = generator.integers(0, 2, count) == 0
    scaled_codes = np.where(shortened, scaled_codes & ~few_ones, scaled_codes)
    choice = generator.integers(0, 3, count)
    sign = cancelling.astype(np.uint64) & np.uint64(number_format.sign_mask)
    cancelling_codes = (cancelling.astype(np.uint64) & magnitude_mask) | sign
    other = np.where(choice == 1, scaled_codes, random_codes(number_format, count, generator))
    return np.where(choice == 0, cancelling_codes, other)


def normal_sums(
    number_format: FloatFormat, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs in which neither an operand nor the sum is subnormal."""
    kept = np.ones(len(a), bool)
    for codes in (a, b, float_add(number_format, a, b)):
        magnitude = codes & np.uint64(number_format.magnitude_mask)
        kept &= (magnitude == 0) | (magnitude >= number_format.min_normal)
    return a[kept], b[kept]


def normal_products(
    number_format: FloatFormat, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs in which neither an operand nor the product is subnormal or underflows.

    Only zero operands may give zero. A product that rounds up to the smallest normal number is
    excluded.
    """
    x, y = number_format.decode(a), number_format.decode(b)
    least = number_format.decode(np.array([number_format.min_normal], np.uint64))[0]
    kept = np.ones(len(a), bool)
    for numbers in (x, y):
        kept &= (numbers == 0) | ~(np.abs(numbers) < least)
    # Products of at most 26 digits each are exact in float64.
    with np.errstate(invalid="ignore"):
        kept &= (x == 0) | (y == 0) | ~(np.abs(x * y) < least)
    return a[kept], b[kept]


def integers_of_all_sizes(width: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return signed integers of all magnitudes, ties of binary32, and the ends of the range."""
    lengths = generator.integers(1, width, count)
    numbers = generator.integers(-(1 << 52), 1 << 52, count) >> (52 - np.minimum(lengths, 52))
    # Ties: a one directly below the 24 kept bits.
    ties = (generator.integers(1 << 23, 1 << 24, count) * 2 + 1) << generator.integers(0, 23, count)
    top = (1 << width - 1) - 1
    numbers = np.where(generator.random(count) < 0.2, ties, numbers)
    return np.concatenate([np.clip(numbers, -top - 1, top), [0, 1, -1, top, -top - 1]])


def floats_near_integers(
    count: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return binary32 numbers near 16-bit integers and halves, others far beyond, and points."""
    point = generator.integers(-120, 130, count)
    halves = generator.integers(-70_000, 70_000, count) / 2
    halves += generator.choice([0, 1e-3, 2.0**-9], count)
    spread = generator.normal(size=count) * np.exp2(generator.integers(-20, 40, count))
    numbers = np.where(generator.random(count) < 0.7, halves, spread)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(numbers, -point).astype(np.float32), point


def chunks(count: int, size: int = 1_000_000) -> Iterator[int]:
    """Split a count into parts of at most `size`."""
    return itertools.chain(
        itertools.repeat(size, count // size), [count % size] if count % size else []
    )
