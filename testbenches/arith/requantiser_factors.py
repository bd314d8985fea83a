"""Random scales and shifts for requantisers."""

import numpy as np


def random_factor(rng: np.random.Generator, sum_bits: int) -> tuple[int, int]:
    """Return a scale of any length, and a shift that keeps some bits of its product with a sum.

    Small scales expose the product's last digits and ties; others cause clamping or a zero result.

    Parameters
    ----------
    sum_bits : int
        Number of bits of the sums.
    """
    bits = int(rng.integers(0, 17))
    scale = int(rng.integers(0, 1 << bits, endpoint=bits < 16))
    return scale, int(rng.integers(max(bits - 8, 0), bits + sum_bits))
