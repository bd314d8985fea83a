"""Scales and shifts for whatever a requantiser is given."""

import numpy as np


def random_factor(rng: np.random.Generator, sum_bits: int) -> tuple[int, int]:
    """Return a scale of any length, and a shift that leaves some of its product with a sum.

    Small ones show the product's last digits, and ties between them; others clamp, or leave
    nothing.

    Parameters
    ----------
    sum_bits : int
        Bits of the sums.
    """
    bits = int(rng.integers(0, 17))
    scale = int(rng.integers(0, 1 << bits, endpoint=bits < 16))
    return scale, int(rng.integers(max(bits - 8, 0), bits + sum_bits))
