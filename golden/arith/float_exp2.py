"""2**x of an FP16 number as a power of two and a mantissa, the model of `hdl.arith.float_exp2`."""

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_exp import lines


def exp2(bits: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``(whole, mantissa)`` of 2**x for FP16 codes, with ten fraction bits of mantissa.

    The magnitude of x is truncated to 12 fraction bits and complemented for negative x. The upper
    six of them select a segment with 13 fraction bits, and the lower six interpolate in it. The
    value is rounded half up to 10 bits. The very last step is rounded up to the next power of two.
    """
    bits = np.asarray(bits).astype(np.int64)
    exponent, significand = bits >> 10 & 31, bits & 1023 | 1024
    magnitude = (significand << 17) >> (30 - exponent) % 32
    fixed = np.where(bits >> 15 == 1, ~magnitude, magnitude)
    whole, fraction = fixed >> 12, fixed & 4095
    values, slopes = lines()
    segment, along = fraction >> 6, fraction & 63
    value = values[segment] + ((slopes[segment] * along) >> 3)
    last = fraction == 4095
    return whole + last, np.where(last, 0, (value + 4 >> 3) - 1024)
