"""Model of the conversion between two floating-point formats."""

import numpy as np

from golden.arith.float_round import encode, read
from hdl.arith.float_format import FloatFormat


def float_convert(
    source: FloatFormat, target: FloatFormat, a: np.ndarray, *, saturate: bool = False
) -> np.ndarray:
    """Return the codes of the same values in the target format, rounded once."""
    return encode(target, read(source, a, saturate=saturate), saturate=saturate)
