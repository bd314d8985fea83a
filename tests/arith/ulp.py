"""Error of FP16 results in units of the exact value's last place."""

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from hdl.arith.float_format import BINARY16


def largest_error(results: np.ndarray, arguments: np.ndarray, exact: Callable[[Any], Any]) -> float:
    """Return the largest error in ulp of finite results.

    Parameters
    ----------
    results, arguments : numpy.ndarray
        FP16 codes of results and arguments.
    exact : Callable
        The function to compare with, evaluated with 80 bits.
    """
    worst = mpmath.mpf(0)
    with mpmath.workprec(80):
        values = zip(BINARY16.decode(results), BINARY16.decode(arguments), strict=True)
        for result, argument in values:
            truth = exact(mpmath.mpf(float(argument)))
            exponent = max(mpmath.frexp(abs(truth))[1] - 1, -14)
            worst = max(
                worst, abs(mpmath.mpf(float(result)) - truth) * mpmath.ldexp(1, 10 - exponent)
            )
    return float(worst)
