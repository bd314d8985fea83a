"""The values that FP16 operators read from their operands."""

import numpy as np

ONE = 0x3C00
LARGEST = 0x7BFF
INFINITY = 0x7C00
QUIET_NAN = 0x7E00


def values(bits: np.ndarray, *, saturate: bool) -> np.ndarray:
    """Return float64 values; with `saturate` the largest exponent code is one like the others."""
    bits = np.asarray(bits).astype(np.uint16)
    if not saturate:
        return bits.view(np.float16).astype(np.float64)
    top = bits & 0x7C00 == 0x7C00
    lowered = np.where(top, bits - 0x0400, bits).astype(np.uint16)
    return lowered.view(np.float16).astype(np.float64) * np.where(top, 2.0, 1.0)
