"""Right shifts with rounding, the model of `hdl.arith.rounding`."""

import numpy as np

from hdl.arith.rounding import Rounding


def rounded_right(
    values: np.ndarray, shift: np.ndarray | int, rounding: Rounding = Rounding.HALF_EVEN
) -> np.ndarray:
    """Return ``values / 2**shift`` rounded to integers.

    Parameters
    ----------
    values : numpy.ndarray
        Integers that fit in int64.
    shift : numpy.ndarray or int
        Exponents of the powers of two, 0 to 62.
    rounding : Rounding
        Rounding rule.

    Returns
    -------
    numpy.ndarray
        int64.
    """
    values = np.asarray(values).astype(np.int64)
    shift = np.asarray(shift).astype(np.int64)
    floor = values >> shift
    if rounding is Rounding.FLOOR:
        return floor
    # Compare twice the distance from the floor with one unit of 2**shift.
    twice = 2 * (values - (floor << shift))
    one = np.int64(1) << shift
    tie_goes_up = np.bool_(True) if rounding is Rounding.HALF_UP else floor & 1 == 1
    return floor + ((twice > one) | ((twice == one) & tie_goes_up))


def rounded(values: np.ndarray, rounding: Rounding = Rounding.HALF_EVEN) -> np.ndarray:
    """Return float64 values rounded to integers by a rule, as float64.

    Raises
    ------
    ValueError
        If the rule is unknown.
    """
    match rounding:
        case Rounding.HALF_EVEN:
            return np.rint(values)
        case Rounding.HALF_UP:
            # floor(x + 0.5) is wrong if the addition itself rounds.
            floor = np.floor(values)
            return floor + (values - floor >= 0.5)
        case Rounding.FLOOR:
            return np.floor(values)
    raise ValueError(f"rounding must be a Rounding, not {rounding!r}")
