"""Model of the division of magnitudes by a scale, rounded as in float32."""

import numpy as np
from numpy.typing import NDArray

from hdl.p3llm.quantisers.scaled_quotient import DIGITS


def scaled_quotient(
    magnitudes: NDArray[np.float32], scales: NDArray[np.float32], steps: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return four digits of each quotient, rounded twice, and the excess of its binade.

    Parameters
    ----------
    magnitudes, scales : numpy.ndarray
        float32; scales are positive.
    steps : int
        Digits of a quotient between 1 and 2, including the rounding digit.

    Returns
    -------
    tuple[numpy.ndarray, numpy.ndarray]
        int64: the digits, and their excess: a quotient is about
        ``digits * 2**(excess + 2 - steps)``.
    """
    # With operands of 11 and 24 digits, float64 gives the binade of the quotient exactly.
    _fraction, power = np.frexp(magnitudes.astype(np.float64) / scales)
    excess = np.maximum(power - 1 + steps - DIGITS, 0)
    excess = np.where(magnitudes > 0, excess, 0).astype(np.int64)
    quotient = (magnitudes / scales).astype(np.float64)
    return np.rint(np.ldexp(quotient, steps - 2 - excess)).astype(np.int64), excess
