"""The norms' epsilon in a row's own steps."""

from hdl.nonlinear.row_norm import EPSILON_BITS

EPSILON = 1e-5
"""Of the norms, as the models have it."""


def epsilon_steps(width: int) -> dict[int, int]:
    """Return ``width * epsilon`` in squared steps of a row, by the row's binary point.

    Below the points that are listed it is 0, above them all ones.
    """
    steps = {point: round(width * EPSILON * 4.0**point) for point in range(-10, 40)}
    return {point: value for point, value in steps.items() if 0 < value < 1 << EPSILON_BITS}
