"""Bit-exact model of the reciprocal: normalise, look up, one Newton step."""

import numpy as np
from numpy.typing import NDArray

from hdl.arith.reciprocal import ADDRESS_BITS, MANTISSA_BITS, SEED_BITS

Integers = NDArray[np.int64]


def highest_one(values: Integers) -> Integers:
    """Return the position of the highest one of positive integers below 2**53."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1


def normalise(values: Integers, bits: int) -> tuple[Integers, Integers]:
    """Return D = 1.x with `bits` fraction bits (floor) as integers, and the exponent."""
    exponent = highest_one(values)
    down = np.maximum(exponent - bits, 0)
    return (values >> down) << np.maximum(bits - exponent, 0), exponent


def seeds() -> Integers:
    """Return the reciprocals at the midpoints of equal segments of [1, 2), in units of 2**-8."""
    parts = 1 << ADDRESS_BITS
    middles = 1 + (np.arange(parts) + 0.5) / parts
    return np.rint(2.0**SEED_BITS / middles).astype(np.int64)


def reciprocal(values: Integers) -> tuple[Integers, Integers]:
    """Return mantissa and exponent: ``1 / values`` is ``mantissa * 2**(-15 - exponent)``."""
    one = 1 << MANTISSA_BITS
    divisor, exponent = normalise(np.asarray(values, np.int64), MANTISSA_BITS)
    seed = seeds()[(divisor - one) >> (MANTISSA_BITS - ADDRESS_BITS)]
    residue = ((one << SEED_BITS) - divisor * seed) >> SEED_BITS
    mantissa = (seed << (MANTISSA_BITS - SEED_BITS)) + (seed * residue >> SEED_BITS) - 1
    return mantissa, exponent
