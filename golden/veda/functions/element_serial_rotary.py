"""Element-serial rotary embedding: the truth in float64, and the bit-exact model of the unit."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_add import float_add
from golden.arith.float_multiply import float_multiply
from golden.arith.float_values import codes, values
from hdl.arith.float_format import BINARY16

Codes = NDArray[np.uint16]
Reals = NDArray[np.float64]


def exact_rotary(x: Codes, y: Codes, cosine: Codes, sine: Codes) -> tuple[Reals, Reals]:
    """Return both rotated elements, in float64."""
    a, b, c, s = (values(part) for part in (x, y, cosine, sine))
    return a * c - b * s, a * s + b * c


def error_bounds(x: Codes, y: Codes, cosine: Codes, sine: Codes) -> tuple[Reals, Reals]:
    """Return the error bounds of both results."""
    a, b, c, s = (np.abs(values(part)) for part in (x, y, cosine, sine))
    return 2.0**-10 * (a * c + b * s) + 2.0**-23, 2.0**-10 * (a * s + b * c) + 2.0**-23


def rotary(x: Codes, y: Codes, cosine: Codes, sine: Codes) -> tuple[Codes, Codes]:
    """Return the FP16 codes of both rotated elements; every step rounds to FP16."""

    def product(a: Codes, b: Codes) -> NDArray[np.uint64]:
        return float_multiply(BINARY16, np.asarray(a), np.asarray(b))

    turned_x = float_add(BINARY16, product(x, cosine), product(y, sine), 1)
    turned_y = float_add(BINARY16, product(x, sine), product(y, cosine))
    return turned_x.astype(np.uint16), turned_y.astype(np.uint16)


def angles(positions: int, head_size: int, theta: float) -> tuple[Codes, Codes]:
    """Return cosines and sines [positions, head_size / 2] as FP16 codes."""
    frequency = theta ** (-np.arange(0, head_size, 2) / head_size)
    angle = np.arange(positions)[:, np.newaxis] * frequency
    return codes(np.cos(angle)), codes(np.sin(angle))
